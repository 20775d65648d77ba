"""Stores the rows of a ledger in Keeper, one node each, with compare-and-set on Keeper's version.

- The content of every node is a line with a checksum and the data that it covers.
- A row node begins with `write`, a fresh id by which a writer whose response was lost finds its
  own write, and with the number of pieces. A small body follows it. A large body is compressed
  and cut into piece nodes, which are written before the row and named by the row's next version.
- The manifest is a node below the row, named by the creation time of the row. Keeper counts
  versions from 0 again when a row is created again, and a holder of the earlier row must not
  write over it.
- The writer that changed the row removes pieces of that version and earlier ones which the row
  does not refer to. A reader that misses a piece reads the row again. The next writer removes
  the leftovers of a writer that died.

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

from catalog.ledgers.keeper.paths import BodyName, KeeperPaths
from catalog.ledgers.keeper.session import (
    IN_THE_WAY,
    Change,
    KeeperSession,
    Request,
    Trouble,
    changing,
    check,
    children,
    create,
    delete,
    first_failure,
    read,
    set_data,
    stat,
    sync,
)
from tableformat.ledger import Row, Stale
from tableformat.ledger_text import parse_row, render_row
from tableformat.manifest import stored_manifest

__all__ = [
    "KeeperRows",
    "RowDraft",
    "RowHead",
    "confirmed",
    "damaged",
    "json_members",
    "member",
    "members",
    "other_ledger",
    "row_head",
    "sealed",
    "sealed_members",
    "unsealed",
]

T = TypeVar("T")

_BEGIN: Final = b"mergeberg sha256:"
_MEND: Final = (
    "Restore the node from a copy, or rebuild the ledger from the table (mergeberg exports rebuild)"
)


def sealed(content: bytes) -> bytes:
    """Return what is stored."""
    return _BEGIN + hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def unsealed(stored: bytes, path: str) -> bytes:
    """Return the content of a node.

    Raises:
        Trouble: it is damaged.
    """
    head, _, content = stored.partition(b"\n")
    if head != sealed(content).partition(b"\n")[0]:
        raise damaged(path, "its content is not what its checksum was made of")
    return content


def sealed_members(members: Mapping[str, Any]) -> bytes:
    """Return what is stored for a JSON object."""
    return sealed(json.dumps(members, separators=(",", ":")).encode())


def members(stored: bytes, path: str) -> dict[str, Any]:
    """Return the JSON object of a node.

    Raises:
        Trouble: it is damaged, or is none.
    """
    return json_members(unsealed(stored, path), path)


def json_members(content: bytes, path: str) -> dict[str, Any]:
    """Return the JSON object that the content of a node is, or begins with.

    Raises:
        Trouble: it is none.
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
        Trouble: it has none of that name and kind.
    """
    value = found.get(name)
    if not isinstance(value, kind):
        raise damaged(path, f"its member {name!r} is {value!r}")
    return value


def damaged(path: str, why: str) -> Trouble:
    """Return why nothing can be said of what a node holds."""
    return Trouble(f"the node {path} is damaged ({why})", _MEND)


_INLINE: Final = 64 * 1024
"""Bytes up to which a body stands in its row's node, as a text that people can read."""
MOST_BYTES: Final = 256 * 1024
"""Bytes of a piece of a larger one, and of a manifest, far below the 1 MB that Keeper takes."""
_ROW_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class RowHead:
    """What the node of a row says. `pieces` is 0 when the body stands behind it.

    `version` is what Keeper counts, `written` what it was to be: an administrator who puts a node
    back moves the one and not the other.
    """

    version: int
    written: int
    write: str
    pieces: int
    body: bytes


