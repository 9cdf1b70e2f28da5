"""MySQL and MariaDB servers as change sources: first all rows, then the binary log."""
