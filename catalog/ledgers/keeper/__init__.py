"""The ledger in ZooKeeper or ClickHouse Keeper."""