@dataclass(frozen=True, slots=True)
class RowDraft:
    """A row that is to be written, and how."""

    row: Row
    body: bytes
    pieces: tuple[bytes, ...]
    write: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def of(cls, row: Row) -> RowDraft:
        """Return how a row is written, by a write that is new."""
        body = render_row(row).encode()
        if len(body) <= _INLINE:
            return cls(row, body, ())
        small = zlib.compress(body)
        return cls(
            row, b"", tuple(small[at : at + MOST_BYTES] for at in range(0, len(small), MOST_BYTES))
        )

    @property
    def key(self) -> str:
        """The hash of its key."""
        return self.row.key.hash

    @property
    def version(self) -> int:
        """What the row will have."""
        return self.row.version + 1

    @property
    def node(self) -> bytes:
        """What its node says."""
        head = {
            "format_version": _ROW_FORMAT,
            "version": self.version,
            "write": self.write,
            "pieces": len(self.pieces),
        }
        return sealed(json.dumps(head, separators=(",", ":")).encode() + b"\n" + self.body)

    @property
    def landed(self) -> int:
        """The greatest sequence number that it knows."""
        return max((x.sequence_number for x in self.row.landed), default=0)

    def moving(self, paths: KeeperPaths) -> Change:
        """Return the change that makes the row what this is."""
        path = paths.row(self.key)
        if self.row.version == 0:
            return create(path, self.node)
        # Keeper counts from 0. It takes -1 for any version, which no row is written over.
        return set_data(path, self.node, self.row.version - 1)

    def manifesting(self, paths: KeeperPaths, *, anew: bool) -> Change:
        """Return the change that writes the manifest, which no other row of the key has.

        `anew`: the row has none yet, as those of earlier releases.
        """
        path = paths.manifest(self.key, self.row.created)
        text = stored_manifest(self.row, MOST_BYTES).encode()
        return create(path, text) if anew or self.row.version == 0 else set_data(path, text, -1)


def row_head(stored: bytes, description: Any, path: str) -> RowHead:
    """Read the node of a row, with what Keeper says of the node.

    Raises:
        Trouble: it is damaged, or of another release.
    """
    line, _, body = unsealed(stored, path).partition(b"\n")
    head = json_members(line, path)
    if (found := head.get("format_version")) != _ROW_FORMAT:
        raise Trouble(
            f"the node {path} has format {found}, this release reads {_ROW_FORMAT}",
            "Use the release that wrote it",
        )
    written, pieces = (member(head, name, int, path) for name in ("version", "pieces"))
    write = member(head, "write", str, path)
    return RowHead(description.version + 1, written, write, pieces, body)


_WRITES: Final = 2
"""How many changes of a request write a row; where one fails, the row is another by now."""


