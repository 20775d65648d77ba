"""The destination: Iceberg tables, and the mapping of MergeTree tables to them."""
