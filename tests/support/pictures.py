"""Draws the pictures of the documentation: boxes and arrows, from a text, as SVG.

    python -m tests.support.pictures

draws `docs/pictures/NAME.svg` from each `docs/pictures/NAME.toml`. A text lists the boxes, each
with its column and row, and the arrows, each from a side of a box to a side of a box.

A picture has a panel of its own under everything, so that it is legible on any page, and colours
for light and for dark pages. Words stay text: readers find, copy and hear them. The widths of words
are estimated, so that the same text makes the same picture on every machine.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Self, TypeAlias
from xml.sax.saxutils import escape

from tests.repository.source_files import ROOT

__all__ = ["DARK", "LIGHT", "PICTURES", "Palette", "Picture", "draw", "text_width"]

PICTURES: Final = ROOT / "docs" / "pictures"

Point: TypeAlias = tuple[float, float]

_MARGIN: Final = 28
_PADDING: Final = (16, 12)
_TITLE: Final = 16
_SMALL: Final = 13
_LINE: Final = 18
_WIDTH: Final = 0.56
"""Of a letter of a sans-serif font, on average, in font sizes; fonts differ, so it is ample."""
_BOLD: Final = 0.64
_CORNER: Final = 8
_TIP: Final = 8
_LIFT: Final = 46
"""How far an arrow between two equal sides stays from the boxes."""
_SIDES: Final[Mapping[str, Point]] = {
    "left": (-1, 0), "right": (1, 0), "top": (0, -1), "bottom": (0, 1),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of a picture; a box is filled by its kind."""

    panel: str
    edge: str
    text: str
    label: str
    arrow: str
    boxes: Mapping[str, tuple[str, str]]
    """By kind: the fill and the line around it."""


LIGHT: Final = Palette(
    panel="#ffffff", edge="#d0d7de", text="#1b2733", label="#3d4650", arrow="#57606a",
    boxes={
        "source": ("#fff6dc", "#9a6700"),
        "lake": ("#e3f0ff", "#1f6feb"),
        "plain": ("#f1f3f5", "#6e7781"),
    },
)  # fmt: skip
DARK: Final = Palette(
    panel="#161b22", edge="#30363d", text="#f0f4f8", label="#c9d1d9", arrow="#9aa4af",
    boxes={
        "source": ("#3a2f10", "#d4a72c"),
        "lake": ("#13304f", "#58a6ff"),
        "plain": ("#262c34", "#8b949e"),
    },
)  # fmt: skip


def text_width(text: str, kind: str) -> float:
    """Return an ample estimate of how wide a text is: a `name`, a `line` or a `label`."""
    return len(text) * (_TITLE * _BOLD if kind == "name" else _SMALL * _WIDTH)


@dataclass(frozen=True, slots=True)
class Box:
    """A box: its place in the grid, and its lines, of which the first is its name."""

    name: str
    column: int
    row: int
    kind: str
    text: tuple[str, ...]

    @property
    def width(self) -> float:
        """Of the box, with room for its lines."""
        first, *others = self.text
        widths = (text_width(first, "name"), *(text_width(line, "line") for line in others))
        return max(widths) + 2 * _PADDING[0]

    @property
    def height(self) -> float:
        """Of the box, with room for its lines."""
        return _LINE * len(self.text) + 4 + 2 * _PADDING[1]


@dataclass(frozen=True, slots=True)
class Port:
    """A point on a side of a box, `part` of the way along it."""

    box: str
    side: str
    part: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `box side`, or `box side part`."""
        box, side, *part = text.split()
        if side not in _SIDES or len(part) > 1:
            message = f"Cannot draw an arrow at {text!r}: write a box, one of {sorted(_SIDES)}."
            raise ValueError(message)
        return cls(box, side, float(part[0]) if part else 0.5)


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow, and the lines of text at it; `beside` an upright one they are left or right."""

    start: Port
    end: Port
    text: tuple[str, ...]
    beside: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture, as its text says it."""

    title: str
    description: str
    gap: tuple[int, int]
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text of a picture."""
        raw = tomllib.loads(text)
        boxes = tuple(
            Box(b["name"], b["at"][0], b["at"][1], b.get("kind", "source"), tuple(b["text"]))
            for b in raw["box"]
        )
        arrows = tuple(
            Arrow(
                Port.parse(a["from"]),
                Port.parse(a["to"]),
                tuple(a["text"]),
                a.get("beside", "right"),
            )
            for a in raw["arrow"]
        )
        return cls(raw["title"], " ".join(raw["description"].split()), raw["gap"], boxes, arrows)


