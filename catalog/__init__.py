"""Opens sources, Iceberg catalogs, storage and ledgers by name or address."""
