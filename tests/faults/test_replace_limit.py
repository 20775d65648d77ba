"""The limit of replaced partitions holds also if partitions change after the plan was made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from catalog.shards import LocalTable
from catalog.sources import SourcePlace
from spark_ext.actions.export import export_tables
from tableformat.errors import RefusedError, SourceError
from tableformat.export.job import ExportRequest
from tableformat.export.ports import JobPorts
from tableformat.export.request import ExportOptions, ReplaceLimit
from tableformat.messages import plain
from tests.support.fakes import TABLE
from tests.support.scenarios import (
    ALL,
    FORCED,
    Partitions,
    in_shard,
    parts_of,
    ports_of,
    pyiceberg,
    rows_in_main,
    run,
    statuses,
)

IDENTITIES = ("uuid:00000000-0000-4000-8000-00000000000a", TABLE.identity)


class Shards:
    """Two tables of one name, with the partitions p1 and p2, and p1 and p3."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.down = ""
        self.sources = {
            name: Partitions(
                table=replace(TABLE, identity=identity),
                by_id=in_shard(name, {one: parts_of(one, 2) for one in ("p1", other)}),
            )
            for name, identity, other in zip(("one", "two"), IDENTITIES, ("p2", "p3"), strict=True)
        }

    def opened(self, place: SourcePlace) -> JobPorts:
        if place.uri == self.down:
            raise SourceError(f"Cannot reach {place.uri}: Connection refused. Start it.")
        return ports_of(self.directory, self.sources[place.uri])

    def export(self, request: ExportRequest) -> int:
        tables = [
            LocalTable(SourcePlace(name), TABLE.name, shard)
            for shard, name in enumerate(self.sources, start=1)
        ]
        return export_tables(request, tables, self.opened, slots=1, note=lambda _: None)


def limited(most: int) -> ExportRequest:
    return replace(ALL, options=ExportOptions(force=True, max_replace=most))


def test_the_partitions_of_all_shards_are_counted_before_the_first_export(tmp_path: Path) -> None:
    """Harm prevented: the first shard is replaced, and the second one refuses too late."""
    shards = Shards(tmp_path)
    assert shards.export(ALL) == 0
    before = pyiceberg(tmp_path).metadata_location

    with pytest.raises(RefusedError, match=r"3 would be replaced \(p1, p2, p3\)"):
        shards.export(limited(2))

    assert pyiceberg(tmp_path).metadata_location == before
    assert shards.export(limited(3)) == 0


def test_a_shard_that_is_down_leaves_the_limit_in_force(tmp_path: Path) -> None:
    shards = Shards(tmp_path)
    assert shards.export(ALL) == 0
    shards.down = "two"

    with pytest.raises(RefusedError, match=r"2 would be replaced \(p1, p2\)"):
        shards.export(limited(1))
    refused = pyiceberg(tmp_path).metadata_location
    with pytest.raises(SourceError, match="Cannot export from 1 of 2 shards: shard 2"):
        shards.export(limited(2))

    assert pyiceberg(tmp_path).metadata_location != refused


def test_a_run_replaces_no_more_than_its_limit(tmp_path: Path) -> None:
    """Harm prevented: merges while a long run works replace what its plan did not have."""
    source = Partitions(by_id={f"p{n}": parts_of(f"p{n}", 2) for n in (1, 2, 3)})
    run(tmp_path, source)
    source.by_id = {f"p{n}": parts_of(f"p{n}", 5) for n in (1, 2, 3, 4)}
    ports = replace(ports_of(tmp_path, source), replacements=ReplaceLimit(2))

    found = run(tmp_path, source, request=FORCED, ports=ports)

    assert statuses(found) == ["replaced", "replaced", "refused", "committed"]
    (refused,) = (one for one in found if one.status.value == "refused")
    assert "one more than --max-replace allows (2)" in plain(refused.message)
    assert rows_in_main(tmp_path) == 5 + 5 + 2 + 5


def test_another_host_of_the_source_continues_with_the_same_count() -> None:
    limit = ReplaceLimit(1)

    first = [limit.allows(one) for one in ("p1", "p2")]
    again = [limit.allows(one) for one in ("p2", "p1")]

    assert (first, again) == ([True, False], [False, True])
