"""Raw files of a binlog collector."""
