"""The pictures are what their texts say, and people can read them."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest

from tests.repository.source_files import ROOT
from tests.support.pictures import DARK, LIGHT, PICTURES, Palette, Picture, draw, text_width

SOURCES: Final = sorted(PICTURES.glob("*.toml"))
SVG: Final = "{http://www.w3.org/2000/svg}"
OF_TEXT: Final = 7.0
OF_LINES: Final = 3.0
"""The least contrasts of WCAG 2: of text at level AAA, of what is no text."""

Area = tuple[float, float, float, float]


def luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2."""
    parts = (int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def areas(picture: ET.Element, kind: str, *classes: str) -> list[tuple[str, Area]]:
    """Return rectangles or texts of some classes: left, top, right, bottom."""
    found = []
    for one in picture.iter(f"{SVG}{kind}"):
        if one.attrib["class"] not in classes:
            continue
        x, y = float(one.attrib["x"]), float(one.attrib["y"])
        if kind == "rect":
            area = (x, y, x + float(one.attrib["width"]), y + float(one.attrib["height"]))
            found.append((one.attrib["class"], area))
            continue
        text = one.text or ""
        width = text_width(text, one.attrib["class"])
        left = x - width * {"start": 0, "end": 1}.get(one.attrib.get("text-anchor", ""), 0.5)
        found.append((text, (left, y - 13, left + width, y + 4)))
    return found


def overlap(one: Area, other: Area) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def inside(one: Area, other: Area) -> bool:
    return other[0] <= one[0] and other[1] <= one[1] and one[2] <= other[2] and one[3] <= other[3]


def test_there_are_pictures_and_each_has_a_text() -> None:
    assert len(SOURCES) >= 2
    assert sorted(PICTURES.glob("*.svg")) == [s.with_suffix(".svg") for s in SOURCES]


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.stem)
def test_a_picture_is_what_its_text_says(source: Path) -> None:
    """Mend it with `python -m tests.support.pictures`."""
    drawn = draw(Picture.parse(source.read_text(encoding="utf-8")))

    assert source.with_suffix(".svg").read_text(encoding="utf-8") == drawn


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_every_word_and_line_stands_out_from_what_is_under_it(palette: Palette) -> None:
    assert contrast(palette.label, palette.panel) >= OF_TEXT
    assert contrast(palette.arrow, palette.panel) >= OF_LINES
    for fill, edge in palette.boxes.values():
        assert contrast(palette.text, fill) >= OF_TEXT
        assert contrast(edge, palette.panel) >= OF_LINES


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.stem)
def test_no_text_leaves_its_box_or_covers_another(source: Path) -> None:
    picture = ET.fromstring(source.with_suffix(".svg").read_text(encoding="utf-8"))  # noqa: S314  ours
    (_, panel), *more = areas(picture, "rect", "panel")
    boxes = [area for _, area in areas(picture, "rect", *LIGHT.boxes)]
    words = areas(picture, "text", "name", "line")
    labels = areas(picture, "text", "label")

    assert not more
    assert len(words) > len(boxes) > 3
    assert [w for w, area in words if not any(inside(area, box) for box in boxes)] == []
    assert [w for w, area in labels if not inside(area, panel)] == []
    assert [w for (w, area), box in product(labels, boxes) if overlap(area, box)] == []
    assert [
        (one[0], other[0])
        for one, other in product(labels, labels)
        if one < other and overlap(one[1], other[1])
    ] == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.stem)
def test_a_picture_has_a_text_for_readers_who_do_not_see_it(source: Path) -> None:
    picture = ET.fromstring(source.with_suffix(".svg").read_text(encoding="utf-8"))  # noqa: S314  ours
    texts = [picture.find(f"{SVG}{name}") for name in ("title", "desc")]

    assert picture.attrib["role"] == "img"
    assert picture.attrib["aria-labelledby"].split() == [
        one.attrib["id"] for one in texts if one is not None
    ]
    title, text = (one.text or "" for one in texts if one is not None)
    assert 20 < len(title) < 80
    assert len(text) > 200


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.stem)
def test_every_picture_is_shown_on_a_page_with_a_text_in_its_place(source: Path) -> None:
    shown = [
        alternative
        for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
        for alternative, link in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text())
        if (page.parent / link).resolve() == source.with_suffix(".svg")
    ]

    assert shown
    assert all(len(alternative) > 20 for alternative in shown)