@dataclass(frozen=True, slots=True)
class _Placed:
    """Where a box is: its upper left corner, and its size."""

    box: Box
    left: float
    top: float
    width: float
    height: float

    def at(self, port: Port) -> Point:
        across, down = _SIDES[port.side]
        if across:
            return self.left + self.width * (across > 0), self.top + self.height * port.part
        return self.left + self.width * port.part, self.top + self.height * (down > 0)


def _place(picture: Picture) -> dict[str, _Placed]:
    """Place each box in the middle of its cell; a column is as wide as its widest box."""
    lifted = any(a.start.side == a.end.side == "top" for a in picture.arrows)
    rows = {b.row: max(o.height for o in picture.boxes if o.row == b.row) for b in picture.boxes}
    widths = {
        b.column: max(o.width for o in picture.boxes if o.column == b.column) for b in picture.boxes
    }
    lefts = _offsets(widths, picture.gap[0], _MARGIN)
    tops = _offsets(rows, picture.gap[1], _MARGIN + (_LIFT if lifted else 0))
    return {
        b.name: _Placed(b, lefts[b.column], tops[b.row], widths[b.column], rows[b.row])
        for b in picture.boxes
    }


def _offsets(sizes: Mapping[int, float], gap: int, first: float) -> dict[int, float]:
    found, at = {}, first
    for number in sorted(sizes):
        found[number] = at
        at += sizes[number] + gap
    return found


def _way(start: Point, end: Point, sides: tuple[str, str]) -> list[Point]:
    """Return the corners of an arrow, which goes straight or in right angles."""
    (x, y), (to_x, to_y) = start, end
    first, last = (_SIDES[side] for side in sides)
    if x == to_x or (y == to_y and sides[0] != sides[1]):
        return [start, end]
    if first[0] and last[0]:
        middle = (x + to_x) / 2
        return [start, (middle, y), (middle, to_y), end]
    if first[1] and last[1]:
        same = first[1] == last[1]
        middle = min(y, to_y) - _LIFT / 2 if first[1] < 0 else max(y, to_y) + _LIFT / 2
        middle = middle if same else (y + to_y) / 2
        return [start, (x, middle), (to_x, middle), end]
    return [start, (to_x, y) if first[0] else (x, to_y), end]


def draw(picture: Picture) -> str:
    """Return a picture as SVG."""
    placed = _place(picture)
    width = max(p.left + p.width for p in placed.values()) + _MARGIN
    height = max(p.top + p.height for p in placed.values()) + _MARGIN
    size = f'width="{width:.0f}" height="{height:.0f}"'
    inner = f'width="{width - 1:.0f}" height="{height - 1:.0f}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" {size}',
        'role="img" aria-labelledby="title description">',
        f'<title id="title">{escape(picture.title)}</title>',
        f'<desc id="description">{escape(picture.description)}</desc>',
        "<style>",
        *_style(),
        "</style>",
        f'<rect class="panel" x="0.5" y="0.5" {inner} rx="{_CORNER}"/>',
    ]
    for arrow in picture.arrows:
        lines += _arrow(arrow, placed)
    for one in placed.values():
        lines += _box(one)
    return "\n".join((*lines, "</svg>", ""))


