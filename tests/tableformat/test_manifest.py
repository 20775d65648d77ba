"""The manifest tells what the ledger knows of an export, and damage to it is found out.

N-09 … N-15, N-28 (docs/spec/manifest.md).
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.errors import LedgerError
from tableformat.ledger import Claim, ExportedPart, Key, Landed, Record, Row, State
from tableformat.ledger_text import (
    Manifest,
    checksum,
    manifest,
    manifest_of,
    parse_manifest,
    stored_manifest,
)
from tests.repository.source_files import ROOT
from tests.strategies.ledger import ledger_rows

_PARTS = (
    ExportedPart("202401_1_1_0", "h1", 7, 1, 1, 1, 70, ("/lake/x.parquet", "/lake/y.parquet")),
    ExportedPart("202401_2_2_0", "h2", 5, 2, 2, 2, 50, ("/lake/y.parquet",)),
)
_CLAIM = Claim(3, "7161", "f", 1, _PARTS, rows=12, data_files=2, bytes=99)
_LANDED = Landed(3, "7161", "f", 4711, 2, 12, 2)
_DONE = Row(
    Key("source", "202401", "uuid"), "db.t", "lake.n.t", State.COMPLETED, _CLAIM, 1, 9,
    landed=(_LANDED,), done=Record(_LANDED, _PARTS, 99, 8, 180),
)  # fmt: skip


def fields_of(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(manifest(row))
    return found


def test_it_has_the_fields_that_the_notes_name_first_and_over_several_lines() -> None:
    """Harm prevented: a tool that was written for the notes' layout finds nothing."""
    text = manifest(_DONE)

    found = json.loads(text)
    names = ["transaction_id", "partition_id", "destination", "completed", "parts"]
    assert list(found)[:5] == names
    assert [found[n] for n in names[:4]] == ["7161", "202401", "lake.n.t", True]
    assert list(found["parts"][0])[:2] == ["part_name", "remote_path"]
    assert text.splitlines()[1] == '  "transaction_id": "7161",'


def test_a_part_lists_its_first_file_and_all_of_them() -> None:
    """A part may lie in several files, and a file may hold several parts."""
    first, second = fields_of(_DONE)["parts"]

    assert (first["part_name"], first["remote_path"]) == ("202401_1_1_0", "/lake/x.parquet")
    assert first["remote_paths"] == ["/lake/x.parquet", "/lake/y.parquet"]
    assert second["remote_path"] == "/lake/y.parquet"


def test_before_its_files_are_there_a_part_has_no_remote_path() -> None:
    parts = tuple(replace(p, remote_paths=()) for p in _PARTS)
    running = replace(
        _DONE, state=State.RUNNING, done=None, landed=(), claim=replace(_CLAIM, parts=parts)
    )

    assert [p["remote_path"] for p in fields_of(running)["parts"]] == ["", ""]


@pytest.mark.parametrize("state", [s for s in State if s is not State.COMPLETED])
def test_it_is_completed_only_after_the_snapshot(state: State) -> None:
    """Harm prevented: files are thrown away at the source that nobody sees in the lake."""
    begun = replace(_DONE, state=state, done=None, landed=())

    found = fields_of(begun)
    assert (found["completed"], found["snapshot_id"], found["completed_time"]) == (
        False, None, None,
    )  # fmt: skip
    assert (fields_of(_DONE)["completed"], fields_of(_DONE)["snapshot_id"]) == (True, "4711")


def test_a_running_replacement_is_incomplete_and_shows_what_landed() -> None:
    """Harm prevented: the manifest of a new export claims the old one's snapshot."""
    again = replace(_DONE, state=State.RUNNING, claim=replace(_CLAIM, epoch=4, transaction_id="8"))

    found = fields_of(again)
    assert (found["transaction_id"], found["completed"], found["snapshot_id"]) == ("8", False, None)
    assert found["landed_snapshots"] == ["4711"]


