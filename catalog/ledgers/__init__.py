"""Ledgers: in memory (the reference) and in an SQLite file."""
