"""PostgreSQL: connections, statements, migrations, weekly partitions and the embedded server."""
