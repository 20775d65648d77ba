"""The fast form of what compares files: where it is accepted, and where it is refused."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlparse

import pytest

from tableformat.errors import RefusedError, UnsupportedError
from tests.support.session_lake import ALLOWED, alter, opened, rows_of
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

NAME = "mergeberg_attach_fast"
FAST = f"SETTINGS {NAME} = 1"

WITHOUT_EFFECT = (
    "ALTER TABLE lake.n.{} DROP PARTITION ID '202402'",
    "ALTER TABLE lake.n.{} DETACH PARTITION ID '202402'",
    "ALTER TABLE lake.n.{} FREEZE",
    "OPTIMIZE TABLE lake.n.{} FINAL",
    "DELETE FROM lake.n.{} IN PARTITION ID '202402' WHERE 1",
)


def damaged(places: Places, name: str) -> Path:
    """Change a byte of the file that is detached, so that its size stays; return it."""
    table = opened(places, name)
    head = table.snapshot_by_name("detached")
    assert head is not None
    (task,) = table.scan(snapshot_id=head.snapshot_id).plan_files()
    path = Path(urlparse(task.file.file_path).path)
    data = path.read_bytes()
    path.write_bytes(data[:10] + bytes([data[10] ^ 1]) + data[11:])
    return path


def test_the_setting_the_session_or_the_option_leaves_the_bytes_out(
    places: Places, session: NoSpark, dropped_from: str
) -> None:
    name = f"lake.n.{dropped_from}"
    alter(session, f"ALTER TABLE {name} DETACH PARTITION ID '202402'")
    path = damaged(places, dropped_from)
    attach = f"ALTER TABLE {name} ATTACH PARTITION ID '202402'"
    where = ("--warehouse", str(places.warehouse))

    with pytest.raises(RefusedError, match=f"Cannot use .*{path.name}"):
        alter(session, attach)
    assert places.run("alter", attach, *where)[0] == 3

    for fast in (
        lambda: alter(session, f"{attach} {FAST}"),
        lambda: alter(NoSpark(session.settings | {f"spark.mergeberg.{NAME}": "1"}), attach),
        lambda: places.run("alter", attach, *where, "--fast"),
    ):
        assert rows_of(places, dropped_from) == 1
        fast()
        assert rows_of(places, dropped_from) == 3
        alter(session, f"ALTER TABLE {name} DETACH PARTITION ID '202402'")


def test_where_it_has_no_effect_it_is_refused(
    places: Places, session: NoSpark, dropped_from: str
) -> None:
    """Of a session it holds for those statements that compare."""
    for statement in WITHOUT_EFFECT:
        text = statement.format(dropped_from)
        with pytest.raises(UnsupportedError, match="only ATTACH, REPLACE … FROM") as refused:
            alter(session, f"{text} {FAST}")
        code, _, stderr = places.run("alter", text, "--warehouse", str(places.warehouse), "--fast")

        assert refused.value.code == 344
        assert (code, "Cannot use --fast in this statement" in stderr) == (3, True)
    assert rows_of(places, dropped_from) == 3
    of_session = NoSpark(session.settings | {f"spark.mergeberg.{NAME}": "1"})
    assert alter(of_session, WITHOUT_EFFECT[0].format(dropped_from))[0]["status"] == "dropped"


def test_an_export_and_a_statement_of_clickhouse_refuse_it(
    places: Places, session: NoSpark, dropped_from: str
) -> None:
    with pytest.raises(UnsupportedError, match="mergeberg_attach_fast in this statement"):
        alter(
            session,
            f"ALTER TABLE ch.db.events EXPORT PARTITION ALL TO TABLE lake.n.{dropped_from}"
            f" {ALLOWED}, mergeberg_attach_fast = 1",
        )
    attach = "ALTER TABLE ch.db.events ATTACH PARTITION ID '202402'"

    code, _, stderr = places.run(
        "alter", attach, "--source", f"chdb:{places.clickhouse}", "--fast", "--allow-alter"
    )

    assert (code, "Cannot use --fast on db.events" in stderr) == (3, True)
