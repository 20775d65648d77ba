"""An export key's state table, cell by cell: the words of `TABLE` stand for what `OUTCOMES` says.

A line is a state of the key's ledger row and what became of its last export in main; `rows` are in
main when nothing is exported. The columns are what the source partition holds now, compared with
what was exported, or begun, last: 12 rows in two parts, in the lines of a replacement 13.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["CELLS", "Cell"]

TABLE: Final = """
state       | main         | rows | same       | more       | fewer      | none      | merged     | gone
never       | nothing      |    0 | first      |            |            | no rows   |            | unknown
alive       | nothing      |    0 | busy       | busy       | busy       | busy      | busy       | busy
alive       | whole        |   12 | busy       | busy       | busy       | busy      | busy       | busy
alive       | unsettled    |   12 | busy       | busy       | busy       | busy      | busy       | busy
dead        | nothing      |    0 | resume     | resume old | resume old | resume old| resume     | resume, gone
dead        | whole        |   12 | refill     | refill old | shrinks    | refill old| refill     | exported
dead        | unsettled    |   12 | in main    | differs    | differs    | differs   | in main    | exported
interrupted | nothing      |    0 | resume     | resume old | resume old | resume old| resume     | resume, gone
interrupted | whole        |   12 | refill     | refill old | shrinks    | refill old| refill     | exported
interrupted | unsettled    |   12 | in main    | differs    | differs    | differs   | in main    | exported
killed      | nothing      |    0 | export     | export     | export     | no rows   | export     | unknown
killed      | whole        |   12 | replace    | replace    | shrinks    | empties   | replace    | exported
failed      | nothing      |    0 | export     | export     | export     | no rows   | export     | unknown
failed      | whole        |   12 | replace    | replace    | shrinks    | empties   | replace    | exported
inside TTL  | whole        |   12 | in main    | differs    | differs    | differs   | in main    | exported
inside TTL  | rolled back  |    0 | moved      | differs    | differs    | differs   | moved      | lost, moved
inside TTL  | earlier      |    7 | earlier    | differs S3 | differs S3 | differs S3| earlier    | lost, earlier
inside TTL  | compacted    |   12 | changed    | differs    | differs    | differs   | changed    | lost, changed
inside TTL  | overwritten  |   12 | removed    | differs    | differs    | differs   | removed    | lost, removed
inside TTL  | rows deleted |   11 | changed    | differs    | differs    | differs   | changed    | lost, changed
inside TTL  | gone         |    0 | removed    | differs    | differs    | differs   | removed    | lost, removed
inside TTL  | unsettled    |   12 | in main    | differs    | differs    | differs   | in main    | exported
TTL over    | whole        |   12 | unchanged  | replace    | shrinks    | empties   | merged     | exported
TTL over    | rolled back  |    0 | moved      | export     | export     | no rows   | moved      | lost, moved
TTL over    | earlier      |    7 | earlier    | replace    | replace    | empties   | earlier    | lost, earlier
TTL over    | compacted    |   12 | changed    | changed    | changed    | changed   | changed    | lost, changed
TTL over    | overwritten  |   12 | foreign    | foreign    | foreign    | no rows   | foreign    | lost, removed
TTL over    | rows deleted |   11 | changed    | changed    | changed    | changed   | changed    | lost, changed
TTL over    | gone         |    0 | export     | export     | export     | no rows   | export     | lost, removed
TTL over    | unsettled    |   12 | in main    | differs    | differs    | differs   | in main    | exported
forced      | whole        |   12 | replace    | replace    | replace    | empties   | replace    | exported
forced      | rolled back  |    0 | export     | export     | export     | no rows   | export     | lost, moved
forced      | earlier      |    7 | replace    | replace    | replace    | empties   | replace    | lost, earlier
forced      | compacted    |   12 | changed    | changed    | changed    | changed   | changed    | lost, changed
forced      | overwritten  |   12 | foreign    | foreign    | foreign    | no rows   | foreign    | lost, removed
forced      | rows deleted |   11 | changed    | changed    | changed    | changed   | changed    | lost, changed
forced      | gone         |    0 | export     | export     | export     | no rows   | export     | lost, removed
forced      | unsettled    |   12 | replace    | replace    | replace    | empties   | replace    | exported
emptied     | whole        |   12 |            |            |            | take out  |            | take out
emptied     | rolled back  |    0 |            |            |            | no rows   |            | lost, moved
emptied     | earlier      |    7 |            |            |            | take out  |            | take out
emptied     | compacted    |   12 |            |            |            | changed   |            | lost, changed
emptied     | overwritten  |   12 |            |            |            | no rows   |            | lost, removed
emptied     | rows deleted |   11 |            |            |            | changed   |            | lost, changed
emptied     | gone         |    0 |            |            |            | no rows   |            | lost, removed
emptied     | unsettled    |   12 |            |            |            | take out  |            | take out
everything  | whole        |   12 | replace    | replace    | replace    | no place  | replace    | exported
everything  | rolled back  |    0 | export     | export     | export     | no place  | export     | lost, moved
everything  | earlier      |    7 | replace    | replace    | replace    | no place  | replace    | lost, earlier
everything  | compacted    |   12 | with others| with others| with others| no place  | with others| lost, changed
everything  | overwritten  |   12 | with others| with others| with others| no place  | with others| lost, removed
everything  | rows deleted |   11 | with others| with others| with others| no place  | with others| lost, changed
everything  | gone         |    0 | export     | export     | export     | no place  | export     | lost, removed
everything  | unsettled    |   12 | replace    | replace    | replace    | no place  | replace    | exported
"""  # noqa: E501  a line of the table is a line
"""`emptied` is `forced` with --allow-empty, `everything` with --replace-partition; `none` is a
partition whose rows are all deleted."""

_PARTS: Final = {"more": "15 in 3", "fewer": "7 in 1", "none": "12 in 2"}
_AGAIN: Final = (
    "Exporting it again could double rows, or undo what was done to them. A dry run with --force "
    "--replace-partition shows how many rows would leave the lake partition, and how many would "
    "come. After DROP PARTITION, which takes all rows of the lake partition out of main, also "
    "those of others, it can be exported again."
)
_LOST: Final = "the source partition no longer exists; "
_MOVED: Final = "It landed in snapshot S2, and main was moved away from it since."
_EARLIER: Final = (
    "It landed in snapshot S3, and main was moved away from it since: it holds the export of "
    "snapshot S2."
)
_CHANGED: Final = (
    "It landed in snapshot S2; its files were changed since by snapshot S3 (overwrite)."
)
_REMOVED: Final = "It landed in snapshot S2, and its files were removed by snapshot S3 (delete)."
_DIFFERS: Final = (
    "the source partition differs from what was exported in snapshot {last}: 12 rows in 2 parts "
    "then, {parts} now, and the export is younger than its manifest TTL of 180 s. Wait, or use "
    "--force to replace it."
)
_FROZEN: Final = "exported from the snapshot of an interrupted run, with {frozen} rows; the"
_OLD: Final = _FROZEN + " source has {listed} now. Export it again after its manifest TTL"
_SHRINKS: Final = (
    "main holds {rows} rows of it, the source {now} now: replacing them would lose {less}. Use "
    "{options} if they may be removed."
)

OUTCOMES: Final = {
    "unknown": (
        "not found",
        (
            "Cannot export partition p1 of db.t: it has no active parts and was never exported. It "
            "has 1 partition: p2. List them with `mergeberg partitions db.t`."
        ),
    ),
    "busy": ("in_progress", "process PID on host, has worked on it for 0 s"),
    "no rows": ("empty", "all its rows are deleted"),
    "in main": ("already_exported", "12 rows in the lake, snapshot S2."),
    "exported": ("already_exported", _LOST + "12 rows in the lake, snapshot S2."),
    "unchanged": ("unchanged", "12 rows in the lake, snapshot S2."),
    "merged": ("unchanged", "its parts were merged; 12 rows in the lake, snapshot S2."),
    "differs": ("refused", _DIFFERS),
    "differs S3": ("refused", _DIFFERS),
    "shrinks": ("refused", _SHRINKS),
    "empties": ("refused", _SHRINKS),
    "moved": ("refused", f"{_MOVED} Use --force to export it again."),
    "earlier": ("refused", f"{_EARLIER} Use --force to export it again."),
    "changed": ("refused", f"{_CHANGED} {_AGAIN}"),
    "removed": (
        "refused",
        f"{_REMOVED} Export it again after its manifest TTL, or with --force.",
    ),
    "foreign": (
        "refused",
        (
            "Cannot export into this lake partition: main has 1 file with 12 rows there that no "
            f"export of this ledger wrote, added by snapshot S4 (append). {_REMOVED} They may have "
            "its rows: compare them. If they are other rows, export alongside them with --force "
            "--overwrite-file-if-exists; they stay. If they are its rows, run DROP PARTITION first."
        ),
    ),
    "no place": (
        "refused",
        (
            "Cannot replace the whole lake partition: the source partition has no rows, so its "
            "lake partition is unknown. Use --force --allow-empty without --replace-partition, or "
            "delete the rows in the lake."
        ),
    ),
    "with others": (
        "replaced",
        "with what it replaced 1 file with {rows} rows that others wrote left main",
    ),
    "lost, moved": ("refused", _LOST + _MOVED),
    "lost, earlier": ("refused", _LOST + _EARLIER),
    "lost, changed": ("refused", _LOST + _CHANGED),
    "lost, removed": ("refused", _LOST + _REMOVED),
    "first": ("committed", ""),
    "export": ("committed", ""),
    "replace": ("replaced", ""),
    "take out": ("replaced", ""),
    "resume": ("committed", ""),
    "resume old": ("committed", _OLD),
    "resume, gone": ("committed", _FROZEN + " source partition no longer exists"),
    "refill": ("replaced", ""),
    "refill old": ("replaced", _OLD),
}
"""By word: the status, and the message."""
_RESUMED: Final = ("resume", "resume old", "resume, gone", "refill", "refill old")
_MADE: Final = ("first", "export", "replace", "with others", "take out", *_RESUMED)
_NO_FILE: Final = ("take out", *_RESUMED)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: where it is, and what is expected; `snapshots` are new, `files` were written."""

    of_key: str
    main: str
    content: str
    status: str
    says: str
    rows: int
    snapshots: int
    files: int

    @property
    def prepared(self) -> str:
        """The state that its row is brought into: how the command is called changes no row."""
        completed = ("inside TTL", "TTL over", "forced", "emptied", "everything")
        return "completed" if self.of_key in completed else self.of_key


