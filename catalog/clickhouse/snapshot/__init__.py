"""Takes snapshots of a source's partitions in staging tables, and proves them."""
