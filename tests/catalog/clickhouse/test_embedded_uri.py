"""The text that names an embedded source."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.clickhouse.embedded import EmbeddedSettings, parse_source, render_source
from tableformat.errors import UnsupportedError, UsageError

PATHS = st.text(st.characters(exclude_characters="?&\0/.", codec="utf-8"), min_size=1).map(
    lambda name: Path("/data") / name
)


@given(st.builds(EmbeddedSettings, PATHS, st.none() | PATHS, st.sampled_from(["", "Asia/Tokyo"])))
def test_what_is_written_is_read_back(settings: EmbeddedSettings) -> None:
    assert parse_source(render_source(settings)) == settings


@pytest.mark.parametrize(
    "uri", ["clickhouse://u:pa55-w0rd@host", "./clickhouse", "s3://bucket/x", ""]
)
def test_another_kind_of_source_is_refused_with_the_one_that_works(uri: str) -> None:
    with pytest.raises(UnsupportedError, match="chdb:DIRECTORY") as raised:
        parse_source(uri)
    assert "pa55-w0rd" not in str(raised.value)


@pytest.mark.parametrize(
    "uri",
    ["chdb:", "chdb:?config-file=x", "chdb:d?", "chdb:d?mode=ro", "chdb:d?config-file=",
     "chdb:d?config-file=x&mode=ro", "chdb:d?zone=", "chdb:d?zone=UTC&zone=UTC"],
)  # fmt: skip
def test_a_malformed_one_is_refused_with_its_form(uri: str) -> None:
    with pytest.raises(UsageError, match=r"Write chdb:DIRECTORY or chdb:DIRECTORY\?config-file"):
        parse_source(uri)
