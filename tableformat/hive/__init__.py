"""The destination without a catalog: a tree of Hive directories on any storage."""
