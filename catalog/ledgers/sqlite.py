"""Stores the ledger in one SQLite file, the default with a local warehouse.

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
- Reading never creates the file. A missing ledger reads as an empty one; the first write, or a
  request for its identity, creates it.
- `network_file_system` detects network file systems, where SQLite's locks are unreliable.
- A user who may only read the file reads it through `reading`.
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
from tableformat.ledger import Lease, LeaseHeld, Owner, Row, Stale, State
from tableformat.ledger_text import manifest, parse_row, render_row
from tableformat.messages import Option

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
    "row_version",
    "take_lease",
    "write_row",
]

_NETWORK_FILE_SYSTEMS: Final = frozenset(
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
        "fuse.gcsfuse",
        "fuse.goofys",
        "fuse.juicefs",
        "fuse.mount-s3",
        "fuse.blobfuse",
        "fuse.blobfuse2",
        "fuse.cephfs",
        "fuse.ceph-fuse",
        # The directory of a host in a virtual machine or a container of it: others may write it.
        "9p",
        "virtiofs",
        "vboxsf",
        "fuse.grpcfuse",
        "fuse.osxfs",
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
_MOUNT_PROGRAM: Final = Path("/sbin/mount")
"""Prints the mount table on systems that do not have it as a file, such as macOS."""
_MOUNT_LINE: Final = re.compile(r".* on (?P<point>/.*) \((?P<kind>[\w.]+)")


def network_file_system(path: Path, mounts: Path) -> str:
    """Return the type of a path's network file system, '' if it is on a local one.

    Args:
        path: absolute.
        mounts: the mount table. If it does not exist, `mount` prints it; if that fails, too, every
            path counts as local.
    """
    kind = _file_system(path, mounts)
    return kind if kind in _NETWORK_FILE_SYSTEMS else ""


def _file_system(path: Path, mounts: Path) -> str:
    best, kind = "", ""
    for point, found in _read_mounts(mounts) if mounts.exists() else _mount_output():
        if path.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, found
    return kind


def _read_mounts(mounts: Path) -> Iterator[tuple[str, str]]:
    """Yield mount points and file system types from Linux's mount table."""
    for line in mounts.read_text().splitlines():
        point, kind = line.split()[1:3]
        yield point.replace("\\040", " "), kind


def _mount_output() -> Iterator[tuple[str, str]]:
    """Yield mount points and file system types from the output of `mount`."""
    try:
        result = subprocess.run(
            [_MOUNT_PROGRAM], env={}, capture_output=True, text=True, check=False
        )
    except OSError:
        return
    for line in result.stdout.splitlines():
        if found := _MOUNT_LINE.match(line):
            yield found["point"], found["kind"]


_TRIES: Final = 100


class ChangingError(Exception):
    """The file changed during every attempt to copy it."""


def is_read_only(path: Path) -> bool:
    """Whether this user can read a file but cannot write it or its directory."""
    ours = os.access in os.supports_effective_ids
    return not all(os.access(one, os.W_OK, effective_ids=ours) for one in (path, path.parent))


@contextlib.contextmanager
def reading(path: Path, seconds: float) -> Iterator[sqlite3.Connection]:
    """Open a read-only connection to the file's current state, in one transaction.

    Without write permission SQLite cannot create a write-ahead log, so a file without one is
    copied to memory.

    Args:
        path: the file.
        seconds: how long to wait for a lock of another process.

    Raises:
        sqlite3.Error: the file cannot be read.
        ChangingError: the file changed during every attempt to copy it.
    """
    with contextlib.closing(_opened(path, seconds)) as db:
        db.execute("BEGIN")
        yield db


def _opened(path: Path, seconds: float) -> sqlite3.Connection:
    log = path.with_name(f"{path.name}-wal")
    for _ in range(_TRIES):
        if log.exists():
            with contextlib.suppress(sqlite3.OperationalError):
                return _open_with_wal(path, seconds)
        before = _file_state(path)
        copy = _copy_in_memory(path)
        if not log.exists() and _file_state(path) == before:
            return copy
        copy.close()
    raise ChangingError(f"it changed {_TRIES} times while it was read")


def _open_with_wal(path: Path, seconds: float) -> sqlite3.Connection:
    """Open the file with its write-ahead log.

    Raises:
        sqlite3.OperationalError: the log was removed meanwhile.
    """
    db = _connect(path, "mode=ro", seconds)
    try:
        db.execute("SELECT 1 FROM sqlite_master").fetchall()
    except sqlite3.OperationalError:
        db.close()
        raise
    return db


