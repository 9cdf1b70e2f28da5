"""Streaming queries whose batches become visible in Hive exactly once.

``batch_mark`` the rules by which a batch is written, skipped or refused; ``actions`` what is done with its
rows; ``hive_batches`` the function that a query calls for each batch.
"""
