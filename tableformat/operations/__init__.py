"""Statements on lake tables: a file for each, which plans it over one state of the table.

A statement lands as an export does (docs/decisions/0013): `running` plans it (`as_planned`), and
`landing` claims the keys that it changes and commits them by `tableformat/export/commit.py`. Two
tables of a MOVE are `moving` and `ending_moves`; what changes no key (`freeze`, `drop_detached`,
`forget`) runs by itself. What UPDATE and its like (`change_rows`) make of rows is ClickHouse's
business (`catalog/clickhouse/rows/changes.py`).
"""
