"""What leaves the source stays in the lake, whatever the source holds later."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from tableformat.effects import Step
from tableformat.errors import DestinationError, RefusedError, SourceError
from tableformat.export.archived import Archiving, archiving, unarchive
from tableformat.export.give_up import forget
from tableformat.export.job import ExportRequest
from tableformat.export.outcome import Outcome
from tableformat.export.request import ExportOptions
from tableformat.ledger import DetachedPart, Owner, State, StatementKind
from tableformat.messages import plain
from tests.support.scenarios import (
    ALL,
    FORCED,
    AtStep,
    Partitions,
    ledger_of,
    parts_of,
    ports_of,
    row_of,
    rows_in_main,
    run,
    statuses,
)

ME, OTHER = Owner("here", 1, "now"), Owner("there", 2, "then")
CHANGED = RefusedError("Cannot archive: it changed. The source is unchanged.")
LOST = SourceError("Cannot archive: the answer was lost.")
SHORT = replace(ALL, options=ExportOptions(manifest_ttl=1))


def exported(directory: Path) -> Partitions:
    """Export p1 (12 rows) as `archive` does, with a TTL that is over soon."""
    source = Partitions(by_id={"p1": parts_of("p1", 7, 5)})
    assert statuses(run(directory, source, request=SHORT)) == ["committed"]
    return source


def kept(
    directory: Path, source: Partitions, *, alive: bool = True
) -> contextlib.AbstractContextManager[Archiving]:
    return archiving(
        ports_of(directory, source).ledger,
        row_of(directory, "p1"),
        owner=ME,
        is_alive=lambda _: alive,
        now=2_000_000,
    )


def archived(directory: Path) -> Partitions:
    """Export p1, and take it out of the source."""
    source = exported(directory)
    with kept(directory, source) as row:
        source.by_id.clear()
        row.note_detached(())
    return source


def exported_late(directory: Path, source: Partitions, request: ExportRequest) -> list[Outcome]:
    """Export long after the TTL."""
    ports = ports_of(directory, source, clock=lambda: 9_000_000)
    return list(run(directory, source, request=request, ports=ports))


def later(directory: Path, source: Partitions) -> list[str]:
    """Export again long after the TTL, when the partition has 40 other rows."""
    source.by_id["p1"] = parts_of("p1", 40)
    ports = ports_of(directory, source, clock=lambda: 9_000_000)
    return statuses(run(directory, source, request=SHORT, ports=ports))


def test_rows_after_an_archive_never_take_the_place_of_what_was_archived(
    tmp_path: Path,
) -> None:
    """Harm prevented: the only copy of the archived rows leaves main for some late ones."""
    source = exported(tmp_path)

    with kept(tmp_path, source):
        source.by_id.clear()

    assert later(tmp_path, source) == ["refused"]
    assert rows_in_main(tmp_path) == 12


def test_a_partition_that_stays_in_the_source_is_exported_again(tmp_path: Path) -> None:
    source = exported(tmp_path)

    with pytest.raises(RefusedError, match="changed"), kept(tmp_path, source):
        raise CHANGED

    assert later(tmp_path, source) == ["replaced"]
    assert rows_in_main(tmp_path) == 40


def test_when_nobody_knows_what_became_of_the_source_the_lake_keeps_it(tmp_path: Path) -> None:
    """Harm prevented: a DETACH without a response, which was performed."""
    source = exported(tmp_path)

    with pytest.raises(SourceError, match="lost"), kept(tmp_path, source):
        raise LOST

    assert later(tmp_path, source) == ["refused"]
    assert rows_in_main(tmp_path) == 12


def test_nothing_is_touched_while_somebody_else_exports_the_partition(tmp_path: Path) -> None:
    source = exported(tmp_path)
    ledger = ports_of(tmp_path, source).ledger
    ledger.take_lease(row_of(tmp_path, "p1").key.hash, OTHER, 60.0)

    message = r"Cannot archive partition p1.*process 2 on there"
    with pytest.raises(RefusedError, match=message), kept(tmp_path, source):
        pytest.fail("the source was touched")
    # Its owner has died.
    with kept(tmp_path, source, alive=False):
        source.by_id.clear()
    assert later(tmp_path, source) == ["refused"]


def test_a_row_that_moved_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    source = exported(tmp_path)
    before = kept(tmp_path, source)
    with kept(tmp_path, source):
        pass

    with pytest.raises(RefusedError, match="changed at the same moment"), before:
        pytest.fail("the source was touched")


OPTIONS = [
    ExportOptions(force=True),
    ExportOptions(force=True, allow_empty=True),
    ExportOptions(force=True, replace_partition=True),
    ExportOptions(overwrite_file_if_exists=True),
    ExportOptions(of_statement=StatementKind.REPLACE_FROM),
    ExportOptions(of_statement=StatementKind.ATTACH_FROM),
    ExportOptions(manifest_ttl=0),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("rows", [(1,), (40,)], ids=["fewer", "more"])
def test_no_option_of_an_export_takes_archived_rows_out_of_the_lake(
    tmp_path: Path, options: ExportOptions, rows: tuple[int, ...]
) -> None:
    """Harm prevented: `--force` puts one late row in the place of the only copy of 10,000."""
    source = archived(tmp_path)
    source.by_id["p1"] = parts_of("p1", *rows)

    (found,) = exported_late(tmp_path, source, replace(ALL, options=options))

    assert (found.status.value, rows_in_main(tmp_path)) == ("refused", 12)
    assert "--force" not in plain(found.message)


@pytest.mark.parametrize(
    "options", [ExportOptions(), ExportOptions(force=True, allow_empty=True)], ids=str
)
def test_an_archived_partition_that_is_gone_stays_in_the_lake(
    tmp_path: Path, options: ExportOptions
) -> None:
    """Harm prevented: `--allow-empty` says that the empty source is the partition's content."""
    source = archived(tmp_path)

    exported_late(tmp_path, source, replace(ALL, options=options))

    assert rows_in_main(tmp_path) == 12


