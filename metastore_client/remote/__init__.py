"""A metastore that is reached over Thrift."""
