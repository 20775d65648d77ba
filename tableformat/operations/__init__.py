"""Statements on lake tables: a file for each, which plans it over one state of the table.

A statement lands as an export does (docs/decisions/0013): `running` claims the keys that it
changes, and commits them by `tableformat/export/commit.py`.
"""
