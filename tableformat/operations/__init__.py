"""Statements on lake tables: one file each, which plans a statement on one state of the table.

A statement is committed like an export (docs/decisions/0013-statements-and-exports.md). `run.py`
runs it: `statement.py` defines its plan, `statement_commit.py` claims the keys that it changes and
commits them with `tableformat/export/commit.py`. `move.py` changes two tables. Statements that
change no key (`freeze.py`, `forget.py`, DROP DETACHED in `take_out.py`) run themselves.
ClickHouse computes the rows of UPDATE and DELETE (`catalog/rewriting/changed_rows.py`).
"""
