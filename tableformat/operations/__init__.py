"""Statements on lake tables: a file for each, which plans it over one state of the table.

A statement is committed like an export (docs/decisions/0013-statements-and-exports.md). `run.py`
runs it: `statement.py` has its plan, `statement_commit.py` claims the keys that it changes and
commits them by `tableformat/export/commit.py`. `move.py` changes two tables. A statement that
changes no key (`freeze.py`, `drop_detached.py`, `forget.py`) runs by itself. ClickHouse computes
the rows of UPDATE and DELETE (`catalog/rewriting/changed_rows.py`).
"""
