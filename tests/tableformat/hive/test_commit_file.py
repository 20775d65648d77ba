"""Commit files read back as written, and other contents are refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.errors import DestinationError
from tableformat.hive.documents import (
    CommitFile,
    CommittedFile,
    is_commit_name,
    without_replaced,
)

FILES = st.builds(
    CommittedFile,
    path=st.text(st.characters(exclude_categories=["Cs"])),
    bytes=st.integers(0),
    rows=st.integers(0),
    sha256=st.text("0123456789abcdef", min_size=64, max_size=64),
)
COMMITS = st.builds(
    CommitFile,
    tree=st.uuids().map(str),
    source_table=st.text(st.characters(exclude_categories=["Cs"])),
    partition_id=st.from_regex(r"[A-Za-z0-9-]{1,30}", fullmatch=True),
    transaction_id=st.integers(0, 2**63).map(str),
    fingerprint=st.text("0123456789abcdef"),
    files=st.lists(FILES, max_size=3).map(tuple),
    replaces=st.lists(st.integers(0, 2**63).map(str), max_size=3, unique=True).map(tuple),
)
ONE = CommitFile("t", "db.t", "202401", "77", "f", (CommittedFile("p=1/a.parquet", 9, 3, "00"),))


@given(commit=COMMITS)
def test_what_is_written_is_read_and_equal_commits_have_equal_bytes(commit: CommitFile) -> None:
    data = commit.to_bytes()

    assert CommitFile.from_bytes(data, "x") == commit
    assert CommitFile.from_bytes(data, "x").to_bytes() == data
    assert is_commit_name(commit.name)


def test_the_name_and_the_form_are_those_of_the_specification() -> None:
    raw = json.loads(ONE.to_bytes())

    assert ONE.name == "commit_202401_77"
    assert raw.pop("checksum").startswith("sha256:")
    assert raw == {
        "format_version": 1,
        "tree": "t",
        "source_table": "db.t",
        "partition_id": "202401",
        "transaction_id": "77",
        "fingerprint": "f",
        "rows": 3,
        "files": [{"path": "p=1/a.parquet", "bytes": 9, "rows": 3, "sha256": "00"}],
    }


def test_it_may_be_spaced_and_ordered_otherwise() -> None:
    raw = json.loads(ONE.to_bytes())
    other = json.dumps(dict(reversed(raw.items())), indent=4).encode()

    assert CommitFile.from_bytes(other, "x") == ONE


@given(commit=COMMITS, name=st.sampled_from(["partition_id", "transaction_id", "rows", "files"]))
def test_the_checksum_detects_a_manual_change(commit: CommitFile, name: str) -> None:
    """Harm prevented: a manual removal of a file from the list is not noticed."""
    raw = json.loads(commit.to_bytes())
    raw[name] = [*raw[name], {"path": "x"}] if name == "files" else f"{raw[name]}1"

    with pytest.raises(
        DestinationError, match=r"does not match its checksum.*remove it: the next e"
    ):
        CommitFile.from_bytes(json.dumps(raw).encode(), "x")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "Cannot read x"),
        (b"[]", "Cannot read x"),
        (b"{}", "format_version"),
        (ONE.to_bytes()[:-20], "Cannot read x"),
        (ONE.to_bytes().replace(b'"format_version": 1', b'"format_version": 3'), "it has format 3"),
    ],
)
def test_what_is_cut_off_or_newer_is_refused_by_name(data: bytes, why: str) -> None:
    with pytest.raises(DestinationError, match=why):
        CommitFile.from_bytes(data, "x")


@pytest.mark.parametrize("name", ["commit_all", "commit_a_b", "x_all_1", "commit_all_1.json", ""])
def test_other_names_are_none_of_commit_files(name: str) -> None:
    assert not is_commit_name(name)


def test_what_replaces_is_of_a_format_that_earlier_releases_refuse() -> None:
    """Harm prevented: an earlier release that counts both an export and its successor."""
    raw = json.loads(replace(ONE, replaces=("76",)).to_bytes())

    assert (raw["format_version"], raw["replaces"]) == (2, ["76"])


def test_of_exports_that_replace_each_other_the_last_counts() -> None:
    """Also where one is put again by a run that was held up: its successors name all before."""
    first, other = ONE, replace(ONE, partition_id="202402", transaction_id="5")
    second = replace(ONE, transaction_id="78", replaces=("77",))
    third = replace(ONE, transaction_id="79", replaces=("77", "78"))

    assert without_replaced((third, second, other, first)) == (third, other)
    assert without_replaced((third, first)) == (third,)
    assert without_replaced((first, other)) == (first, other)
