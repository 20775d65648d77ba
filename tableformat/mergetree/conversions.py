"""Defines the conversions of `--convert column=HOW`, the faithfulness classes and value limits.

The text of a conversion is the user's input and is stored in the lake table.
`tableformat/mergetree/wire_types.py` lists the conversions that each type accepts. The classes
are those of docs/reference/types.md:

    A  lossless by type
    B  lossless, but another kind of value (an Enum becomes its label); `--strict` refuses it
    C  depends on the data, which is checked before the commit
    D  refused unless the user names a conversion

A `Limit` describes values of class C: ClickHouse allows the value, Iceberg cannot hold it. It has
the text of the error message and the SQL condition that is true for such a value (`{}` stands for
the value). The functions of this module build the SQL of limits that need a calculation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Final

from tableformat.mergetree.types import DataType
from tableformat.messages import convert

__all__ = [
    "DEFAULT",
    "DEFAULT_WORD",
    "DIGITS",
    "FINER",
    "FIXED_UTF8",
    "JSON_UTF8",
    "LONG",
    "RANGE",
    "RING",
    "TOO_FINE",
    "TOO_LONG",
    "TWICE",
    "UTF8",
    "YEARS",
    "Conversion",
    "Faithfulness",
    "Handling",
    "Limit",
    "Meaning",
    "TypeConversions",
    "WireValue",
    "beyond_microseconds",
    "beyond_years",
    "finer_than",
    "longer_than",
    "more_digits_than",
    "parse_conversion",
]

_MICROSECONDS: Final = 6
_GREATEST_LONG: Final = 2**63 - 1
# ClickHouse clamps the text of instants to the years 0 to 9999.
_FIRST_SECOND: Final = -62_167_219_200
_LAST_SECOND: Final = 253_402_300_799


@dataclass(frozen=True, slots=True)
class Limit:
    """A property of values that Iceberg cannot represent, and the remedy.

    `{column}` in the remedy is to be filled in.

    `always`: the check runs before the export, because writing the file raises no error. The other
    limits only explain an error.
    """

    what: str
    way_round: str
    always: bool = False


def _convert(conversion: str) -> str:
    """Return the mark of a conversion of the column that is to be filled in."""
    return convert("{column}", conversion)


UTF8: Final = Limit("not valid UTF-8", f"export the bytes with {_convert('binary')}")
FIXED_UTF8: Final = Limit(
    "not valid UTF-8", f"leave {_convert('string')} out: FixedString is fixed bytes by default"
)
JSON_UTF8: Final = Limit("not valid UTF-8 as JSON text", "correct the texts inside")
LONG: Final = Limit(
    "greater than 9223372036854775807, the greatest long",
    f"leave {_convert('long')} out: UInt64 is decimal(20,0) by default",
)
DIGITS: Final = Limit(
    "of more digits than its Decimal type allows",
    f"correct the rows, export with a wider {_convert('decimal(P,S)')}, or ALTER TABLE … "
    "MODIFY COLUMN to a Decimal of more digits",
)
TOO_LONG: Final = Limit(
    "of more than 38 digits, the most that a decimal holds",
    "leave the conversion of {column} out: it is text by default",
    # toDecimal128 reads the greater half of UInt256 as negative numbers, without an error.
    always=True,
)
TOO_FINE: Final = Limit(
    "of more digits than the chosen decimal has, before or after the point",
    "choose another scale, or leave the conversion of {column} out: it is text by default",
    always=True,
)
RANGE: Final = Limit(
    "outside the instants that 64 bits of microseconds hold",
    f"correct the rows, or keep the ticks with {_convert('long')}",
)
FINER: Final = Limit(
    "not whole microseconds, the finest that the lake keeps",
    f"cut the rest off with {_convert('truncate')}, or keep it with {_convert('long')}",
    always=True,
)
YEARS: Final = Limit(
    "outside the years 0 to 9999, which ClickHouse writes as another time",
    f"export the ticks with {_convert('long')}",
    always=True,
)
RING: Final = Limit(
    "a Ring, which ClickHouse does not write as well-known binary",
    f"leave {_convert('wkb')} out, or store the Ring as a Polygon",
)
TWICE: Final = Limit(
    "a Map that has a key twice, which readers treat differently",
    "keep one of the two in ClickHouse",
    always=True,
)


def longer_than(digits: int) -> str:
    """Return SQL that is true for an integer of more than `digits` digits."""
    return f"length(replaceOne(toString({{}}), '-', '')) > {digits}"


def more_digits_than(precision: int, scale: int) -> str:
    """Return SQL that is true for a Decimal of that scale with more digits than the precision.

    It compares text: a literal of that size has no type in some server versions.
    """
    whole = _side_of_point(1)
    return f"length({whole}) > {precision - scale}" if precision > scale else f"{whole} != '0'"


def finer_than(precision: int, scale: int) -> str:
    """Return SQL that is true for a Decimal that `Decimal(precision, scale)` cannot represent."""
    return f"({more_digits_than(precision, scale)} OR length({_side_of_point(2)}) > {scale})"


def beyond_microseconds(precision: int) -> str:
    """Return SQL that is true for a coarse DateTime64 outside 64 bits of microseconds."""
    greatest = _GREATEST_LONG // 10 ** (_MICROSECONDS - precision)
    return _outside(-greatest, greatest)


def beyond_years(precision: int) -> str:
    """Return SQL that is true for a DateTime64 outside the years of four digits."""
    ticks = 10**precision
    first, last = _FIRST_SECOND * ticks, (_LAST_SECOND + 1) * ticks - 1
    return _outside(max(first, -_GREATEST_LONG - 1), min(last, _GREATEST_LONG))


def _side_of_point(side: int) -> str:
    return f"splitByChar('.', replaceOne(toString({{}}), '-', ''))[{side}]"


def _outside(first: int, last: int) -> str:
    ticks = "reinterpretAsInt64({})"
    return f"({ticks} > {last} OR {ticks} < {first})"


_DECIMAL: Final = re.compile(r"decimal\(\s*(?P<precision>\d{1,3})\s*,\s*(?P<scale>\d{1,3})\s*\)")


@dataclass(frozen=True, slots=True)
class Conversion:
    """A conversion: its word, and the digits of `decimal(P,S)`. The word '' is the default."""

    word: str
    digits: tuple[int, int] | None = None

    def __str__(self) -> str:
        """Return the text form."""
        return self.word if self.digits is None else f"decimal({self.digits[0]},{self.digits[1]})"


DEFAULT: Final = Conversion("")
DEFAULT_WORD: Final = "default"
"""The user's word for no conversion, of a column whose type has one."""


