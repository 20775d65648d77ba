"""Statements on lake tables: what each needs opened, and what writes its files."""
