"""A table under the Keeper path of another one is never taken for it, unless the user says so.

Two data centres with an ensemble each, or a table that was dropped and created again: the path, and
so the key, is the same, the node is another (docs/spec/ledger.md, nodes of Keeper).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from catalog.storages.schemes import open_storage
from tableformat.effects import Step
from tableformat.export.dry_run import rehearse
from tableformat.export.request import ById, ExportOptions
from tableformat.export.watermark import find_watermark, property_of
from tableformat.ledger import Row, State
from tableformat.mergetree.table import KeeperNode, KeeperUnavailable
from tableformat.names import PartitionId
from tests.faults.test_rebuilt_ledger import lose, rebuilt
from tests.support.dying import KilledAt
from tests.support.fakes import TABLE
from tests.support.scenarios import lake, parts_of, ports_of, rows_in_main, state
from tests.support.scene import ONE, TTL, Scene

PATH = "/clickhouse/tables/01/events"
HERE = KeeperNode(11, 1_700_000_000_000)
THERE = KeeperNode(98, 1_700_000_777_000)
SAME = ExportOptions(manifest_ttl=TTL, same_table=True)
FORCED = ExportOptions(manifest_ttl=TTL, force=True)
EMPTIED = ExportOptions(manifest_ttl=TTL, force=True, allow_empty=True)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Return the warehouse of a replicated table that has a node."""
    made = Scene(tmp_path)
    show(made, HERE)
    return made


def show(scene: Scene, node: KeeperNode | KeeperUnavailable | None) -> None:
    """Let the source be a table of that path, with another node or none."""
    scene.source.table = replace(TABLE, identity=f"keeper:{PATH}", keeper_node=node)


def assert_refused(scene: Scene, options: ExportOptions | None = None) -> None:
    """Check that the other table is refused, and that nothing is changed by it."""
    before = (rows_in_main(scene.directory), scene.snapshots, scene.row, scene.files)

    status, output = scene.run(options)

    assert status == "refused"
    for text in (
        f"another table was exported from the Keeper path {PATH}",
        f": its node there was created {HERE}",
        f"this one's {THERE}, so this is another Keeper, or the table was created again",
        "Export it into another lake table.",
        "give --same-table",
    ):
        assert text in output
    assert (rows_in_main(scene.directory), scene.snapshots, scene.row, scene.files) == before


def test_the_first_export_remembers_the_node(scene: Scene) -> None:
    assert scene.run()[0] == "committed"

    assert scene.row.keeper_node == HERE
    assert scene.run()[0] == "already_exported"


@pytest.mark.parametrize(
    "options", [None, FORCED, ExportOptions(force=True, replace_partition=True)]
)
@pytest.mark.parametrize("content", ["same", "more", "fewer"])
@pytest.mark.parametrize("later", [False, True], ids=["inside the TTL", "after it"])
def test_another_table_of_the_path_is_refused(
    scene: Scene, content: str, options: ExportOptions | None, *, later: bool
) -> None:
    """Harm prevented: its rows are never exported, or take the place of the other table's."""
    scene.run()
    show(scene, THERE)
    scene.source.change(content)
    if later:
        scene.after_ttl()

    assert_refused(scene, options)


@pytest.mark.parametrize("options", [None, EMPTIED])
def test_a_partition_that_the_other_table_does_not_have_stays_in_the_lake(
    scene: Scene, options: ExportOptions | None
) -> None:
    """Harm prevented: rows go from the lake because another table never had them."""
    scene.run()
    show(scene, THERE)
    scene.source.change("gone")
    scene.after_ttl()

    assert_refused(scene, options)


@pytest.mark.parametrize("step", [Step.CLAIM, Step.WRITE_FILES, Step.SEND])
def test_an_export_that_another_table_began_is_not_resumed(scene: Scene, step: Step) -> None:
    """Harm prevented: half of a partition is of the one table, half of the other."""
    scene.dies(KilledAt(step, after=True))
    show(scene, THERE)

    status, output = scene.run()

    assert (status, scene.row.keeper_node) == ("refused", HERE)
    assert "another table was exported from the Keeper path" in output
    assert rows_in_main(scene.directory) in (0, 12)


