"""What happened to a table and to a transaction, as far as the metastore and the files still tell."""
