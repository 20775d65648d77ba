"""Evaluates rows of data files in an own ClickHouse: values, digests, merges, partitions."""
