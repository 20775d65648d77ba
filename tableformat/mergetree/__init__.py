"""The source side: what a MergeTree table is. Standard library only."""
