"""Rules of Hive's data, pure: types, values, names of files, ROW__IDs, events, bucket hashes."""