def _cell(of_key: str, main: str, before: int, content: str, word: str) -> Cell:
    status, says = OUTCOMES[word]
    begun = of_key in ("dead", "interrupted", "killed", "failed") and main == "whole"
    frozen = 12 + begun
    # A source lists rows that are deleted lightly, too.
    listed = {"fewer": 7, "more": 15 + begun}.get(content, frozen)
    now = frozen if word in _RESUMED else 0 if content == "none" or word == "take out" else listed
    made = word in _MADE
    text = says.format(
        last=word.removeprefix("differs").strip() or "S2",
        parts=_PARTS.get(content),
        listed=listed,
        frozen=frozen,
        rows=before,
        now=now,
        less=before - now,
        options="--force --allow-empty" if word == "empties" else "--force",
    )
    # The first export gives a new table its first snapshot, which is empty, whatever comes of it.
    first = of_key == "never" and word != "unknown"
    return Cell(
        of_key,
        main,
        content,
        status,
        text,
        now if made else before,
        made + first,
        int(made and word not in _NO_FILE),
    )


def _cells() -> list[Cell]:
    head, *lines = ([c.strip() for c in line.split("|")] for line in TABLE.strip().splitlines())
    return [
        _cell(of_key, main, int(rows), content, word)
        for of_key, main, rows, *words in lines
        for content, word in zip(head[3:], words, strict=True)
        if word
    ]


CELLS: Final = _cells()
