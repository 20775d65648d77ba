"""Opens Iceberg catalogs and tables."""
