"""The one Parquet writer, its statistics, and the SELECT list that feeds it."""
