"""Ledgers: in memory (the reference), in an SQLite file, in ZooKeeper or ClickHouse Keeper."""
