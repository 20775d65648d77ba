"""Keeps the ledger in one SQLite file, the default with a local warehouse.

Several processes of one host may use it at once. Tables (docs/spec/ledger.md):

    ledger      one row: identity, format, epoch counter
    rows        one per key, compare-and-set on `version`
    manifests   the document of each row
    leases
    events      bounded
    counters

- Every access is one IMMEDIATE transaction that checks the format first, so a process of another
  release is refused even if it has the file open.
- A write is on disk when it returns; only events may follow later.
- Reading never creates the file. A missing ledger reads as an empty one; the first write, or
  asking for its identity, creates it.
- `network_file_system` detects network file systems, where SQLite's locks cannot be trusted.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from catalog.ledgers.memory import milliseconds, running_exports
from catalog.storages.local import make_directory
from tableformat.errors import LedgerError, RefusedError
from tableformat.history import MOST_EVENTS, Event, counted
from tableformat.ledger import Lease, LeaseHeld, Owner, Row, Stale
from tableformat.ledger_text import parse_row, render_row
from tableformat.manifest import manifest

__all__ = [
    "LEDGER_FORMAT",
    "SCHEMA",
    "ChangingError",
    "SqliteLedger",
    "format_of",
    "held_lease",
    "is_read_only",
    "network_file_system",
    "reading",
    "remove_row",
    "take_lease",
    "there",
    "write_row",
]

_NETWORK: Final = frozenset(
    (
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "fuse.sshfs",
        "fuse.s3fs",
        "fuse.rclone",
        "fuse.glusterfs",
        "glusterfs",
        "ceph",
        "lustre",
        "afs",
        "gpfs",
        "beegfs",
        "afpfs",
        "webdav",
    )
)
_MOUNT: Final = Path("/sbin/mount")
"""Prints the table of mounts on systems that have no file with it, such as macOS."""
_MOUNTED: Final = re.compile(r".* on (?P<point>/.*) \((?P<kind>[\w.]+)")


def network_file_system(path: Path, mounts: Path) -> str:
    """Return the kind of network file system that a path is on, '' when it is on none.

    Args:
        path: absolute.
        mounts: the table of mounts; where there is none, `mount` is asked, and where that says
            nothing, nothing is known to be on a network.
    """
    kind = _file_system(path, mounts)
    return kind if kind in _NETWORK else ""


def _file_system(path: Path, mounts: Path) -> str:
    best, kind = "", ""
    for point, found in _listed(mounts) if mounts.exists() else _told():
        if path.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, found
    return kind


def _listed(mounts: Path) -> Iterator[tuple[str, str]]:
    """Yield where each file system is and its kind, from a file as Linux has it."""
    for line in mounts.read_text().splitlines():
        point, kind = line.split()[1:3]
        yield point.replace("\\040", " "), kind


def _told() -> Iterator[tuple[str, str]]:
    """Yield the same from what `mount` prints."""
    try:
        said = subprocess.run([_MOUNT], env={}, capture_output=True, text=True, check=False)
    except OSError:
        return
    for line in said.stdout.splitlines():
        if found := _MOUNTED.match(line):
            yield found["point"], found["kind"]


_TRIES: Final = 100


class ChangingError(Exception):
    """The file changed again and again while it was read."""


def is_read_only(path: Path) -> bool:
    """Whether this user may read a file, and may not write it or beside it."""
    ours = os.access in os.supports_effective_ids
    return not all(os.access(one, os.W_OK, effective_ids=ours) for one in (path, path.parent))


@contextlib.contextmanager
def reading(path: Path, seconds: float) -> Iterator[sqlite3.Connection]:
    """Lend a connection that shows the file as it is now, in one transaction.

    Args:
        path: the file.
        seconds: how long to wait for others that have it locked.

    Raises:
        sqlite3.Error: it cannot be read.
        ChangingError: it never was quiet.
    """
    with contextlib.closing(_opened(path, seconds)) as db:
        db.execute("BEGIN")
        yield db


def _opened(path: Path, seconds: float) -> sqlite3.Connection:
    log = path.with_name(f"{path.name}-wal")
    for _ in range(_TRIES):
        if log.exists():
            with contextlib.suppress(sqlite3.OperationalError):
                return _with_log(path, seconds)
        before = _stamp(path)
        copy = _copied(path)
        if not log.exists() and _stamp(path) == before:
            return copy
        copy.close()
    raise ChangingError(f"it changed {_TRIES} times while it was read")


def _with_log(path: Path, seconds: float) -> sqlite3.Connection:
    """Open the file with its log, which may be gone by now.

    Raises:
        sqlite3.OperationalError: it is.
    """
    db = _connected(path, "mode=ro", seconds)
    try:
        db.execute("SELECT 1 FROM sqlite_master").fetchall()
    except sqlite3.OperationalError:
        db.close()
        raise
    return db


def _copied(path: Path) -> sqlite3.Connection:
    """Return a copy in memory; it is worth nothing when the file changed meanwhile."""
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    with contextlib.closing(_connected(path, "immutable=1", 0)) as db:
        db.backup(copy)
    return copy


def _connected(path: Path, how: str, seconds: float) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?{how}",
        uri=True,
        timeout=seconds,
        isolation_level=None,
        check_same_thread=False,
    )


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


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


LEDGER_FORMAT: Final = 4
_WITHOUT_MANIFESTS: Final = 3
_BUSY_SECONDS: Final = 60.0
_PRIMARY: Final = 0xFF
"""The bits of SQLite's error codes that tell the kind of error."""


