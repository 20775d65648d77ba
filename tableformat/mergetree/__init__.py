"""The source: MergeTree tables. Standard library only."""