@pytest.mark.parametrize("how", [State.KILLED, State.FAILED])
def test_what_was_given_up_and_never_landed_refuses_nobody(scene: Scene, how: State) -> None:
    """Nothing of the other table is in the lake: this is a first export."""
    scene.dies(KilledAt(Step.WRITE_FILES, after=True))
    with scene.ledger() as ledger:
        assert isinstance(ledger.write(replace(scene.row, state=how)), Row)
    show(scene, THERE)

    assert scene.run()[0] == "committed"
    assert scene.row.keeper_node == THERE


@pytest.mark.parametrize(
    ("content", "later", "expected"),
    [
        ("same", False, "already_exported"),
        ("same", True, "unchanged"),
        ("more", False, "refused"),
        ("more", True, "replaced"),
    ],
)
def test_a_user_who_says_that_it_is_the_same_table_is_believed_from_then_on(
    scene: Scene, content: str, expected: str, *, later: bool
) -> None:
    """Keeper was restored, which makes other nodes for the same table."""
    scene.run()
    show(scene, THERE)
    scene.source.change(content)
    if later:
        scene.after_ttl()

    status, output = scene.run(SAME)

    assert status == expected
    assert "another table" not in output
    assert scene.row.keeper_node == THERE
    assert rows_in_main(scene.directory) == (15 if expected == "replaced" else 12)
    assert "another table" not in scene.run()[1]


def test_an_interrupted_export_of_the_same_table_is_resumed(scene: Scene) -> None:
    """Its finished files are kept."""
    scene.dies(KilledAt(Step.WRITE_FILES, after=True))
    written = scene.files
    show(scene, THERE)

    assert scene.run(SAME)[0] == "committed"
    assert (scene.files, rows_in_main(scene.directory)) == (written, 12)


@pytest.mark.parametrize(("first", "then"), [(None, None), (None, THERE), (HERE, None)])
def test_a_node_that_is_not_known_on_one_side_is_not_compared(
    scene: Scene, first: KeeperNode | None, then: KeeperNode | None
) -> None:
    """Frozen parts and embedded tables have none, nor have records of earlier releases."""
    show(scene, first)
    scene.run()
    show(scene, then)
    scene.source.change("more")
    scene.after_ttl()

    assert scene.run()[0] == "replaced"
    assert scene.row.keeper_node == (then or first)


def test_while_keeper_is_silent_no_export_is_reported_as_done(scene: Scene) -> None:
    """Harm prevented: "already exported" of another table, whose rows are then dropped."""
    scene.run()
    show(scene, KeeperUnavailable("Session expired"))

    status, output = scene.run()

    assert status == "refused"
    assert f"Keeper does not show whether {PATH} is still the table" in output
    assert output.endswith("(Session expired). Run again when it responds.")


def test_a_dry_run_and_the_watermark_say_the_same(scene: Scene) -> None:
    scene.run()
    show(scene, THERE)
    ports = ports_of(scene.directory, scene.source)
    request = replace(ONE, options=ExportOptions(manifest_ttl=TTL))

    def rehearsed(options: ExportOptions) -> tuple[str, str]:
        (one,) = rehearse(
            replace(request, options=options), scene.source, ports.lake, ports.ledger,
            now=scene.now, slots=1, note=lambda _: None, storage=open_storage,
        ).forecasts  # fmt: skip
        return one.action, one.message

    assert rehearsed(ExportOptions())[0] == "refused"
    assert "another table was exported" in rehearsed(ExportOptions())[1]
    assert rehearsed(SAME)[0] == "already_exported"
    found = find_watermark(
        scene.source.table, scene.source, lake(scene.directory), ports.ledger, now=scene.now
    )
    assert found.reached == 0
    assert found.why.startswith("another table was exported")
    ports.ledger.close()


def test_two_tables_of_one_path_have_no_watermark(scene: Scene) -> None:
    """Harm prevented: up to the last partition of the one, rows of the other are read nowhere."""
    watermark = property_of(f"keeper:{PATH}")
    scene.run()
    assert state(scene.directory).properties[watermark].endswith(":p1")
    show(scene, THERE)
    scene.request = replace(ONE, selection=ById(PartitionId("p2")))
    del scene.source.by_id["p1"]

    assert scene.run()[0] == "committed"

    assert state(scene.directory).properties.get(watermark, "") == ""