def _copy_in_memory(path: Path) -> sqlite3.Connection:
    """Return a copy in memory, which is invalid if the file changed meanwhile."""
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    with contextlib.closing(_connect(path, "immutable=1", 0)) as db:
        db.backup(copy)
    return copy


def _connect(path: Path, how: str, seconds: float) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?{how}",
        uri=True,
        timeout=seconds,
        isolation_level=None,
        check_same_thread=False,
    )


def _file_state(path: Path) -> tuple[int, int, int]:
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
    """Return a ledger's format, None if it has none."""
    return (db.execute("SELECT format FROM ledger").fetchone() or (None,))[0]


def write_row(db: sqlite3.Connection, row: Row) -> Row | Stale:
    """Replace the row that has its version, with its manifest; return the new row."""
    key = row.key.hash
    if (found := row_version(db, key)) != ((row.version, row.created) if row.version else None):
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


def row_version(db: sqlite3.Connection, key: str) -> tuple[int, int] | None:
    """Return a row's version and creation time; a new row of the same key has another time."""
    query = "SELECT version, json_extract(body, '$.created') FROM rows WHERE key = ?"
    found = db.execute(query, (key,)).fetchone()
    return None if found is None else (int(found[0]), int(found[1]))


def remove_row(db: sqlite3.Connection, row: Row) -> Stale | None:
    """Remove a row that has its version, with its manifest; another version is `Stale`."""
    key = row.key.hash
    found = row_version(db, key)
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
    """Take a lease that is free, expired, or held by `owner` or `instead_of`."""
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
    """Return a key's lease, expired or not."""
    query = "SELECT host, pid, start, since, until FROM leases WHERE key = ?"
    found = db.execute(query, (key,)).fetchone()
    return LeaseHeld(Owner(*found[:3]), *found[3:]) if found else None


LEDGER_FORMAT: Final = 4
_WITHOUT_MANIFESTS: Final = 3
_BUSY_SECONDS: Final = 60.0
_PRIMARY: Final = 0xFF
"""The bits of SQLite's extended error codes that hold the primary code."""


# SQLite selects a row in a fraction of the time in which Python parses it. A row that is damaged is
# selected, so that the parser reports it.
_SELECT_ROWS: Final = """
    SELECT key, body, version FROM rows
    WHERE NOT json_valid(body) OR (
        (:state = '' OR json_extract(body, '$.state') = :state)
        AND (:query_id = '' OR json_extract(body, '$.claim.query_id') = :query_id)
        AND (:not_of = '' OR json_extract(body, '$.key.source') <> :not_of)
    )
"""


