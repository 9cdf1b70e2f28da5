"""Relational databases as sources: one module each, behind
:class:`~mutation_api.update.rdbms.database.SourceDatabase`.
"""
