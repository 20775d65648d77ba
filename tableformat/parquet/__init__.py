"""The Parquet writer, its statistics, and the SELECT list of its input."""
