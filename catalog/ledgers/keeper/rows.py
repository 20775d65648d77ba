"""Stores the rows of a ledger in Keeper, one node each, with compare-and-set on Keeper's version.

- The content of every node is a line with a checksum, and the data that the checksum covers.
- A row's node begins with `write`, a new id for each write, by which a writer whose response was
  lost recognises its own write, and with the number of pieces. A small body follows. A large body
  is compressed and cut into piece nodes, which are written before the row and named by the row's
  next version.
- The manifest is a node below the row, named by the row's creation time. Keeper counts versions
  from 0 again when a row is created again, and a writer that read the earlier row must not write
  over the new one.
- The writer that changed a row removes the pieces of that version and earlier ones to which the
  row does not refer. A reader that misses a piece reads the row again. The next writer removes
  the leftovers of a writer that ended early.

Layout: docs/spec/keeper-ledger.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from kazoo.exceptions import NodeExistsError, NoNodeError

from catalog.ledgers.keeper.address import BodyName, KeeperPaths
from catalog.ledgers.keeper.session import (
    UNMET_CONDITIONS,
    AttemptError,
    Change,
    KeeperSession,
    Request,
    check,
    children,
    create,
    delete,
    first_failure,
    read,
    set_data,
    stat,
    sync,
    transaction,
)
from tableformat.ledger import Row, Stale
from tableformat.ledger_text import parse_row, render_row, stored_manifest

__all__ = [
    "KeeperRows",
    "RowDraft",
    "RowHead",
    "damaged",
    "json_members",
    "member",
    "members",
    "other_ledger",
    "row_head",
    "sealed",
    "sealed_members",
    "send_confirmed",
    "unsealed",
]

T = TypeVar("T")

_BEGIN: Final = b"mergeberg sha256:"
_REPAIR: Final = (
    "Restore the node from a copy, or rebuild the ledger from the table (mergeberg exports rebuild)"
)


def sealed(content: bytes) -> bytes:
    """Return content with its checksum line, as a node stores it."""
    return _BEGIN + hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def unsealed(stored: bytes, path: str) -> bytes:
    """Return a node's content without its checksum line.

    Raises:
        AttemptError: the checksum does not match.
    """
    head, _, content = stored.partition(b"\n")
    if head != sealed(content).partition(b"\n")[0]:
        raise damaged(path, "its content does not match its checksum")
    return content


def sealed_members(members: Mapping[str, Any]) -> bytes:
    """Return a JSON object as a node stores it."""
    return sealed(json.dumps(members, separators=(",", ":")).encode())


def members(stored: bytes, path: str) -> dict[str, Any]:
    """Return a node's JSON object.

    Raises:
        AttemptError: the checksum does not match, or the content is not a JSON object.
    """
    return json_members(unsealed(stored, path), path)


def json_members(content: bytes, path: str) -> dict[str, Any]:
    """Return the JSON object in a node's content, or in its first line.

    Raises:
        AttemptError: it is not a JSON object.
    """
    try:
        found = json.loads(content)
    except ValueError as error:
        raise damaged(path, repr(error)) from error
    if not isinstance(found, dict):
        raise damaged(path, "it is no JSON object")
    return found


def member(found: Mapping[str, Any], name: str, kind: type[T], path: str) -> T:
    """Return a member of a node's JSON object.

    Raises:
        AttemptError: there is no member of that name and type.
    """
    value = found.get(name)
    if not isinstance(value, kind):
        raise damaged(path, f"its member {name!r} is {value!r}")
    return value


def damaged(path: str, why: str) -> AttemptError:
    """Return the error for a node whose content cannot be trusted."""
    return AttemptError(f"the node {path} is damaged ({why})", _REPAIR)


_INLINE: Final = 64 * 1024
"""Bytes up to which a row's node holds its body, as readable text."""
MOST_BYTES: Final = 256 * 1024
"""Bytes of a piece of a larger body, and of a manifest; Keeper's limit is 1 MB."""
_ROW_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class RowHead:
    """The head of a row's node. `pieces` is 0 when the body follows it.

    `version` is Keeper's count, `written` the version that the writer intended. They differ after
    an administrator has restored a node.
    """

    version: int
    written: int
    write: str
    pieces: int
    body: bytes


