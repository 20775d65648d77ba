"""Ledger rows as any run may leave them, and events."""

from __future__ import annotations

from hypothesis import strategies as st

from tableformat.history import Counter, Event, EventKind
from tableformat.ledger import (
    Archived,
    Claim,
    DetachedPart,
    ExportedPart,
    GivesWay,
    Held,
    Key,
    Landed,
    Record,
    Rewritten,
    Row,
    State,
    StatementKind,
    Stop,
)
from tableformat.mergetree.table import KeeperNode

__all__ = ["events", "keeper_nodes", "ledger_rows"]

_NUMBERS = st.integers(0, 2**63 - 1)
_SIZES = st.integers(0, 2**62 - 1)
"""Bytes, which those of another export are added to."""
_TEXTS = st.text(max_size=20)
_DIGITS = st.integers(1, 2**63 - 1).map(str)
_PATHS = st.lists(st.sampled_from(["/lake/a.parquet", "/lake/b.parquet", "/lake/ü.parquet"])).map(
    lambda paths: tuple(dict.fromkeys(paths))
)
_PARTS = st.lists(
    st.builds(
        ExportedPart, _TEXTS, _TEXTS, _NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS, _PATHS
    ),
    max_size=3,
).map(tuple)
# Sums of them are numbers of 64 bits, as those of rows are.
_ROWS = st.integers(0, 2**61)
_HOLDS = st.none() | st.lists(st.builds(Held, _DIGITS, _NUMBERS, _ROWS), max_size=2).map(tuple)
_KINDS = st.none() | st.sampled_from(StatementKind)
_CLAIMS = st.builds(
    Claim,
    epoch=_NUMBERS,
    transaction_id=_DIGITS,
    fingerprint=_TEXTS,
    begun=_NUMBERS,
    parts=_PARTS,
    staging=st.lists(_TEXTS, max_size=2).map(tuple),
    bytes_ratio=st.floats(0.01, 100),
    rows=_NUMBERS,
    data_files=_NUMBERS,
    bytes=_SIZES,
    query_id=_TEXTS,
    columns=_TEXTS,
    given_up=st.booleans(),
    statement=_TEXTS,
    kind=_KINDS,
    holds=_HOLDS,
    gives_way=st.none() | st.builds(GivesWay, _TEXTS, _TEXTS, _TEXTS),
    archived_since=_NUMBERS,
)
_LANDED = st.builds(
    Landed,
    _NUMBERS,
    _DIGITS,
    _TEXTS,
    _NUMBERS,
    _NUMBERS,
    _NUMBERS,
    _NUMBERS,
    _TEXTS,
    _HOLDS,
    kind=_KINDS,
)
_RECORDS = st.builds(
    Record, _LANDED, _PARTS, _SIZES, _NUMBERS, st.integers(0, 10_000), st.booleans(),
    begun=_NUMBERS, query_id=_TEXTS, columns=_TEXTS,
)  # fmt: skip

_DETACHED = st.lists(st.builds(DetachedPart, _TEXTS, _NUMBERS, _NUMBERS), max_size=2).map(tuple)
_ARCHIVED = st.builds(Archived, _NUMBERS, st.none() | _DETACHED, st.booleans())

keeper_nodes = st.builds(
    KeeperNode, st.integers(0, 2**63 - 1), st.integers(0, 2**32 - 1).map(lambda s: s * 1000)
)


_STATES = st.sampled_from(State)
_REWRITTEN = st.builds(
    Rewritten,
    _TEXTS,
    st.lists(_NUMBERS, max_size=2).map(tuple),
    st.lists(_TEXTS, max_size=2).map(tuple),
    _NUMBERS,
)


@st.composite
def ledger_rows(draw: st.DrawFn, states: st.SearchStrategy[State] = _STATES) -> Row:
    """Return a row; a completed one has a record."""
    state = draw(states)
    record = _RECORDS if state is State.COMPLETED else st.none() | _RECORDS
    return Row(
        key=Key(
            draw(_TEXTS),
            draw(st.sampled_from(["202401", "all"])),
            draw(_TEXTS),
            draw(st.integers(0, 3)),
        ),
        source_table=draw(_TEXTS),
        destination_table=draw(_TEXTS),
        state=state,
        claim=draw(_CLAIMS),
        created=draw(_NUMBERS),
        updated=draw(_NUMBERS),
        version=draw(st.integers(0, 9)),
        landed=tuple(draw(st.lists(_LANDED, max_size=2))),
        old=tuple(draw(st.lists(_CLAIMS, max_size=1))),
        done=draw(record),
        ttl=draw(st.integers(0, 10_000)),
        last_error=draw(_TEXTS),
        keeper_node=draw(st.none() | keeper_nodes),
        changed=draw(st.none() | _LANDED),
        division=draw(st.none() | _TEXTS),
        archived=draw(st.none() | _ARCHIVED),
        stop=draw(st.none() | st.sampled_from(Stop)),
        rewritten=draw(st.none() | _REWRITTEN),
        detached=tuple(draw(st.lists(_REWRITTEN, max_size=2))),
    )


events = st.builds(
    Event,
    time=_NUMBERS,
    kind=st.sampled_from(EventKind),
    table=_TEXTS,
    destination=_TEXTS,
    partition_id=_TEXTS,
    part_name=_TEXTS,
    status=_TEXTS,
    transaction_id=_TEXTS,
    rows=_NUMBERS,
    bytes_read=_NUMBERS,
    bytes_written=_NUMBERS,
    duration=_NUMBERS,
    error=_TEXTS,
    counter=st.none() | st.sampled_from(Counter),
    parts=_NUMBERS,
    query_id=_TEXTS,
)