class SqliteLedger:
    """A ledger in an SQLite file, created by the first write.

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
        """Open the file if it exists.

        Args:
            path: the file; its directory is created with it.
            clock: milliseconds since 1970; tests move it.
            mounts: the mount table, to detect a network file system.
            most_events: how many of the latest events are kept.
            busy_seconds: how long to wait for a lock of another process.

        Raises:
            RefusedError: the file is on a network file system, where SQLite's locks are unreliable.
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
                f"{Option.LEDGER} sqlite:PATH."
            )
            raise RefusedError(message)
        self._db: sqlite3.Connection | None = None
        self._identity = ""
        self._is_read_only = self.is_made() and is_read_only(self._path)
        if self._is_read_only:
            with self._reading() as db:
                (self._identity,) = db.execute("SELECT identity FROM ledger").fetchone()
        elif self.is_made():
            with self._lock:
                self._opened()

    def is_made(self) -> bool:
        """Whether the file exists."""
        return self._db is not None or self._path.exists()

    def _opened(self) -> sqlite3.Connection:
        """Return the open database, created if it does not exist. The caller holds the lock."""
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
                raise self._error("open", error) from error
            except LedgerError:
                self._close()
                raise
        return self._db

    def _open(self, db: sqlite3.Connection) -> str:
        db.execute("BEGIN IMMEDIATE")
        made = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'ledger'").fetchone()[0]
        if not made:
            # Not executescript(): it would commit the transaction before the schema is complete.
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
        """Upgrade a ledger of the previous format, which stores no manifests."""
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
        """The ledger's identity; reading it creates the ledger."""
        with self._lock:
            if not self._is_read_only:
                self._opened()
        return self._identity

    @property
    def uri(self) -> str:
        """`sqlite:` and the file's path."""
        return f"sqlite:{self._path}"

    def read(self, key: str) -> Row | None:
        """Return the latest row of a key hash."""
        (row,) = self.read_all((key,))
        return row

    def read_all(self, keys: tuple[str, ...]) -> tuple[Row | None, ...]:
        """Return the latest rows of key hashes."""
        if not self.is_made():
            return (None,) * len(keys)
        query = "SELECT body, version FROM rows WHERE key = ?"
        with self._reading() as db:
            found = [db.execute(query, (key,)).fetchone() for key in keys]
        return tuple(self._row(key, *x) if x else None for key, x in zip(keys, found, strict=True))

    def rows(
        self, *, state: State | None = None, query_id: str = "", not_of: str = ""
    ) -> Iterator[Row]:
        """Return all rows, or the selected ones, latest update first."""
        if not self.is_made():
            return iter(())
        values = {"state": state or "", "query_id": query_id, "not_of": not_of}
        with self._reading() as db:
            found = db.execute(_SELECT_ROWS, values).fetchall()
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
        """Replace each row that has its version, in one transaction."""
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
        """Return the last number drawn."""
        if not self.is_made():
            return 0
        with self._reading() as db:
            return int(db.execute("SELECT epoch FROM ledger").fetchone()[0])

    def highest_landed(self, destination: str) -> int:
        """Return the greatest sequence number in the rows of a destination."""
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
        """Take a lease that is free, expired, or held by `owner` or `instead_of`."""
        with self._transaction() as db:
            return take_lease(db, key, owner, seconds, instead_of, self._clock())

    def take_leases(
        self, keys: tuple[str, ...], owner: Owner, seconds: float
    ) -> tuple[Lease | LeaseHeld, ...]:
        """Take each lease that is free, expired, or held by `owner`."""
        with self._transaction() as db:
            now = self._clock()
            return tuple(take_lease(db, key, owner, seconds, None, now) for key in keys)

    def renew(self, lease: Lease, seconds: float) -> Lease | LeaseHeld:
        """Extend a lease that its owner still holds."""
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
        """Release each lease that its owner still holds."""
        with self._transaction() as db:
            for lease in leases:
                held = held_lease(db, lease.key)
                if held and held.owner == lease.owner:
                    db.execute("DELETE FROM leases WHERE key = ?", (lease.key,))

    def holder(self, key: str) -> LeaseHeld | None:
        """Return the unexpired lease of a key."""
        if not self.is_made():
            return None
        with self._reading() as db:
            held = held_lease(db, key)
        return held if held and held.until > self._clock() else None

    def note(self, events: tuple[Event, ...]) -> None:
        """Store events and add to their counters; a power cut may lose the last of them."""
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
        """Return the latest events, newest first."""
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
        """Return the counters and the number of running exports."""
        if not self.is_made():
            return counted({}, 0)
        with self._reading() as db:
            totals = dict(db.execute("SELECT name, value FROM counters").fetchall())
            query = "SELECT key, host, pid, start FROM leases WHERE until > ?"
            leases = db.execute(query, (self._clock(),)).fetchall()
        held = {key: Owner(*owner) for key, *owner in leases}
        return counted(totals, running_exports(held, filter(None, self.read_all(tuple(held)))))

    def leave(self) -> None:
        """Do nothing: waiting for a lock is bounded."""

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
        """Run one transaction that only reads."""
        if not self._is_read_only:
            with self._transaction() as db:
                yield db
            return
        try:
            with reading(self._path, self._busy_seconds) as db:
                self._check_format(db, _WITHOUT_MANIFESTS)
                yield db
        except (sqlite3.Error, OSError, ChangingError) as error:
            raise self._error("read", error) from error

    @contextlib.contextmanager
    def _transaction(self, *, on_disk: bool = True) -> Iterator[sqlite3.Connection]:
        """Run one transaction.

        Unless `on_disk`, it does not wait for the disk; the next transaction that does makes both
        durable.
        """
        if self._is_read_only:
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
                raise self._error("use", error) from error
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                if not on_disk:
                    db.execute("PRAGMA synchronous = FULL")

    def _error(self, verb: str, error: Exception) -> LedgerError:
        code = error.sqlite_errorcode if isinstance(error, sqlite3.OperationalError) else 0
        if code & _PRIMARY in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return LedgerError(
                f"Cannot {verb} the ledger {self._path}: another process has had it locked for "
                f"{self._busy_seconds:g} s. Run it again; if that does not help, end the "
                "process that has the file open."
            )
        return LedgerError(
            f"Cannot {verb} the ledger {self._path}: {error}. "
            "Check that it is a mergeberg ledger, that you may write it and its directory, and "
            "that the disk is not full."
        )