@dataclass(frozen=True, slots=True)
class RowDraft:
    """A row to be written, encoded."""

    row: Row
    body: bytes
    pieces: tuple[bytes, ...]
    write: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def of(cls, row: Row) -> RowDraft:
        """Encode a row, with a new id for the write."""
        body = render_row(row).encode()
        if len(body) <= _INLINE:
            return cls(row, body, ())
        small = zlib.compress(body)
        return cls(
            row, b"", tuple(small[at : at + MOST_BYTES] for at in range(0, len(small), MOST_BYTES))
        )

    @property
    def key(self) -> str:
        """The hash of the row's key."""
        return self.row.key.hash

    @property
    def version(self) -> int:
        """The version that the row will have."""
        return self.row.version + 1

    @property
    def node(self) -> bytes:
        """The content of the row's node."""
        head = {
            "format_version": _ROW_FORMAT,
            "version": self.version,
            "write": self.write,
            "pieces": len(self.pieces),
        }
        return sealed(json.dumps(head, separators=(",", ":")).encode() + b"\n" + self.body)

    @property
    def landed(self) -> int:
        """The greatest sequence number in the row."""
        return max((x.sequence_number for x in self.row.landed), default=0)

    def row_change(self, paths: KeeperPaths) -> Change:
        """Return the change that writes the row's node."""
        path = paths.row(self.key)
        if self.row.version == 0:
            return create(path, self.node)
        # Keeper counts from 0, and -1 would match any version; `version` is at least 1 here.
        return set_data(path, self.node, self.row.version - 1)

    def manifest_change(self, paths: KeeperPaths, *, is_missing: bool) -> Change:
        """Return the change that writes the manifest.

        The node's name has the row's creation time, so it fails for another row of the key. A
        manifest `is_missing` in rows of earlier releases.
        """
        path = paths.manifest(self.key, self.row.created)
        text = stored_manifest(self.row, MOST_BYTES).encode()
        return (
            create(path, text) if is_missing or self.row.version == 0 else set_data(path, text, -1)
        )


def row_head(stored: bytes, description: Any, path: str) -> RowHead:
    """Parse a row's node and its Keeper stat.

    Raises:
        AttemptError: the node is damaged, or another release wrote it.
    """
    line, _, body = unsealed(stored, path).partition(b"\n")
    head = json_members(line, path)
    if (found := head.get("format_version")) != _ROW_FORMAT:
        raise AttemptError(
            f"the node {path} has format {found}, this release reads {_ROW_FORMAT}",
            "Use the release that wrote it",
        )
    written, pieces = (member(head, name, int, path) for name in ("version", "pieces"))
    write = member(head, "write", str, path)
    return RowHead(description.version + 1, written, write, pieces, body)


_ROW_CHANGES: Final = 2
"""Changes of a transaction, after the check of the identity, that fail if the row has changed."""


