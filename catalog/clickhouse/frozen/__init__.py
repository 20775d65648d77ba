"""A source without a server: part folders that somebody froze or restored, and their DDL."""