@given(row=ledger_rows(), most=st.integers(2_000, 20_000))
def test_what_is_stored_is_bounded_and_says_what_it_leaves_out(row: Row, most: int) -> None:
    many = tuple(replace(_PARTS[0], name=f"202401_{n}_{n}_0") for n in range(100))
    long = replace(
        row, state=State.RUNNING, claim=replace(row.claim, parts=many, statement="", kind=None)
    )
    wordy = replace(long, last_error="é" * 100_000)
    for one in (row, long, wordy):
        stored, whole = parse_manifest(stored_manifest(one, most)), manifest_of(one)

        assert len(stored.parts) + stored.parts_left_out == len(whole.parts)
        assert stored == replace(
            whole,
            parts=whole.parts[: len(stored.parts)],
            parts_left_out=stored.parts_left_out,
            last_error=stored.last_error,
        )
        assert whole.last_error.startswith(stored.last_error.removesuffix(" …"))
        assert len(stored_manifest(one, most)) <= most or not stored.parts
    assert len(stored_manifest(wordy, 256 * 1024)) < 256 * 1024


@given(row=ledger_rows())
def test_it_comes_back_as_it_was_written(row: Row) -> None:
    assert parse_manifest(manifest(row)) == manifest_of(row)


@given(row=ledger_rows(), form=st.sampled_from([1, 2]))
def test_one_of_a_format_before_is_read(row: Row, form: int) -> None:
    """Format 1 knows no node of Keeper; both have numbers for what are texts now."""
    made = manifest_of(row)
    body = {k: v for k, v in fields_of(row).items() if k != "checksum"} | {
        "snapshot_id": made.snapshot_id,
        "landed_snapshots": [*made.landed_snapshots],
        "keeper_node": made.keeper_node and asdict(made.keeper_node),
        "format_version": form,
    }
    if form == 1:
        del body["keeper_node"]

    read = parse_manifest(json.dumps({**body, "checksum": checksum(body)}))

    assert read == (replace(made, keeper_node=None) if form == 1 else made)


@given(row=ledger_rows())
def test_its_numbers_of_64_bits_are_texts(row: Row) -> None:
    """Harm prevented: the id of a snapshot is another one behind `jq`."""
    found = fields_of(row)

    assert isinstance(found["snapshot_id"], str | None)
    assert all(isinstance(one, str) for one in found["landed_snapshots"])
    assert found["keeper_node"] is None or isinstance(found["keeper_node"]["czxid"], str)


@given(row=ledger_rows(), indent=st.sampled_from([None, 1, 8]), by_name=st.booleans())
def test_it_may_be_spaced_and_ordered_otherwise(
    row: Row,
    indent: int | None,
    by_name: bool,  # noqa: FBT001  from Hypothesis
) -> None:
    """A tool that formats JSON does not damage it."""
    text = json.dumps(json.loads(manifest(row)), indent=indent, sort_keys=by_name)

    assert parse_manifest(text) == manifest_of(row)


@given(row=ledger_rows(), name=st.sampled_from([f.name for f in fields(Manifest)]))
def test_a_value_that_was_changed_by_hand_is_refused(row: Row, name: str) -> None:
    """Harm prevented: `completed` is set by hand, and the source dropped."""
    body = fields_of(row)
    body[name] = "other" if body[name] != "other" else "another"

    with pytest.raises(LedgerError, match="does not match its checksum"):
        parse_manifest(json.dumps(body))


@given(row=ledger_rows(), place=st.floats(0, 1, exclude_max=True))
def test_one_that_was_cut_off_is_refused(row: Row, place: float) -> None:
    text = manifest(row)

    with pytest.raises(LedgerError, match="Cannot read a manifest: "):
        parse_manifest(text[: int(place * len(text))])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 99}, "a manifest of format 99: this release reads 3"),
        ({"surprise": 1}, "does not match its checksum"),
        ({"checksum": None}, "does not match its checksum"),
    ],
)
def test_one_of_another_form_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(LedgerError, match=message):
        parse_manifest(json.dumps({**fields_of(_DONE), **change}))


def test_the_page_lists_every_field() -> None:
    page = (ROOT / "docs" / "spec" / "manifest.md").read_text(encoding="utf-8")

    assert [name for name in fields_of(_DONE) if f"`{name}`" not in page] == []
    assert [n for n in fields_of(_DONE)["parts"][0] if f"`{n}`" not in page] == []
