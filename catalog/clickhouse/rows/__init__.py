"""Computes values, digests, merges and partitions of data file rows in our own ClickHouse."""