def test_what_comes_back_to_the_source_is_in_the_lake_already(tmp_path: Path) -> None:
    """ATTACH PARTITION brings detached parts back, under other names."""
    source = exported(tmp_path)
    with kept(tmp_path, source) as row:
        row.note_detached(tuple(DetachedPart(part.name, 9, 1) for part in source.by_id["p1"]))

    (found,) = exported_late(tmp_path, source, ALL)

    assert (found.status.value, rows_in_main(tmp_path)) == ("already_exported", 12)


def test_after_unarchiving_an_export_replaces_it_as_any_other(tmp_path: Path) -> None:
    source = archived(tmp_path)
    source.by_id["p1"] = parts_of("p1", 40)
    ledger, row = ports_of(tmp_path, source).ledger, row_of(tmp_path, "p1")

    unarchive(ledger, row, None, owner=ME, is_alive=lambda _: True, now=3_000_000)

    assert statuses(exported_late(tmp_path, source, ALL)) == ["replaced"]
    assert rows_in_main(tmp_path) == 40
    with pytest.raises(RefusedError, match="it is not archived"):
        unarchive(
            ledger,
            row_of(tmp_path, "p1"),
            None,
            owner=ME,
            is_alive=lambda _: True,
            now=3_000_000,
        )


def test_unarchiving_needs_the_row_that_the_user_was_shown(tmp_path: Path) -> None:
    """Harm prevented: between the question and the reply it became another export's."""
    source = archived(tmp_path)
    ledger, row = ports_of(tmp_path, source).ledger, row_of(tmp_path, "p1")
    with kept(tmp_path, source):
        pass

    with pytest.raises(RefusedError, match="changed at the same moment"):
        unarchive(ledger, row, None, owner=ME, is_alive=lambda _: True, now=3_000_000)


def test_forgetting_does_not_end_that_it_is_archived(tmp_path: Path) -> None:
    source = archived(tmp_path)

    with pytest.raises(RefusedError, match=r"it is archived.*exports unarchive p1 --table db\.t"):
        forget(
            ports_of(tmp_path, source).ledger,
            row_of(tmp_path, "p1"),
            owner=ME,
            is_alive=lambda _: True,
            now=3_000_000,
        )


def test_nothing_is_archived_while_an_export_that_was_begun_may_still_land(tmp_path: Path) -> None:
    """Harm prevented: a request of before is applied after the source is empty."""
    source = exported(tmp_path)
    ports = ports_of(
        tmp_path, source, effects=AtStep(Step.SEND, _interrupt), clock=lambda: 9_000_000
    )
    with contextlib.suppress(KeyboardInterrupt):
        run(tmp_path, source, request=FORCED, ports=ports)
    assert row_of(tmp_path, "p1").state is State.RUNNING

    with pytest.raises(RefusedError, match="may still land"), kept(tmp_path, source, alive=False):
        pytest.fail("the source was touched")

    assert row_of(tmp_path, "p1").archived is None


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_after_parts_were_noted_as_detached_no_refusal_takes_it_back(tmp_path: Path) -> None:
    """Harm prevented: dropping is refused, and the next export replaces what is detached."""
    source = exported(tmp_path)

    def refused_after_detaching(row: Archiving) -> None:
        row.note_detached((DetachedPart("p1_1_1_0", 40, 7),))
        raise CHANGED

    with pytest.raises(RefusedError, match="changed"), kept(tmp_path, source) as row:
        refused_after_detaching(row)

    found = row_of(tmp_path, "p1").archived
    assert found is not None
    assert found.detached == (DetachedPart("p1_1_1_0", 40, 7),)


def test_a_row_is_not_archived_if_nothing_beside_the_table_says_so(tmp_path: Path) -> None:
    """Harm prevented: the source is unchanged, and no export of the partition is allowed."""
    exported(tmp_path)
    noted = list[bool]()

    def note(since: int | None) -> None:
        noted.append(since is not None)
        if since is not None:
            message = "Cannot write"
            raise DestinationError(message)

    with (
        contextlib.closing(ledger_of(tmp_path)) as ledger,
        pytest.raises(DestinationError),
        archiving(
            ledger,
            row_of(tmp_path, "p1"),
            owner=ME,
            is_alive=lambda _: True,
            now=2_000_000,
            note=note,
        ),
    ):
        pytest.fail("the source was changed")

    assert (row_of(tmp_path, "p1").archived, noted) == (None, [True, False])
