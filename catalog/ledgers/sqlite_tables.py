"""The tables of a ledger in an SQLite file, and what is done to them inside a transaction."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Final

from tableformat.ledger import Lease, LeaseHeld, Owner, Row, Stale
from tableformat.ledger_text import render_row
from tableformat.manifest import manifest

__all__ = ["SCHEMA", "format_of", "held_lease", "remove_row", "take_lease", "there", "write_row"]

SCHEMA: Final = """
CREATE TABLE ledger (one INTEGER PRIMARY KEY CHECK (one = 1), identity TEXT NOT NULL,
                     format INTEGER NOT NULL, epoch INTEGER NOT NULL);
CREATE TABLE rows (key TEXT PRIMARY KEY, version INTEGER NOT NULL, updated INTEGER NOT NULL,
                   body TEXT NOT NULL);
CREATE INDEX rows_by_update ON rows (updated DESC, key);
CREATE TABLE leases (key TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL,
                     start TEXT NOT NULL, since INTEGER NOT NULL, until INTEGER NOT NULL);
CREATE TABLE events (number INTEGER PRIMARY KEY AUTOINCREMENT, time INTEGER NOT NULL,
                     body TEXT NOT NULL);
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE landed (destination TEXT PRIMARY KEY, sequence_number INTEGER NOT NULL);
CREATE TABLE manifests (key TEXT PRIMARY KEY, body TEXT NOT NULL);
"""


def format_of(db: sqlite3.Connection) -> object:
    """Return the format that a ledger has, None where it says none."""
    return (db.execute("SELECT format FROM ledger").fetchone() or (None,))[0]


def write_row(db: sqlite3.Connection, row: Row) -> Row | Stale:
    """Replace the row that has its version, with its manifest; return it."""
    key = row.key.hash
    if (found := there(db, key)) != ((row.version, row.created) if row.version else None):
        return Stale(found[0] if found else None)
    db.execute(
        "INSERT INTO rows VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
        "version = excluded.version, updated = excluded.updated, body = excluded.body",
        (key, row.version + 1, row.updated, render_row(row)),
    )
    db.execute(
        "INSERT INTO manifests VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET body = excluded.body",
        (key, manifest(row)),
    )
    if row.landed:
        db.execute(
            "INSERT INTO landed VALUES (?, ?) ON CONFLICT (destination) DO UPDATE SET "
            "sequence_number = max(sequence_number, excluded.sequence_number)",
            (row.key.destination, max(x.sequence_number for x in row.landed)),
        )
    return replace(row, version=row.version + 1)


def there(db: sqlite3.Connection, key: str) -> tuple[int, int] | None:
    """Return the version of a row, and when it was made: one that is made again is another."""
    asked = "SELECT version, json_extract(body, '$.created') FROM rows WHERE key = ?"
    found = db.execute(asked, (key,)).fetchone()
    return None if found is None else (int(found[0]), int(found[1]))


def remove_row(db: sqlite3.Connection, row: Row) -> Stale | None:
    """Remove a row that has its version, with its manifest; None once it is gone."""
    key = row.key.hash
    found = there(db, key)
    if found is None or found[1] != row.created:
        return None
    if found[0] != row.version:
        return Stale(found[0])
    db.execute("DELETE FROM rows WHERE key = ?", (key,))
    db.execute("DELETE FROM manifests WHERE key = ?", (key,))
    return None


def take_lease(
    db: sqlite3.Connection,
    key: str,
    owner: Owner,
    seconds: float,
    instead_of: Owner | None,
    now: int,
) -> Lease | LeaseHeld:
    """Give a lease that is free, expired, or held by `owner` or `instead_of`."""
    held = held_lease(db, key)
    if held and held.until > now and held.owner not in (owner, instead_of):
        return held
    until = now + int(seconds * 1000)
    db.execute(
        "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?)",
        (key, owner.host, owner.pid, owner.start, now, until),
    )
    return Lease(key, owner, until)


def held_lease(db: sqlite3.Connection, key: str) -> LeaseHeld | None:
    """Return who has a lease, also one that has run out."""
    asked = "SELECT host, pid, start, since, until FROM leases WHERE key = ?"
    found = db.execute(asked, (key,)).fetchone()
    return LeaseHeld(Owner(*found[:3]), *found[3:]) if found else None
