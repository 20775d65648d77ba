"""Runs statements on lake tables: opens tables and sources, and writes the files."""
