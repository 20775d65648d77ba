"""The tour of the code leads along the way that real commands take."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from tests.repository.source_files import ROOT, names_in, source_files
from tests.repository.structure import entered

PACKAGES: Final = ("tableformat", "catalog", "spark_ext")
PAGE: Final = ROOT / "docs" / "tour.md"
COMMANDS: Final = {
    "An export": "export",
    "A statement on a lake table": "detach",
    "A CALL in Spark SQL": "call",
}
STOP: Final = re.compile(r"(?m)^\d+\. \[`([^`]+)`\]\(\.\./([^)]+)\), `([\w.]+)`: ")


def stops() -> Mapping[str, Sequence[tuple[str, str]]]:
    """Return the files and functions of each part of the tour, in its order, by command."""
    _, *parts = re.split(r"(?m)^## ", PAGE.read_text(encoding="utf-8"))
    found = {}
    for part in parts:
        title, _, text = part.partition("\n")
        named = STOP.findall(text)
        assert len(named) == len(re.findall(r"(?m)^\d+\. ", text)), title
        assert all(shown == link for shown, link, _ in named), title
        found[COMMANDS[title]] = [(path, own) for path, _, own in named]
    return found


def missing(tour: Sequence[tuple[str, str]], way: Sequence[tuple[str, str]]) -> list[str]:
    """Return what of a tour is not on a way, or not where the tour has it."""
    places = {function: number for number, function in enumerate(way)}
    wrong, last = [], -1
    for path, own in tour:
        place = places.get((path, own), -1)
        if place < last or place < 0:
            wrong.append(f"{path}, {own}")
        last = max(last, place)
    return wrong


def test_a_stop_that_is_not_on_the_way_or_comes_too_late_is_found() -> None:
    way = [("a.py", "f"), ("b.py", "C.g"), ("c.py", "h")]

    assert missing([("a.py", "f"), ("c.py", "h")], way) == []
    assert missing([("c.py", "h"), ("a.py", "f")], way) == ["a.py, f"]
    assert missing([("a.py", "f"), ("b.py", "g")], way) == ["b.py, g"]


def test_every_stop_of_the_tour_is_a_function_of_its_file() -> None:
    trees = {f.path: f.tree for f in source_files(*PACKAGES)}
    found = [stop for tour in stops().values() for stop in tour]

    assert stops().keys() == set(COMMANDS.values())
    assert [
        (path, own) for path, own in found if path not in trees or own not in names_in(trees[path])
    ] == []


def test_the_tour_of_an_export_has_nine_files() -> None:
    assert len({path for path, _ in stops()["export"]}) == len(stops()["export"]) == 9


def test_the_architecture_names_every_folder_of_the_product() -> None:
    text = (ROOT / "docs" / "contributing" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"(?m)^\| `([\w/]+)/` \|", text)
    folders = {file.path.rpartition("/")[0] for file in source_files(*PACKAGES)}

    assert sorted(named) == sorted(folders)


@pytest.mark.spark
@pytest.mark.nightly
def test_the_tour_follows_the_way_of_real_commands() -> None:
    """Harm prevented: somebody who wants to change the commit reads what no export enters."""
    ways = entered()

    wrong = {name: missing(tour, ways[name]) for name, tour in stops().items()}
    assert wrong == {name: [] for name in COMMANDS.values()}