def parse_conversion(text: str) -> Conversion:
    """Parse a conversion. An unknown word is a conversion that no type takes."""
    found = _DECIMAL.fullmatch(text.strip())
    if found is None:
        return DEFAULT if text.strip() == DEFAULT_WORD else Conversion(text.strip())
    return Conversion("decimal", (int(found["precision"]), int(found["scale"])))


class Faithfulness(StrEnum):
    """How Iceberg represents a value. A column is B if anything inside is B, else C, else A."""

    LOSSLESS = "A"
    OTHER_KIND = "B"
    CHECKED = "C"


class Handling(Enum):
    """How to export a type that is not a single value."""

    BY_ELEMENT = auto()
    """Its elements are exported: those of an array, the alternatives of a Variant."""
    REFUSED = auto()


@dataclass(frozen=True, slots=True)
class WireValue:
    """The values of one type as they leave ClickHouse.

    `sql` computes one from `{}`, a ClickHouse value that is never NULL; '' is a CAST to `type`.
    `is_text`: bytes on the wire are text. `limit` is a restriction of Iceberg that ClickHouse does
    not have, and `bad` the SQL that is true for a value outside it. `meaning` says what the stored
    value stands for if its type does not: ticks of some unit, text in a form of its own. '' is the
    value itself, its text as a CAST to String gives it, and the number of an Enum or of an IPv4.
    """

    type: DataType
    faithfulness: Faithfulness
    note: str = ""
    sql: str = ""
    is_text: bool = True
    limit: Limit | None = None
    bad: str = ""
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What the stored values of a lake column stand for; one column holds values of one meaning.

    Values of one `kind` fit into one column. `text` is that of `WireValue.meaning`.
    """

    kind: str
    text: str

    def __str__(self) -> str:
        """Return the words of messages."""
        return self.text or f"plain values of kind {self.kind}"

    def contradicts(self, other: Meaning) -> bool:
        """Whether both fit into one column, and a reader could not tell them apart."""
        return self.kind == other.kind and self.text != other.text


@dataclass(frozen=True, slots=True)
class TypeConversions:
    """The default of a type, and its conversions by word; `decimal` serves those with digits."""

    default: WireValue | Handling
    words: Mapping[str, WireValue | Handling] = field(default_factory=dict)
    decimal: Callable[[int, int], WireValue | None] = lambda _precision, _scale: None
    decimal_text: str = ""

    def chosen(self, conversion: Conversion) -> WireValue | Handling | None:
        """Return the result of a conversion, None if the type does not take it."""
        if conversion.digits is not None:
            return self.decimal(*conversion.digits)
        return self.words.get(conversion.word)
