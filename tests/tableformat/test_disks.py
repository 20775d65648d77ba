"""The disks and volumes of a lake table: which file is where, and where what is moved goes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.committer import LakeTableState, Layout
from tableformat.disks import DISK_PREFIX, OWN_DISK, VOLUME_PREFIX, Disks
from tableformat.errors import NotFoundError, RefusedError

UUID = "0b9a0000-0000-4000-8000-000000000001"
STATE = LakeTableState(
    layout=Layout(UUID, 0, 0, 0),
    format_version=2,
    location="s3://lake/n/t",
    main=None,
    last_sequence_number=0,
    properties={},
    snapshots={},
    metadata_location="",
)
NAMES = st.text("abcXYZ019_-. é", min_size=1, max_size=6).filter(
    lambda name: name.strip() == name and name != OWN_DISK
)
PLACES = st.builds(
    lambda head, below, slash: head + "/".join(below) + slash,
    st.sampled_from(["s3://b/", "file:///", "/", "gs://b/", "s3://lake/n/t/data/"]),
    st.lists(st.sampled_from(["a", "a%2Fb", "a b", UUID]), min_size=1, max_size=3),
    st.sampled_from(["", "/", "//"]),
)


def disks(properties: dict[str, str]) -> Disks:
    return Disks.of(replace(STATE, properties=properties))


@given(st.dictionaries(NAMES, PLACES, max_size=5), st.data())
def test_a_file_is_on_the_disk_that_it_was_moved_to(
    given_places: dict[str, str], data: st.DataObject
) -> None:
    """Harm prevented: a file is moved again and again, or never, or next to another table's."""
    found = disks({DISK_PREFIX + name: place for name, place in given_places.items()})
    name = data.draw(st.sampled_from([OWN_DISK, *given_places]))
    directory = data.draw(st.sampled_from(["", "p=1", "p=1/q=a%2Fb"]))

    to = found.disk(name, "Cannot")
    path = "/".join(part for part in (to.places[0], directory, "f.parquet") if part)

    assert found.place_of(path) == to.places[0]
    assert found.place_for_replacement(path) == to.places[0]
    assert found.directory_of(path) == directory
    on = found.disk_of(path)
    assert on is not None
    assert found.places[on] == found.places[name]
    if name != OWN_DISK:
        assert to.places[0].endswith(f"/{UUID}")
    assert found.disk_of(f"s3://elsewhere/{UUID}x/f.parquet") is None


@given(
    st.lists(NAMES.filter(lambda n: "," not in n), min_size=1, max_size=4, unique=True),
    st.sampled_from([",", ", ", " ,"]),
)
def test_a_volume_is_its_disks_in_their_order(names: list[str], comma: str) -> None:
    properties = {DISK_PREFIX + name: f"s3://b/{n}" for n, name in enumerate(names)}
    found = disks({**properties, VOLUME_PREFIX + "v": comma.join(names)})

    to = found.volume("v", "Cannot")

    assert to.places == tuple(f"s3://b/{n}/{UUID}" for n in range(len(names)))
    assert str(to) == "VOLUME 'v'"
    assert found.volume(OWN_DISK, "Cannot").places == ("s3://lake/n/t/data",)


def test_a_missing_disk_is_reported_with_the_existing_ones() -> None:
    found = disks({"mergeberg.disk.cold": "s3://b", "mergeberg.volume.v": "cold, nope"})

    with pytest.raises(NotFoundError, match=r"No such disk `nope`.* are cold, default") as disk:
        found.disk("nope", "Cannot run it")
    with pytest.raises(NotFoundError, match=r"No such volume `w`.* are default, v") as volume:
        found.volume("w", "Cannot run it")
    with pytest.raises(NotFoundError, match="No such disk `nope`") as of_volume:
        found.volume("v", "Cannot run it")

    assert [e.value.code for e in (disk, volume, of_volume)] == [479, 548, 479]


@pytest.mark.parametrize("place", ["", "cold", "./cold", "bucket/cold"])
def test_a_place_that_depends_on_where_it_is_asked_is_refused(place: str) -> None:
    """Harm prevented: files go below the directory in which the command was started."""
    with pytest.raises(RefusedError, match=f"mergeberg.disk.cold is '{place}', and no absolute"):
        disks({"mergeberg.disk.cold": place}).disk("cold", "Cannot run it")


@pytest.mark.parametrize(
    "place",
    [
        "s3://b/a#1",
        "s3://b/a?x=1",
        "/mnt/a//b",
        "s3://b//a",
        "//mnt/a",
        "file:///mnt/./a",
        "/mnt/..",
    ],
)
def test_nothing_is_moved_to_a_place_that_other_engines_read_as_another(place: str) -> None:
    """Harm prevented: rows that were moved can be read here, and by nobody else."""
    found = disks({DISK_PREFIX + "cold": place, VOLUME_PREFIX + "slow": "cold"})

    for to in (found.disk, found.volume):
        with pytest.raises(RefusedError, match="other engines") as refused:
            to("cold" if to == found.disk else "slow", "Cannot")
        assert (refused.value.code, place in refused.value.message) == (36, True)


def test_files_come_back_to_where_the_table_itself_is_whatever_its_name() -> None:
    odd = replace(STATE, location="file:///mnt//a?/t")

    assert Disks.of(odd).disk(OWN_DISK, "Cannot").places == ("file:///mnt//a?/t/data",)


def test_copies_of_files_may_be_in_their_directory_of_every_disk_or_anywhere() -> None:
    found = disks({DISK_PREFIX + "cold": "s3://b"})
    own, cold = "s3://lake/n/t/data", f"s3://b/{UUID}"

    assert found.alike([f"{cold}/p=1/a", f"{own}/p=2/b", "s3://else/where/c"]) == {
        f"{place}/{directory}" for place in (own, cold) for directory in ("p=1", "p=2")
    }
    assert found.alike([f"{own}/a"]) == found.alike([]) == {own, cold}


def test_only_paths_on_the_own_disk_have_hashes() -> None:
    """Harm prevented: copies on another disk that were only started are not found again."""
    found = disks({f"{DISK_PREFIX}cold": "s3://cold", "write.object-storage.enabled": "true"})
    own, cold = found.places[OWN_DISK], found.places["cold"]

    path = found.new_path("p=1", "f.parquet")

    assert path == "s3://lake/n/t/data/0100/0101/0100/00011001/p=1/f.parquet"
    assert found.directory_of(path) == "p=1"
    assert found.place_of(path) == own
    assert found.new_path("p=1", "f.parquet", cold) == f"{cold}/p=1/f.parquet"
    assert found.alike([path]) == {f"{own}/p=1", f"{cold}/p=1"}
