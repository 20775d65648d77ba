"""Azure Blob Storage, which is also Data Lake Storage Gen2: abfs:// and abfss://."""
