"""Connections to a metastore: addresses, login, encryption."""
