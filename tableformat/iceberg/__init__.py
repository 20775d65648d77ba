"""The destination: what an Iceberg table is, and how a MergeTree table becomes one."""
