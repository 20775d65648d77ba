"""What the ledger stores comes back as it was, or is refused: rows and events."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tableformat.errors import LedgerError
from tableformat.history import Event
from tableformat.ledger import Archived, Claim, Landed, Row, StatementKind, Stop
from tableformat.ledger_text import checksum, parse_row, render_row
from tableformat.names import members
from tests.strategies.ledger import events, ledger_rows


@given(row=ledger_rows())
def test_a_row_comes_back_as_it_was_stored(row: Row) -> None:
    """Harm prevented: a figure of an export is lost on the way to the disk."""
    assert parse_row(render_row(row), row.version) == row


@given(row=ledger_rows())
def test_a_row_is_encoded_as_a_deep_copy_of_it_would_be(row: Row) -> None:
    """Harm prevented: the checksum of a row is another one in the next release."""
    assert json.dumps(row, default=members) == json.dumps(asdict(row))


def of_format(row: Row, version: int) -> str:
    """Return a row as an earlier release stored it."""
    body: dict[str, Any] = json.loads(render_row(row))
    del body["format_version"], body["checksum"], body["server"]
    if version == 16:
        return json.dumps({"format_version": version, "checksum": checksum(body), **body})
    del body["key"]["increment"]
    if body["archived"] is not None:
        del body["archived"]["is_ending"]
    for one in (body["claim"], *body["old"]):
        del one["archived_since"]
    if version == 15:
        return json.dumps({"format_version": version, "checksum": checksum(body), **body})
    del body["detached"]
    if version in (13, 14):
        if body["rewritten"] is not None and version == 13:
            del body["rewritten"]["rows"]
        return json.dumps({"format_version": version, "checksum": checksum(body), **body})
    del body["rewritten"]
    if version == 12:
        return json.dumps({"format_version": version, "checksum": checksum(body), **body})
    del body["stop"]
    done, changed = body["done"], body["changed"]
    landed = (*body["landed"], *([done["landed"]] if done else []), *([changed] if changed else []))
    for one in (body["claim"], *body["old"], *landed):
        del one["kind"]
    if version < 11:
        for one in (body["claim"], *body["old"], *([done] if done else [])):
            del one["columns"]
    if version < 10:
        del body["archived"]
    if version < 9:
        del body["division"]
    if version < 8:
        for one in (body["claim"], *body["old"]):
            del one["gives_way"]
    return json.dumps({"format_version": version, "checksum": checksum(body), **body})


def without_increments(row: Row) -> Row:
    """Return a row without what only formats 16 and 17 say."""
    return replace(
        row,
        server="",
        key=replace(row.key, increment=0),
        claim=replace(row.claim, archived_since=0),
        old=tuple(replace(one, archived_since=0) for one in row.old),
        archived=row.archived and replace(row.archived, is_ending=False),
    )


def with_texts_only(row: Row) -> Row:
    """Return a row whose texts say nothing that its values do not."""

    def only(landed: Landed) -> Landed:
        return replace(landed, statement="", kind=None)

    def claim(one: Claim) -> Claim:
        return replace(one, statement="", kind=None)

    return replace(
        row,
        claim=claim(row.claim),
        old=tuple(map(claim, row.old)),
        landed=tuple(map(only, row.landed)),
        done=row.done and replace(row.done, landed=only(row.done.landed)),
        changed=row.changed and only(row.changed),
        stop=None,
        last_error="",
    )


@given(
    row=ledger_rows().map(without_increments).map(with_texts_only),
    version=st.sampled_from((7, 8, 9, 10, 11)),
)
def test_a_row_of_a_format_before_is_read_without_what_it_does_not_say(
    row: Row, version: int
) -> None:
    """Harm prevented: a ledger that cannot be used any more after an upgrade."""
    claims = (row.claim, *row.old)
    if version < 11:
        claims = tuple(replace(c, columns="") for c in claims)
    if version < 8:
        claims = tuple(replace(c, gives_way=None) for c in claims)

    read = parse_row(of_format(row, version), row.version)

    claim, *old = claims
    division = row.division if version > 8 else None
    done = row.done and (row.done if version > 10 else replace(row.done, columns=""))
    known = replace(row, claim=claim, old=tuple(old), done=done, division=division)
    known = replace(known, rewritten=None, detached=())
    assert replace(read, archived=None) == replace(known, archived=None)


@given(row=ledger_rows())
def test_rows_of_the_last_formats_are_read_without_what_they_do_not_say(row: Row) -> None:
    """Harm prevented: rows of others in rewritten files are taken for those of an export."""
    known = without_increments(row)
    without_detached = replace(known, detached=())
    proof = row.rewritten and replace(row.rewritten, rows=-1)

    assert parse_row(of_format(row, 16), row.version) == replace(row, server="")
    assert parse_row(of_format(row, 15), row.version) == known
    assert parse_row(of_format(row, 12), row.version) == replace(without_detached, rewritten=None)
    assert parse_row(of_format(row, 13), row.version) == replace(without_detached, rewritten=proof)
    assert parse_row(of_format(row, 14), row.version) == without_detached


# As releases up to format 11 wrote them.
BEFORE = (
    ("", None),
    ("ATTACH PARTITION ID '202401'", StatementKind.ATTACH),
    ("ATTACH PART '202401_0_0_0'", StatementKind.ATTACH),
    ("ATTACH PARTITION ALL", StatementKind.ATTACH),
    ("ATTACH PARTITION ID '202401' FROM lake.n.t", StatementKind.ATTACH_FROM),
    ("ATTACH PARTITION ALL FROM lake.n.t", StatementKind.ATTACH_FROM),
    ("REPLACE PARTITION ID '202401' FROM ch.db.t", StatementKind.REPLACE_FROM),
    ("REPLACE PARTITION ALL FROM lake.n.t", StatementKind.REPLACE_FROM),
    ("DETACH PARTITION ID '202401'", StatementKind.DETACH),
    ("DROP PARTITION ALL", StatementKind.DROP),
    ("DROP PART '202401_0_0_0'", StatementKind.DROP),
    ("MOVE PARTITION ID '202401' TO TABLE lake.n.t", StatementKind.MOVE_TO_TABLE),
    ("MOVE PARTITION ID '202401' TO TABLE lake.n.`to DISK 'd'`", StatementKind.MOVE_TO_TABLE),
    ("MOVE PARTITION ID '202401' TO DISK 'cold'", StatementKind.MOVE_TO_DISK),
    ("MOVE PART '202401_0_0_0' TO VOLUME 'slow'", StatementKind.MOVE_TO_DISK),
    ("FETCH PARTITION ID '202401' FROM lake.n.t", StatementKind.FETCH),
    ("FETCH PARTITION ID '202401' FROM '/files'", StatementKind.FETCH_FROM_OUTSIDE),
    ("FETCH PART '202401_0_0_0' FROM 'parts:/p?ddl=/t.sql'", StatementKind.FETCH_FROM_OUTSIDE),
    ("UPDATE a, b IN PARTITION ID '202401'", StatementKind.UPDATE),
    ("UPDATE a", StatementKind.UPDATE),
    ("DELETE IN PARTITION ALL", StatementKind.DELETE),
    ("CLEAR COLUMN a IN PARTITION ID '202401'", StatementKind.CLEAR_COLUMN),
    ("CLEAR INDEX i", StatementKind.CLEAR_INDEX),
    ("OPTIMIZE TABLE PARTITION ID '202401' FINAL", StatementKind.OPTIMIZE),
    ("SOMETHING ELSE", StatementKind.OTHER),
)


@pytest.mark.parametrize(("text", "kind"), BEFORE)
@given(row=ledger_rows(), version=st.sampled_from((7, 8, 9, 10, 11)))
def test_the_kind_of_a_statement_of_a_format_before_is_read_from_its_text(
    text: str, kind: StatementKind | None, row: Row, version: int
) -> None:
    """Harm prevented: after an upgrade an export takes an UPDATE for a DROP, or a DROP for none."""

    def landed(one: Landed) -> Landed:
        return replace(one, statement=text, kind=kind)

    row = replace(
        row,
        claim=replace(row.claim, statement=text, kind=kind),
        old=tuple(replace(one, statement=text, kind=kind) for one in row.old),
        landed=tuple(map(landed, row.landed)),
        done=row.done and replace(row.done, landed=landed(row.done.landed)),
        changed=row.changed and landed(row.changed),
    )

    read = parse_row(of_format(row, version), row.version)

    assert (read.claim.statement, read.claim.kind) == (text, kind)
    assert [one.kind for one in read.old] == [one.kind for one in row.old]
    assert (read.landed, read.changed) == (row.landed, row.changed)
    assert (read.done and read.done.landed) == (row.done and row.done.landed)


@pytest.mark.parametrize(
    ("text", "stop"),
    [
        ("", None),
        ("interrupted", Stop.INTERRUPTED),
        ("it is being cancelled", Stop.CANCELLED),
        ("its query was killed", Stop.QUERY_KILLED),
        ("its query was killed; given up: nothing of it can land", Stop.QUERY_KILLED),
        ("Cannot read db.t: interrupted", None),
    ],
)
@given(row=ledger_rows(), version=st.sampled_from((7, 8, 9, 10, 11)))
def test_what_stopped_a_claim_of_a_format_before_is_read_from_its_error(
    text: str, stop: Stop | None, row: Row, version: int
) -> None:
    """Harm prevented: after an upgrade a run resumes a statement that was killed."""
    read = parse_row(of_format(replace(row, last_error=text, stop=stop), version), row.version)

    assert (read.last_error, read.stop) == (text, stop)


@given(row=ledger_rows(), version=st.sampled_from((7, 8, 9)), ttl=st.integers(1, 10_000))
def test_what_an_earlier_release_archived_is_archived(row: Row, version: int, ttl: int) -> None:
    """Harm prevented: after an upgrade `--force` takes the only copy out of the lake."""
    assume(row.done is not None)
    assert row.done is not None
    for_ever = replace(row.done, ttl=0, forgotten=False)

    archived = parse_row(of_format(replace(row, done=for_ever, ttl=ttl), version), 1)
    kept = parse_row(of_format(replace(row, done=for_ever, ttl=0), version), 1)
    forgotten = replace(row, done=replace(for_ever, forgotten=True), ttl=ttl)

    assert archived.archived == Archived(row.updated)
    assert kept.archived is None
    assert parse_row(of_format(forgotten, version), 1).archived is None


@given(row=ledger_rows(), place=st.floats(0, 1, exclude_max=True), other=st.characters())
def test_a_row_with_any_other_character_is_the_same_row_or_refused(
    row: Row, place: float, other: str
) -> None:
    """Harm prevented: a damaged row is read as another state, another epoch, other rows."""
    text = render_row(row)
    position = int(place * len(text))

    damaged = text[:position] + other + text[position + 1 :]

    try:
        assert parse_row(damaged, row.version) == row
    except LedgerError as refused:
        assert refused.message.startswith("Cannot read a ledger row: ")  # noqa: PT017  either may happen


@given(row=ledger_rows(), place=st.floats(0, 1, exclude_max=True))
def test_a_row_that_is_cut_off_is_refused(row: Row, place: float) -> None:
    text = render_row(row)

    with pytest.raises(LedgerError, match="Cannot read a ledger row: "):
        parse_row(text[: int(place * len(text))], row.version)


@given(event=events)
def test_an_event_comes_back_as_it_was_stored(event: Event) -> None:
    assert Event.from_json(event.to_json()) == event


@pytest.mark.parametrize("text", ["", "[]", "7", '{"time": 1}', '{"kind": "DROP", "counter": 0}'])
def test_a_damaged_event_is_refused(text: str) -> None:
    """Harm prevented: a line of the log that never happened."""
    with pytest.raises(LedgerError, match="Its history is damaged, its exports need not be"):
        Event.from_json(text)
