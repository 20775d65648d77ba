"""The ledger in ZooKeeper or ClickHouse Keeper."""

from catalog.ledgers.keeper.ledger import KeeperLedger

__all__ = ["KeeperLedger"]
