"""Azure Blob Storage, and Data Lake Storage Gen2, which is the same store: abfs:// and abfss://."""
