"""The text that names frozen parts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.clickhouse.frozen.definition import FrozenSettings, parse_parts, render_parts
from tableformat.errors import UsageError

# Names of files as the system gives them: any bytes, of which not all are UTF-8.
_PATHS = (
    (st.binary(min_size=1) | st.text(st.characters(codec="utf-8"), min_size=1).map(os.fsencode))
    .filter(lambda name: not {*name} & {*b"\0/."})
    .map(lambda name: Path("/data") / os.fsdecode(name))
)
_TEXTS = st.text(st.characters(exclude_characters="\0", codec="utf-8"))
_IDENTITIES = st.sampled_from(("", "uuid:0a1b2c3d-0000-4000-8000-000000000000")) | st.text(
    st.characters(exclude_characters="\0\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029", codec="utf-8"),
    min_size=1,
).map(lambda text: f"keeper:/{text}")


@given(st.builds(FrozenSettings, _PATHS, _PATHS, _IDENTITIES, _TEXTS, st.booleans()))
def test_what_is_written_is_read_back(settings: FrozenSettings) -> None:
    """Whatever characters the names have, also those that separate."""
    assert parse_parts(render_parts(settings)) == settings


def test_it_reads_as_people_write_it() -> None:
    uri = "parts:/backup/shadow/1?ddl=/backup/t.sql&identity=keeper:/clickhouse/tables/01/t"

    assert parse_parts(uri) == FrozenSettings(
        Path("/backup/shadow/1"), Path("/backup/t.sql"), "keeper:/clickhouse/tables/01/t"
    )


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("parts:?ddl=t.sql", "it names no directory"),
        ("parts:dir", "does not name the file with the CREATE TABLE statement"),
        ("parts:dir?ddl=", "'ddl=' is not one of its options"),
        ("parts:dir?ddl=a&ddl=b", "'ddl=b' is not one of its options, or is given twice"),
        ("parts:dir?ddl=a&mode=ro", "'mode=ro' is not one of its options"),
        ("parts:dir?ddl=a&identity=/clickhouse/t", "none of uuid:UUID, keeper:/PATH"),
        ("parts:dir?ddl=a&identity=uuid:1", "none of uuid:UUID, keeper:/PATH"),
        ("parts:dir?ddl=a&equal-parts=drop", "equal-parts is 'drop' and can only be keep"),
    ],
)
def test_a_malformed_one_is_refused_with_its_form(uri: str, why: str) -> None:
    with pytest.raises(UsageError, match=rf"{why}.*Write parts:DIR\?ddl=FILE"):
        parse_parts(uri)
