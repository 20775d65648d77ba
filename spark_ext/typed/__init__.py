"""Statements on lake tables with arguments that have names: one list for every door."""
