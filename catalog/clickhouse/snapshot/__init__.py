"""Takes a snapshot of partitions of a source, and proves it."""