class KeeperRows:
    """Reads and writes rows of one ledger. What it raises is `Trouble`."""

    def __init__(self, session: KeeperSession, paths: KeeperPaths) -> None:
        """Keep how to ask, and where."""
        self._session, self._paths = session, paths

    def read(self, keys: Sequence[str]) -> list[Row | None]:
        """Return rows as they are now, None for those that are not there."""
        found = self._heads(keys)
        return [
            None if head is None else self._row(key, head)
            for key, head in zip(keys, found, strict=True)
        ]

    def keys(self) -> list[str]:
        """Return the key hashes of all rows."""
        names = confirmed(self._session, self._paths, children(self._paths.rows))[0]
        return [str(name) for name in _there(names, self._paths.rows)]

    def highest_landed(self, destination: str) -> int:
        """Return the greatest sequence number that any row of a destination knows."""
        path = self._paths.landed(destination)
        (found,) = confirmed(self._session, self._paths, read(path))
        return _sequence_number(found, path)

    def _heads(self, keys: Sequence[str]) -> list[RowHead | None]:
        paths = [self._paths.row(key) for key in keys]
        answers = confirmed(self._session, self._paths, *(read(path) for path in paths))
        return [
            None if isinstance(answer, NoNodeError) else row_head(answer[0], answer[1], path)
            for answer, path in zip(answers, paths, strict=True)
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
        """Return the body that a row refers to.

        Raises:
            Trouble: it is damaged; or the row has moved on meanwhile, which passes.
        """
        names = [BodyName(head.written, head.write, n) for n in range(head.pieces)]
        paths = [self._paths.body(key, name) for name in names]
        answers = confirmed(self._session, self._paths, *(read(path) for path in paths))
        gone = [
            p for p, answer in zip(paths, answers, strict=True) if isinstance(answer, NoNodeError)
        ]
        if gone:
            (now,) = self._heads([key])
            if now is None or now.version != head.version:
                raise Trouble("the row is written again and again while it is read", passes=True)
            raise damaged(gone[0], "it is not there")
        pieces = [unsealed(a[0], p) for a, p in zip(answers, paths, strict=True)]
        try:
            return zlib.decompress(b"".join(pieces))
        except zlib.error as error:
            raise damaged(paths[0], str(error)) from error

    def writing(self, rows: Sequence[Row]) -> Callable[[], tuple[Row | Stale, ...]]:
        """Return what writes rows, and may be done again when an answer was lost."""
        drafts = [RowDraft.of(row) for row in rows]
        done: dict[str, Row | Stale] = {}
        unsaid: set[str] = set()

        def attempt() -> tuple[Row | Stale, ...]:
            waiting = [draft for draft in drafts if draft.key not in done]
            bodies = self._bodies(waiting)
            self._write_pieces(waiting, bodies)
            while waiting := [draft for draft in waiting if draft.key not in done]:
                self._move(waiting, done, unsaid)
            self._sweep([d for d in drafts if d.key in bodies and isinstance(done[d.key], Row)])
            return tuple(done[draft.key] for draft in drafts)

        return attempt

    def _bodies(self, drafts: Sequence[RowDraft]) -> set[str]:
        """Return the keys whose bodies have, or had, nodes of their own."""
        asked = [stat(self._paths.bodies(draft.key)) for draft in drafts]
        answers = confirmed(self._session, self._paths, *asked)
        return {draft.key for draft, found in zip(drafts, answers, strict=True) if found}

    def _write_pieces(self, drafts: Sequence[RowDraft], bodies: set[str]) -> None:
        large = [draft for draft in drafts if draft.pieces]
        wanted = [create(self._paths.bodies(d.key), b"") for d in large if d.key not in bodies]
        for draft in large:
            for number, piece in enumerate(draft.pieces):
                name = BodyName(draft.version, draft.write, number)
                wanted.append(create(self._paths.body(draft.key, name), sealed(piece)))
        for answer in self._session.ask(*(changing(one) for one in wanted)):
            failure = first_failure(answer)
            # One that is there already is ours: an answer was lost.
            if failure is not None and not isinstance(failure[1], NodeExistsError):
                raise Trouble(
                    f"the nodes of its large rows cannot be written ({failure[1]!r})",
                    "Somebody has removed some that the ledger needs; rebuild it from the table "
                    "(mergeberg exports rebuild)",
                )

    def removing(self, row: Row) -> Callable[[], Stale | None]:
        """Return what removes a row, and may be done again when an answer was lost."""
        key, path = row.key.hash, self._paths.row(row.key.hash)
        manifest = self._paths.manifest(key, row.created)

        def attempt() -> Stale | None:
            (head,) = self._heads([key])
            if head is None or self._row(key, head).created != row.created:
                return None
            if head.version != row.version:
                return Stale(head.version)
            (found,) = self._session.ask(stat(manifest))
            below = [] if found is None else [delete(manifest)]
            asked = changing(check(self._paths.mark), *below, delete(path, row.version - 1))
            (answers,) = self._session.ask(asked)
            if (failure := first_failure(answers)) is not None:
                if failure[0] == 0:
                    raise other_ledger()
                raise Trouble("others write the row all the time", passes=True)
            self._sweep_all(key)
            return None

        return attempt

    def _sweep_all(self, key: str) -> None:
        """Remove the pieces of a row that is gone, and what they are below."""
        bodies = self._paths.bodies(key)
        try:
            (names,) = self._session.ask(children(bodies))
            if isinstance(names, IN_THE_WAY):
                return
            gone = [*(f"{bodies}/{name}" for name in names), bodies]
            self._session.ask(*(changing(delete(one)) for one in gone))
        except Trouble:
            # Whoever makes the row again removes them with its first write.
            return

    def _move(
        self, drafts: Sequence[RowDraft], done: dict[str, Row | Stale], unsaid: set[str]
    ) -> None:
        """Move rows, together with what is known of their destinations, in one turn.

        Rows of which it is `unsaid` when they were made are of an earlier release.
        """
        destinations = sorted({d.row.key.destination for d in drafts if d.row.landed})
        paths = [self._paths.landed(one) for one in destinations]
        known = dict(zip(destinations, self._session.ask(*map(read, paths)), strict=True))
        raised: dict[str, int] = {}
        sent: list[tuple[RowDraft, Request]] = []
        for draft in drafts:
            writes = (
                draft.moving(self._paths),
                draft.manifesting(self._paths, anew=draft.key in unsaid),
            )
            changes = self._with_landed(draft, writes, known, raised)
            if changes is not None:
                sent.append((draft, changing(check(self._paths.mark), *changes)))
        answers = self._session.ask(*(request for _, request in sent))
        refused: list[RowDraft] = []
        lacking: set[str] = set()
        for (draft, _), answer in zip(sent, answers, strict=True):
            failure = first_failure(answer)
            if failure is None:
                done[draft.key] = replace(draft.row, version=draft.version)
                continue
            changed, why = failure
            if changed == 0:
                raise other_ledger()
            if isinstance(why, NoNodeError):
                lacking.add(self._paths.rows if changed <= _WRITES else self._paths.destinations)
            if changed <= _WRITES:
                refused.append(draft)
        if lacking:
            self._check_there(sorted(lacking))
        if refused:
            self._tell_apart(refused, done, unsaid)

    def _check_there(self, folders: Sequence[str]) -> None:
        """Tell a node that is not there from one below which nothing can be made."""
        answers = confirmed(self._session, self._paths, *map(stat, folders))
        for folder, found in zip(folders, answers, strict=True):
            if found is None:
                raise damaged(folder, "it is not there")

    def _tell_apart(
        self, refused: Sequence[RowDraft], done: dict[str, Row | Stale], unsaid: set[str]
    ) -> None:
        """Tell writes of ours whose answers were lost from those of others.

        A row of an earlier release has no manifest that says when it was made: its own text does.
        """
        for draft, head in zip(refused, self._heads([d.key for d in refused]), strict=True):
            if head is not None and head.write == draft.write:
                done[draft.key] = replace(draft.row, version=draft.version)
            elif (
                head is not None
                and head.version == draft.row.version
                and draft.key not in unsaid
                and self._row(draft.key, head).created == draft.row.created
            ):
                unsaid.add(draft.key)
            else:
                done[draft.key] = Stale(head.version if head else None)

    def _with_landed(
        self,
        draft: RowDraft,
        writes: tuple[Change, ...],
        known: dict[str, Any],
        raised: dict[str, int],
    ) -> tuple[Change, ...] | None:
        """Return all that changes with a row; None when it waits for another of its destination.

        The first of a destination that knows a greater number notes it, and those behind it that
        know no greater one say that it has to be noted.
        """
        destination = draft.row.key.destination
        if not draft.row.landed:
            return writes
        path, found = self._paths.landed(destination), known[destination]
        if draft.landed <= _sequence_number(found, path):
            return writes
        there = -1 if isinstance(found, NoNodeError) else int(found[1].version)
        if destination in raised:
            same = draft.landed <= raised[destination]
            return (*writes, lambda made: made.check(path, there + 1)) if same else None
        raised[destination] = draft.landed
        data = sealed_members({"destination": destination, "sequence_number": draft.landed})
        return (*writes, create(path, data) if there < 0 else set_data(path, data, there))

    def _sweep(self, written: Sequence[RowDraft]) -> None:
        """Remove the pieces that nothing can refer to any more."""
        if not written:
            return
        try:
            listed = self._session.ask(*(children(self._paths.bodies(d.key)) for d in written))
            gone = [
                delete(self._paths.body(draft.key, name))
                for draft, names in zip(written, listed, strict=True)
                for name in _pieces(_there(names, self._paths.bodies(draft.key)))
                if name.is_left_over(draft.version, draft.write)
            ]
            self._session.ask(*(changing(one) for one in gone))
        except Trouble:
            # The rows are written; the next write of each removes what is left.
            return


def confirmed(session: KeeperSession, paths: KeeperPaths, *requests: Request) -> list[Any]:
    """Return answers that are of this ledger, and of now.

    Raises:
        Trouble: the ledger is another one, or of another release, by now.
    """
    _, mark, *answers = session.ask(sync(paths.mark), stat(paths.mark), *requests)
    if mark is None:
        raise other_ledger()
    return answers


def other_ledger() -> Trouble:
    """Return why nothing is asked any more of the ledger that was opened."""
    return Trouble(
        "it was removed, or another release has taken it over, since it was opened",
        "Run the command again, which says what is there now",
    )


def _there(answer: Any, path: str) -> Any:
    if isinstance(answer, IN_THE_WAY):
        raise damaged(path, "it is not there")
    return answer


def _pieces(names: Sequence[str]) -> list[BodyName]:
    """Return the names of pieces; what somebody else has put there is left alone."""
    pieces = []
    for name in names:
        with contextlib.suppress(ValueError):
            pieces.append(BodyName.parse(name))
    return pieces


def _sequence_number(answer: Any, path: str) -> int:
    if isinstance(answer, NoNodeError):
        return 0
    return member(members(answer[0], path), "sequence_number", int, path)
