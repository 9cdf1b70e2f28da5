"""Driver side: the transaction's life."""