def _style() -> Iterator[str]:
    yield "text { font-family: system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; }"
    yield f".name {{ font-size: {_TITLE}px; font-weight: 600; text-anchor: middle; }}"
    yield f".line {{ font-size: {_SMALL}px; text-anchor: middle; }}"
    yield f".label {{ font-size: {_SMALL}px; }}"
    yield ".way { fill: none; stroke-width: 1.5; }"
    yield from _colours(LIGHT)
    yield "@media (prefers-color-scheme: dark) {"
    yield from _colours(DARK)
    yield "}"


def _colours(palette: Palette) -> Iterator[str]:
    yield f".panel {{ fill: {palette.panel}; stroke: {palette.edge}; }}"
    yield f".name, .line {{ fill: {palette.text}; }}"
    yield f".label {{ fill: {palette.label}; }}"
    yield f".way {{ stroke: {palette.arrow}; }}"
    yield f".tip {{ fill: {palette.arrow}; }}"
    for kind, (fill, edge) in palette.boxes.items():
        yield f".{kind} {{ fill: {fill}; stroke: {edge}; stroke-width: 1.5; }}"


def _box(one: _Placed) -> Iterator[str]:
    yield (
        f'<rect class="{one.box.kind}" x="{one.left:.1f}" y="{one.top:.1f}"'
        f' width="{one.width:.1f}" height="{one.height:.1f}" rx="{_CORNER}"/>'
    )
    first, *others = one.box.text
    middle, top = one.left + one.width / 2, one.top + (one.height - one.box.height) / 2
    yield _text("name", middle, top + _PADDING[1] + _TITLE, first)
    for number, line in enumerate(others, 1):
        yield _text("line", middle, top + _PADDING[1] + _TITLE + 4 + number * _LINE, line)


def _text(kind: str, x: float, y: float, text: str, anchor: str = "") -> str:
    where = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{where}>{escape(text)}</text>'


def _arrow(arrow: Arrow, placed: Mapping[str, _Placed]) -> Iterator[str]:
    start, end = (placed[port.box].at(port) for port in (arrow.start, arrow.end))
    corners = _way(start, end, (arrow.start.side, arrow.end.side))
    across, down = _SIDES[arrow.end.side]
    (x, y), half = end, _TIP / 2
    foot = x + across * _TIP, y + down * _TIP
    yield f'<path class="way" d="{_path([*corners[:-1], foot])}"/>'
    sides = [(foot[0] + n * down * half, foot[1] + n * across * half) for n in (-1, 1)]
    yield f'<path class="tip" d="{_path([end, *sides])} Z"/>'
    yield from _label(arrow, corners)


def _path(points: Sequence[Point]) -> str:
    return " ".join(f"{'L' if n else 'M'} {x:.1f} {y:.1f}" for n, (x, y) in enumerate(points))


def _label(arrow: Arrow, corners: Sequence[Point]) -> Iterator[str]:
    """Write the text above the longest level piece of an arrow, or beside an upright one."""
    pieces = list(pairwise(corners))
    level = [p for p in pieces if p[0][1] == p[1][1]]
    (x, y), (to_x, to_y) = max(level or pieces, key=_length)
    x, y, count = (x + to_x) / 2, (y + to_y) / 2, len(arrow.text)
    if level:
        for number, line in enumerate(arrow.text):
            yield _text("label", x, y - 7 - _LINE * (count - 1 - number), line, "middle")
        return
    side = -1 if arrow.beside == "left" else 1
    for number, line in enumerate(arrow.text):
        down = y + _SMALL / 3 + _LINE * (number - (count - 1) / 2)
        yield _text("label", x + side * 8, down, line, "start" if side > 0 else "end")


def _length(piece: tuple[Point, Point]) -> float:
    (x, y), (to_x, to_y) = piece
    return abs(to_x - x) + abs(to_y - y)


def main(folder: Path = PICTURES) -> None:
    """Draw every picture."""
    for source in sorted(folder.glob("*.toml")):
        picture = Picture.parse(source.read_text(encoding="utf-8"))
        source.with_suffix(".svg").write_text(draw(picture), encoding="utf-8")
        sys.stdout.write(f"{source.with_suffix('.svg')}\n")


if __name__ == "__main__":
    main()