class SqliteLedger:
    """A ledger in an SQLite file, made by the first write.

    Safe from threads and processes of one host.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], int] = milliseconds,
        mounts: Path = Path("/proc/mounts"),
        most_events: int = MOST_EVENTS,
        busy_seconds: float = _BUSY_SECONDS,
    ) -> None:
        """Open the file, when there is one.

        Args:
            path: the file; its directory is made with it.
            clock: milliseconds since 1970; tests move it.
            mounts: the table of mounts, to tell a network file system by.
            most_events: how many of the latest are kept.
            busy_seconds: how long to wait for other processes that have it locked.

        Raises:
            RefusedError: the file is on a network file system, where SQLite's locks cannot be
                trusted.
            LedgerError: the file cannot be opened, or is not a ledger that this release reads.
        """
        self._path = path.absolute()
        self._clock = clock
        self._most_events = most_events
        self._busy_seconds = busy_seconds
        self._lock = threading.Lock()
        if kind := network_file_system(self._path, mounts):
            message = (
                f"Cannot keep the ledger at {self._path}: that is a network file system ({kind}), "
                "whose locks do not keep two exports apart. Give a file on a local disk with "
                "--ledger sqlite:PATH."
            )
            raise RefusedError(message)
        self._db: sqlite3.Connection | None = None
        self._identity = ""
        self._only_reads = self.is_made() and is_read_only(self._path)
        if self._only_reads:
            with self._reading() as db:
                (self._identity,) = db.execute("SELECT identity FROM ledger").fetchone()
        elif self.is_made():
            with self._lock:
                self._opened()

    def is_made(self) -> bool:
        """Whether the file is there."""
        return self._db is not None or self._path.exists()

    def _opened(self) -> sqlite3.Connection:
        """Return the open file, made when it does not exist; the lock is held."""
        if self._db is None:
            try:
                make_directory(self._path.parent)
                self._db = sqlite3.connect(
                    self._path,
                    timeout=self._busy_seconds,
                    isolation_level=None,
                    check_same_thread=False,
                )
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")
                self._identity = self._open(self._db)
            except (sqlite3.Error, OSError) as error:
                self._close()
                raise self._failed("open", error) from error
            except LedgerError:
                self._close()
                raise
        return self._db

    def _open(self, db: sqlite3.Connection) -> str:
        db.execute("BEGIN IMMEDIATE")
        made = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'ledger'").fetchone()[0]
        if not made:
            # Not executescript(): it would end the transaction that other openers wait for.
            for statement in SCHEMA.split(";")[:-1]:
                db.execute(statement)
            db.execute("INSERT INTO ledger VALUES (1, ?, ?, 0)", (str(uuid.uuid4()), LEDGER_FORMAT))
        elif format_of(db) == _WITHOUT_MANIFESTS:
            self._add_manifests(db)
        self._check_format(db)
        (identity,) = db.execute("SELECT identity FROM ledger").fetchone()
        db.execute("COMMIT")
        return str(identity)

    def _add_manifests(self, db: sqlite3.Connection) -> None:
        """Take over a ledger of the format before, which stores no manifest beside a row."""
        db.execute("CREATE TABLE manifests (key TEXT PRIMARY KEY, body TEXT NOT NULL)")
        for key, body, version in db.execute("SELECT key, body, version FROM rows").fetchall():
            text = manifest(self._row(key, body, version))
            db.execute("INSERT INTO manifests VALUES (?, ?)", (key, text))
        db.execute("UPDATE ledger SET format = ?", (LEDGER_FORMAT,))

    def _check_format(self, db: sqlite3.Connection, *readable: int) -> None:
        found = format_of(db)
        if found not in (LEDGER_FORMAT, *readable):
            message = (
                f"Cannot open the ledger {self._path}: it has format {found}, this release reads "
                f"{LEDGER_FORMAT}. Use the release that wrote it."
            )
            raise LedgerError(message)

    @property
    def identity(self) -> str:
        """The ledger's identity; asking for it makes the ledger."""
        with self._lock:
            if not self._only_reads:
                self._opened()
        return self._identity

    @property
    def uri(self) -> str:
        """Where it is."""
        return f"sqlite:{self._path}"

    def read(self, key: str) -> Row | None:
        """Return the latest row of a key hash."""
        (row,) = self.read_all((key,))
        return row

    def read_all(self, keys: tuple[str, ...]) -> tuple[Row | None, ...]:
        """Return the latest rows of key hashes."""
        if not self.is_made():
            return (None,) * len(keys)
        asked = "SELECT body, version FROM rows WHERE key = ?"
        with self._reading() as db:
            found = [db.execute(asked, (key,)).fetchone() for key in keys]
        return tuple(self._row(key, *x) if x else None for key, x in zip(keys, found, strict=True))

    def rows(self) -> Iterator[Row]:
        """Return all rows, latest update first."""
        if not self.is_made():
            return iter(())
        with self._reading() as db:
            found = db.execute("SELECT key, body, version FROM rows").fetchall()
        rows = (self._row(*x) for x in found)
        return iter(sorted(rows, key=lambda r: (-r.updated, r.key)))

    def _row(self, key: str, body: str, version: int) -> Row:
        what = f"the row {key} of the ledger {self._path}"
        row = parse_row(body, version, what=what)
        if row.key.hash != key:
            message = (
                f"Cannot read {what}: it holds the row of another key, {row.key.hash}. The ledger "
                "is damaged; restore it from a copy, or rebuild it from the table."
            )
            raise LedgerError(message)
        return row

    def write(self, row: Row) -> Row | Stale:
        """Replace the row that has `row.version`."""
        (written,) = self.write_all((row,))
        return written

    def write_all(self, rows: tuple[Row, ...]) -> tuple[Row | Stale, ...]:
        """Replace each row that has its version; the disk is waited for once."""
        with self._transaction() as db:
            return tuple(write_row(db, row) for row in rows)

    def remove(self, row: Row) -> Stale | None:
        """Remove the row that has `row.version`."""
        if not self.is_made():
            return None
        with self._transaction() as db:
            return remove_row(db, row)

    def next_epoch(self, count: int = 1) -> int:
        """Return the next number of the counter, the first of `count`."""
        with self._transaction() as db:
            counted_up = "UPDATE ledger SET epoch = epoch + ? RETURNING epoch"
            return int(db.execute(counted_up, (count,)).fetchone()[0]) - count + 1

    def highest_epoch(self) -> int:
        """Return the last number given."""
        if not self.is_made():
            return 0
        with self._reading() as db:
            return int(db.execute("SELECT epoch FROM ledger").fetchone()[0])

    def highest_landed(self, destination: str) -> int:
        """Return the greatest sequence number that any row of a destination knows."""
        if not self.is_made():
            return 0
        with self._reading() as db:
            found = db.execute(
                "SELECT sequence_number FROM landed WHERE destination = ?", (destination,)
            ).fetchone()
        return int(found[0]) if found else 0

    def take_lease(
        self, key: str, owner: Owner, seconds: float, *, instead_of: Owner | None = None
    ) -> Lease | LeaseHeld:
        """Give the lease when it is free, expired, or held by `owner` or `instead_of`."""
        with self._transaction() as db:
            return take_lease(db, key, owner, seconds, instead_of, self._clock())

    def take_leases(
        self, keys: tuple[str, ...], owner: Owner, seconds: float
    ) -> tuple[Lease | LeaseHeld, ...]:
        """Give each lease that is free, expired, or held by `owner`."""
        with self._transaction() as db:
            now = self._clock()
            return tuple(take_lease(db, key, owner, seconds, None, now) for key in keys)

    def renew(self, lease: Lease, seconds: float) -> Lease | LeaseHeld:
        """Lengthen a lease that its owner still has."""
        with self._transaction() as db:
            now = self._clock()
            held = held_lease(db, lease.key)
            if held is None:
                return LeaseHeld(lease.owner, now, now)
            if held.owner != lease.owner:
                return held
            until = now + int(seconds * 1000)
            db.execute("UPDATE leases SET until = ? WHERE key = ?", (until, lease.key))
        return Lease(lease.key, lease.owner, until)

    def release(self, *leases: Lease) -> None:
        """Give back each lease that is still its owner's."""
        with self._transaction() as db:
            for lease in leases:
                held = held_lease(db, lease.key)
                if held and held.owner == lease.owner:
                    db.execute("DELETE FROM leases WHERE key = ?", (lease.key,))

    def holder(self, key: str) -> LeaseHeld | None:
        """Return who has an unexpired lease of a key."""
        if not self.is_made():
            return None
        with self._reading() as db:
            held = held_lease(db, key)
        return held if held and held.until > self._clock() else None

    def note(self, events: tuple[Event, ...]) -> None:
        """Keep events, and add what they count; after a power cut the last may be gone."""
        with self._transaction(on_disk=False) as db:
            for event in events:
                db.execute(
                    "INSERT INTO events (time, body) VALUES (?, ?)", (event.time, event.to_json())
                )
                if event.counter is not None:
                    db.execute(
                        "INSERT INTO counters VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET "
                        "value = value + excluded.value",
                        (event.counter.value, event.parts),
                    )
            db.execute(
                "DELETE FROM events WHERE number <= (SELECT max(number) FROM events) - ?",
                (self._most_events,),
            )

    def events(self, since: int | None, most: int) -> tuple[Event, ...]:
        """Return the latest events, the last noted first."""
        if not self.is_made():
            return ()
        with self._reading() as db:
            found = db.execute(
                "SELECT body FROM events WHERE ?1 IS NULL OR time >= ?1 "
                "ORDER BY number DESC LIMIT ?2",
                (since, most),
            ).fetchall()
        return tuple(Event.from_json(body) for (body,) in found)

    def counters(self) -> Mapping[str, int]:
        """Return what was counted, and how many exports run now."""
        if not self.is_made():
            return counted({}, 0)
        with self._reading() as db:
            totals = dict(db.execute("SELECT name, value FROM counters").fetchall())
            asked = "SELECT key, host, pid, start FROM leases WHERE until > ?"
            leases = db.execute(asked, (self._clock(),)).fetchall()
        held = {key: Owner(*owner) for key, *owner in leases}
        return counted(totals, running_exports(held, filter(None, self.read_all(tuple(held)))))

    def leave(self) -> None:
        """Do nothing: a file that is locked is waited for in seconds."""

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Make one transaction that only reads."""
        if not self._only_reads:
            with self._transaction() as db:
                yield db
            return
        try:
            with reading(self._path, self._busy_seconds) as db:
                self._check_format(db, _WITHOUT_MANIFESTS)
                yield db
        except (sqlite3.Error, OSError, ChangingError) as error:
            raise self._failed("read", error) from error

    @contextlib.contextmanager
    def _transaction(self, *, on_disk: bool = True) -> Iterator[sqlite3.Connection]:
        """Make one transaction; not `on_disk`, it waits for the disk with the next that is."""
        if self._only_reads:
            message = (
                f"Cannot write the ledger {self._path}: this user may only read it. Run the "
                "command as a user who may write the file and its directory."
            )
            raise LedgerError(message)
        with self._lock:
            db = self._opened()
            try:
                if not on_disk:
                    db.execute("PRAGMA synchronous = NORMAL")
                db.execute("BEGIN IMMEDIATE")
                self._check_format(db)
                yield db
                db.execute("COMMIT")
            except sqlite3.Error as error:
                raise self._failed("use", error) from error
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                if not on_disk:
                    db.execute("PRAGMA synchronous = FULL")

    def _failed(self, verb: str, error: Exception) -> LedgerError:
        code = error.sqlite_errorcode if isinstance(error, sqlite3.OperationalError) else 0
        if code & _PRIMARY in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return LedgerError(
                f"Cannot {verb} the ledger {self._path}: another process has had it locked for "
                f"{self._busy_seconds:g} s. Run the command again; if that does not help, end the "
                "process that has the file open."
            )
        return LedgerError(
            f"Cannot {verb} the ledger {self._path}: {error}. "
            "Check that it is a mergeberg ledger, that you may write it and its directory, and "
            "that the disk is not full."
        )