def test_a_rebuilt_ledger_knows_the_node(scene: Scene) -> None:
    """Harm prevented: the guard is lost with the ledger."""
    scene.run()
    lose(scene.directory)

    rebuilt(scene.directory)

    assert scene.row.keeper_node == HERE
    show(scene, THERE)
    assert_refused(scene)
    show(scene, HERE)
    assert scene.run()[0] == "already_exported"


def test_a_ledger_rebuilt_after_a_replacement_knows_the_last_node(scene: Scene) -> None:
    scene.run()
    show(scene, THERE)
    scene.source.by_id["p1"] = parts_of("p1", 7, 6)
    scene.run(replace(SAME, force=True))
    lose(scene.directory)

    rebuilt(scene.directory)

    assert scene.row.keeper_node == THERE


SHARD = "31b39f5a-6a6e-4a43-a80a-2f7f4b2e7a01"
OTHER = "31b39f5a-6a6e-4a43-a80a-2f7f4b2e7a02"


def on_server(directory: Path, server: str) -> Scene:
    """Return a scene whose table is not replicated, and on a server."""
    made = Scene(directory)
    made.source.table = replace(TABLE, server=server)
    return made


def move_to(scene: Scene, server: str) -> None:
    """Let the source be the table with the same UUID on another server."""
    scene.source.table = replace(TABLE, server=server)


@pytest.mark.parametrize("options", [None, FORCED])
@pytest.mark.parametrize("content", ["same", "more", "fewer", "gone"])
def test_a_shard_with_the_uuid_of_another_one_is_refused(
    tmp_path: Path, content: str, options: ExportOptions | None
) -> None:
    """Harm prevented: after ON CLUSTER, the rows of a shard take the place of another's."""
    scene = on_server(tmp_path, SHARD)
    scene.run()
    move_to(scene, OTHER)
    scene.source.change(content)
    scene.after_ttl()
    before = (rows_in_main(tmp_path), scene.snapshots, scene.row)

    status, output = scene.run(options)

    assert status == "refused"
    assert "was exported from another server: CREATE TABLE … ON CLUSTER gives" in output
    assert (rows_in_main(tmp_path), scene.snapshots, scene.row) == before
    move_to(scene, SHARD)
    assert scene.run(options)[0] != "committed"


def test_data_that_moved_to_another_server_is_believed_from_it_alone(tmp_path: Path) -> None:
    """Harm prevented: --same-table in a run over shards makes one shard of two."""
    scene = on_server(tmp_path, SHARD)
    scene.run()
    move_to(scene, OTHER)
    scene.source.change("more")
    scene.after_ttl()

    scene.request = replace(ONE, options=replace(ONE.options, shards=2))
    assert scene.run(SAME)[0] == "refused"
    scene.request = ONE

    assert scene.run(SAME)[0] == "replaced"
    assert scene.row.server == OTHER
    scene.after_ttl()
    assert scene.run()[0] == "unchanged"


@pytest.mark.parametrize(("then", "now"), [("", OTHER), (SHARD, ""), (SHARD, SHARD)])
def test_a_server_that_is_not_known_is_not_compared(tmp_path: Path, then: str, now: str) -> None:
    scene = on_server(tmp_path, then)
    scene.run()
    move_to(scene, now)
    scene.source.change("more")
    scene.after_ttl()

    assert scene.run()[0] == "replaced"
    assert scene.row.server == (now or then)


def test_a_dry_run_and_the_watermark_compare_servers(tmp_path: Path) -> None:
    scene = on_server(tmp_path, SHARD)
    scene.run()
    move_to(scene, OTHER)
    ports = ports_of(tmp_path, scene.source)

    (found,) = rehearse(
        replace(ONE, options=ExportOptions(manifest_ttl=TTL)), scene.source, ports.lake,
        ports.ledger, now=scene.now, slots=1, note=lambda _: None, storage=open_storage,
    ).forecasts  # fmt: skip
    reached = find_watermark(
        scene.source.table, scene.source, lake(tmp_path), ports.ledger, now=scene.now
    )

    assert found.action == "refused"
    assert reached.reached == 0
