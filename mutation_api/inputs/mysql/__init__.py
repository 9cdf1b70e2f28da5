"""Tables of a MySQL or MariaDB server, followed by its binary log."""