class KeeperRows:
    """Reads and writes rows of one ledger. Methods raise `AttemptError`."""

    def __init__(self, session: KeeperSession, paths: KeeperPaths) -> None:
        """Keep the session and the ledger's nodes."""
        self._session, self._paths = session, paths

    def read(self, keys: Sequence[str]) -> list[Row | None]:
        """Return current rows, None for those that do not exist."""
        found = self._heads(keys)
        return [
            None if head is None else self._row(key, head)
            for key, head in zip(keys, found, strict=True)
        ]

    def keys(self) -> list[str]:
        """Return the key hashes of all rows."""
        names = send_confirmed(self._session, self._paths, children(self._paths.rows))[0]
        return [str(name) for name in _existing(names, self._paths.rows)]

    def highest_landed(self, destination: str) -> int:
        """Return the greatest sequence number in the rows of a destination."""
        path = self._paths.landed(destination)
        (found,) = send_confirmed(self._session, self._paths, read(path))
        return _sequence_number(found, path)

    def _heads(self, keys: Sequence[str]) -> list[RowHead | None]:
        paths = [self._paths.row(key) for key in keys]
        responses = send_confirmed(self._session, self._paths, *(read(path) for path in paths))
        return [
            None if isinstance(response, NoNodeError) else row_head(response[0], response[1], path)
            for response, path in zip(responses, paths, strict=True)
        ]

    def _row(self, key: str, head: RowHead) -> Row:
        path = self._paths.row(key)
        body = head.body if not head.pieces else self._body(key, head)
        what = f"the node {path} of the ledger {self._session.shown}"
        try:
            row = parse_row(body.decode(), head.version, what=what)
        except UnicodeDecodeError as error:
            raise damaged(path, repr(error)) from error
        if row.key.hash != key:
            raise damaged(path, f"it holds the row of another key, {row.key.hash}")
        return row

    def _body(self, key: str, head: RowHead) -> bytes:
        """Return the body to which a row's head refers.

        Raises:
            AttemptError: the body is damaged; retryable if the row changed meanwhile.
        """
        names = [BodyName(head.written, head.write, n) for n in range(head.pieces)]
        paths = [self._paths.body(key, name) for name in names]
        responses = send_confirmed(self._session, self._paths, *(read(path) for path in paths))
        missing = [
            p
            for p, response in zip(paths, responses, strict=True)
            if isinstance(response, NoNodeError)
        ]
        if missing:
            (now,) = self._heads([key])
            if now is None or now.version != head.version:
                raise AttemptError(
                    "other processes keep writing the row while it is read", retryable=True
                )
            raise damaged(missing[0], "it is not there")
        pieces = [unsealed(a[0], p) for a, p in zip(responses, paths, strict=True)]
        try:
            return zlib.decompress(b"".join(pieces))
        except zlib.error as error:
            raise damaged(paths[0], str(error)) from error

    def write_attempt(self, rows: Sequence[Row]) -> Callable[[], tuple[Row | Stale, ...]]:
        """Return an attempt that writes rows; it may run again after a lost response."""
        drafts = [RowDraft.of(row) for row in rows]
        done: dict[str, Row | Stale] = {}
        without_manifest: set[str] = set()

        def attempt() -> tuple[Row | Stale, ...]:
            waiting = [draft for draft in drafts if draft.key not in done]
            bodies = self._bodies(waiting)
            self._write_pieces(waiting, bodies)
            while waiting := [draft for draft in waiting if draft.key not in done]:
                self._write_rows(waiting, done, without_manifest)
            self._sweep([d for d in drafts if d.key in bodies and isinstance(done[d.key], Row)])
            return tuple(done[draft.key] for draft in drafts)

        return attempt

    def _bodies(self, drafts: Sequence[RowDraft]) -> set[str]:
        """Return the keys that have, or once had, piece nodes."""
        requests = [stat(self._paths.bodies(draft.key)) for draft in drafts]
        responses = send_confirmed(self._session, self._paths, *requests)
        return {draft.key for draft, found in zip(drafts, responses, strict=True) if found}

    def _write_pieces(self, drafts: Sequence[RowDraft], bodies: set[str]) -> None:
        large = [draft for draft in drafts if draft.pieces]
        wanted = [create(self._paths.bodies(d.key), b"") for d in large if d.key not in bodies]
        for draft in large:
            for number, piece in enumerate(draft.pieces):
                name = BodyName(draft.version, draft.write, number)
                wanted.append(create(self._paths.body(draft.key, name), sealed(piece)))
        for response in self._session.send(*(transaction(one) for one in wanted)):
            failure = first_failure(response)
            # An existing piece is ours, because its name has the write's id: a response was lost.
            if failure is not None and not isinstance(failure[1], NodeExistsError):
                raise AttemptError(
                    f"the nodes of its large rows cannot be written ({failure[1]!r})",
                    "Another client removed some that the ledger needs; rebuild it from the table "
                    "(mergeberg exports rebuild)",
                )

    def remove_attempt(self, row: Row) -> Callable[[], Stale | None]:
        """Return an attempt that removes a row; it may run again after a lost response."""
        key, path = row.key.hash, self._paths.row(row.key.hash)
        manifest = self._paths.manifest(key, row.created)

        def attempt() -> Stale | None:
            (head,) = self._heads([key])
            if head is None or self._row(key, head).created != row.created:
                return None
            if head.version != row.version:
                return Stale(head.version)
            (found,) = self._session.send(stat(manifest))
            below = [] if found is None else [delete(manifest)]
            request = transaction(check(self._paths.mark), *below, delete(path, row.version - 1))
            (responses,) = self._session.send(request)
            if (failure := first_failure(responses)) is not None:
                if failure[0] == 0:
                    raise other_ledger()
                raise AttemptError("other processes keep writing the row", retryable=True)
            self._sweep_all(key)
            return None

        return attempt

    def _sweep_all(self, key: str) -> None:
        """Remove the pieces of a removed row, and their parent."""
        bodies = self._paths.bodies(key)
        try:
            (names,) = self._session.send(children(bodies))
            if isinstance(names, UNMET_CONDITIONS):
                return
            gone = [*(f"{bodies}/{name}" for name in names), bodies]
            self._session.send(*(transaction(delete(one)) for one in gone))
        except AttemptError:
            # The first write of a new row of this key removes them.
            return

    def _write_rows(
        self, drafts: Sequence[RowDraft], done: dict[str, Row | Stale], without_manifest: set[str]
    ) -> None:
        """Write rows and the sequence numbers of their destinations, one transaction for each row.

        Rows `without_manifest` were written by an earlier release.
        """
        destinations = sorted({d.row.key.destination for d in drafts if d.row.landed})
        paths = [self._paths.landed(one) for one in destinations]
        known = dict(zip(destinations, self._session.send(*map(read, paths)), strict=True))
        raised: dict[str, int] = {}
        sent: list[tuple[RowDraft, Request]] = []
        for draft in drafts:
            writes = (
                draft.row_change(self._paths),
                draft.manifest_change(self._paths, is_missing=draft.key in without_manifest),
            )
            changes = self._with_landed(draft, writes, known, raised)
            if changes is not None:
                sent.append((draft, transaction(check(self._paths.mark), *changes)))
        responses = self._session.send(*(request for _, request in sent))
        refused: list[RowDraft] = []
        missing_folders: set[str] = set()
        for (draft, _), response in zip(sent, responses, strict=True):
            failure = first_failure(response)
            if failure is None:
                done[draft.key] = replace(draft.row, version=draft.version)
                continue
            changed, why = failure
            if changed == 0:
                raise other_ledger()
            if isinstance(why, NoNodeError):
                missing_folders.add(
                    self._paths.rows if changed <= _ROW_CHANGES else self._paths.destinations
                )
            if changed <= _ROW_CHANGES:
                refused.append(draft)
        if missing_folders:
            self._check_folders(sorted(missing_folders))
        if refused:
            self._resolve_refused(refused, done, without_manifest)

    def _check_folders(self, folders: Sequence[str]) -> None:
        """Raise if a parent node is missing, so that nothing can be created below it."""
        responses = send_confirmed(self._session, self._paths, *map(stat, folders))
        for folder, found in zip(folders, responses, strict=True):
            if found is None:
                raise damaged(folder, "it is not there")

    def _resolve_refused(
        self, refused: Sequence[RowDraft], done: dict[str, Row | Stale], without_manifest: set[str]
    ) -> None:
        """Separate our own writes whose responses were lost from those of other writers.

        A row of an earlier release has no manifest node with its creation time; its body has it.
        """
        for draft, head in zip(refused, self._heads([d.key for d in refused]), strict=True):
            if head is not None and head.write == draft.write:
                done[draft.key] = replace(draft.row, version=draft.version)
            elif (
                head is not None
                and head.version == draft.row.version
                and draft.key not in without_manifest
                and self._row(draft.key, head).created == draft.row.created
            ):
                without_manifest.add(draft.key)
            else:
                done[draft.key] = Stale(head.version if head else None)

    def _with_landed(
        self,
        draft: RowDraft,
        writes: tuple[Change, ...],
        known: dict[str, Any],
        raised: dict[str, int],
    ) -> tuple[Change, ...] | None:
        """Return all changes for a row; None when it waits for another row of its destination.

        The first row of a destination with a greater number raises the stored one. Rows after it
        with no greater number check that this was done.
        """
        destination = draft.row.key.destination
        if not draft.row.landed:
            return writes
        path, found = self._paths.landed(destination), known[destination]
        if draft.landed <= _sequence_number(found, path):
            return writes
        version = -1 if isinstance(found, NoNodeError) else int(found[1].version)
        if destination in raised:
            same = draft.landed <= raised[destination]
            return (*writes, lambda made: made.check(path, version + 1)) if same else None
        raised[destination] = draft.landed
        data = sealed_members({"destination": destination, "sequence_number": draft.landed})
        return (*writes, create(path, data) if version < 0 else set_data(path, data, version))

    def _sweep(self, written: Sequence[RowDraft]) -> None:
        """Remove pieces to which no row can refer any more."""
        if not written:
            return
        try:
            listed = self._session.send(*(children(self._paths.bodies(d.key)) for d in written))
            gone = [
                delete(self._paths.body(draft.key, name))
                for draft, names in zip(written, listed, strict=True)
                for name in _pieces(_existing(names, self._paths.bodies(draft.key)))
                if name.is_left_over(draft.version, draft.write)
            ]
            self._session.send(*(transaction(one) for one in gone))
        except AttemptError:
            # The rows are written; the next write of each removes the rest.
            return


def send_confirmed(session: KeeperSession, paths: KeeperPaths, *requests: Request) -> list[Any]:
    """Send requests after a `sync`, and check that the ledger is still the one that was opened.

    Raises:
        AttemptError: the ledger was replaced, or another release took it over.
    """
    _, mark, *responses = session.send(sync(paths.mark), stat(paths.mark), *requests)
    if mark is None:
        raise other_ledger()
    return responses


def other_ledger() -> AttemptError:
    """Return the error for a ledger that was replaced since it was opened."""
    return AttemptError(
        "it was removed, or another release took it over, after it was opened",
        "Run it again to see its present state",
    )


def _existing(response: Any, path: str) -> Any:
    if isinstance(response, UNMET_CONDITIONS):
        raise damaged(path, "it is not there")
    return response


def _pieces(names: Sequence[str]) -> list[BodyName]:
    """Parse the names of pieces; skip foreign nodes."""
    pieces = []
    for name in names:
        with contextlib.suppress(ValueError):
            pieces.append(BodyName.parse(name))
    return pieces


def _sequence_number(response: Any, path: str) -> int:
    if isinstance(response, NoNodeError):
        return 0
    return member(members(response[0], path), "sequence_number", int, path)
