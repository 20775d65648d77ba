"""Opens what has a name: sources, Iceberg catalogs, storage, ledgers."""
