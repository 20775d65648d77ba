"""What `--convert column=HOW` says, and what a type can become: the words of the mapping.

The text of a conversion is what the user types and what a lake table remembers. Which type takes
which one is the table of `wire_values.py`. How faithful a value is (types.md section 3):

    A  lossless by type
    B  lossless, but another kind of value (an Enum becomes its label); `--strict` refuses it
    C  depends on the data, which is checked before the commit
    D  refused unless the user names a conversion
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Final

from tableformat.mergetree.limits import Limit
from tableformat.mergetree.types import DataType

__all__ = [
    "DEFAULT",
    "Conversion",
    "Faithfulness",
    "Fate",
    "Ways",
    "WireValue",
    "parse_conversion",
]

_DECIMAL: Final = re.compile(r"decimal\(\s*(?P<precision>\d{1,3})\s*,\s*(?P<scale>\d{1,3})\s*\)")


@dataclass(frozen=True, slots=True)
class Conversion:
    """A conversion: its word, and for `decimal(P,S)` the digits. The word '' is the default."""

    word: str
    digits: tuple[int, int] | None = None

    def __str__(self) -> str:
        """Return the text form."""
        return self.word if self.digits is None else f"decimal({self.digits[0]},{self.digits[1]})"


DEFAULT: Final = Conversion("")


def parse_conversion(text: str) -> Conversion:
    """Read a conversion. Any word is one: a word that nobody knows is one that no type takes."""
    found = _DECIMAL.fullmatch(text.strip())
    if found is None:
        return Conversion(text.strip())
    return Conversion("decimal", (int(found["precision"]), int(found["scale"])))


class Faithfulness(StrEnum):
    """How a value stands in Iceberg. A column is B if anything inside is B, else C, else A."""

    LOSSLESS = "A"
    OTHER_KIND = "B"
    CHECKED = "C"


class Fate(Enum):
    """What becomes of a type that is not one value."""

    APART = auto()
    """It is taken apart: an array into elements, a Variant into its alternatives."""
    REFUSED = auto()


@dataclass(frozen=True, slots=True)
class WireValue:
    """The values of one type as they leave ClickHouse.

    `sql` gives one, `{}` stands for the value in ClickHouse, which is never NULL; '' is a CAST to
    `type`. `is_text` says whether bytes on the wire are text. `limit` is what the data must keep
    and ClickHouse does not, `bad` the SQL that is true where it is broken.
    """

    type: DataType
    faithfulness: Faithfulness
    note: str = ""
    sql: str = ""
    is_text: bool = True
    limit: Limit | None = None
    bad: str = ""


@dataclass(frozen=True, slots=True)
class Ways:
    """The default of a type, and its conversions by word; `decimal` makes those of given digits."""

    default: WireValue | Fate
    words: Mapping[str, WireValue | Fate] = field(default_factory=dict)
    decimal: Callable[[int, int], WireValue | None] = lambda _precision, _scale: None
    decimal_text: str = ""

    def chosen(self, conversion: Conversion) -> WireValue | Fate | None:
        """Return what a conversion makes of the type, None when the type does not take it."""
        if conversion.digits is not None:
            return self.decimal(*conversion.digits)
        return self.words.get(conversion.word)
