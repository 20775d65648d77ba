"""Asks ClickHouse about rows that are not in it: values, digests, merges, partitions."""
