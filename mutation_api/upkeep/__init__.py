"""Maintenance of tables: creating, examining and sweeping tables, and reading their past."""
