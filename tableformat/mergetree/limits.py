"""The limits of values: what a message says of each, and the SQL that finds who breaks it.

Class C of the mapping: ClickHouse allows such a value in the data, and Iceberg does not hold it.

The list is types.md section 3. A limit is its words; the SQL that is true where a value breaks it,
`{}` being the value, belongs to the type and is made here where it takes some calculation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = [
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
    "Limit",
    "beyond_microseconds",
    "beyond_years",
    "finer_than",
    "longer_than",
    "more_digits_than",
]

_MICROSECONDS: Final = 6
_GREATEST_LONG: Final = 2**63 - 1
# ClickHouse writes instants outside the years 0 to 9999 as the nearest one inside.
_FIRST_SECOND: Final = -62_167_219_200
_LAST_SECOND: Final = 253_402_300_799


@dataclass(frozen=True, slots=True)
class Limit:
    """What a value may be that Iceberg cannot hold, and what the user can do; `{column}` is filled.

    `always` asks beforehand, because no error comes when the file is written; the others only
    explain one.
    """

    what: str
    way_round: str
    always: bool = False


UTF8: Final = Limit("not valid UTF-8", "export the bytes with --convert {column}=binary")
FIXED_UTF8: Final = Limit(
    "not valid UTF-8", "leave --convert {column}=string out: FixedString is fixed bytes by default"
)
JSON_UTF8: Final = Limit("not valid UTF-8 as JSON text", "correct the texts inside")
LONG: Final = Limit(
    "greater than 9223372036854775807, the greatest long",
    "leave --convert {column}=long out: UInt64 is decimal(20,0) by default",
)
DIGITS: Final = Limit(
    "of more digits than its Decimal type allows",
    "correct the rows, export with a wider --convert {column}=decimal(P,S), or ALTER TABLE … "
    "MODIFY COLUMN to a Decimal of more digits",
)
TOO_LONG: Final = Limit(
    "of more than 38 digits, the most that a decimal holds",
    "leave the conversion of {column} out: it is text by default",
    # toDecimal128 takes the greatest half of UInt256 for negative numbers, without an error.
    always=True,
)
TOO_FINE: Final = Limit(
    "of digits that the chosen decimal has no place for, before or behind the point",
    "choose another scale, or leave the conversion of {column} out: it is text by default",
    always=True,
)
RANGE: Final = Limit("outside the instants that 64 bits of microseconds hold", "correct the rows")
FINER: Final = Limit(
    "not whole microseconds, the finest that the lake keeps",
    "cut the rest off with --convert {column}=truncate, or keep it with --convert {column}=long",
    always=True,
)
YEARS: Final = Limit(
    "outside the years 0 to 9999, which ClickHouse writes as another time",
    "export the ticks with --convert {column}=long",
    always=True,
)
RING: Final = Limit(
    "a Ring, which ClickHouse does not write as well-known binary",
    "leave --convert {column}=wkb out, or store the Ring as a Polygon",
)
TWICE: Final = Limit(
    "a Map that holds a key twice, which readers answer differently",
    "keep one of the two in ClickHouse",
    always=True,
)


def longer_than(digits: int) -> str:
    """Return SQL that is true for a whole number of more than `digits` digits."""
    return f"length(replaceOne(toString({{}}), '-', '')) > {digits}"


def more_digits_than(precision: int, scale: int) -> str:
    """Return SQL that is true for a Decimal of that scale with more digits than the precision.

    Compared as text: a literal of that size has no type of its own in every server version.
    """
    whole = _side_of_point(1)
    return f"length({whole}) > {precision - scale}" if precision > scale else f"{whole} != '0'"


def finer_than(precision: int, scale: int) -> str:
    """Return SQL that is true for a Decimal that `Decimal(precision, scale)` does not hold."""
    return f"({more_digits_than(precision, scale)} OR length({_side_of_point(2)}) > {scale})"


def beyond_microseconds(precision: int) -> str:
    """Return SQL that is true for a coarse DateTime64 that 64 bits of microseconds cannot count."""
    greatest = _GREATEST_LONG // 10 ** (_MICROSECONDS - precision)
    return _outside(-greatest, greatest)


def beyond_years(precision: int) -> str:
    """Return SQL that is true for a DateTime64 outside the years that have four digits."""
    ticks = 10**precision
    first, last = _FIRST_SECOND * ticks, (_LAST_SECOND + 1) * ticks - 1
    return _outside(max(first, -_GREATEST_LONG - 1), min(last, _GREATEST_LONG))


def _side_of_point(side: int) -> str:
    return f"splitByChar('.', replaceOne(toString({{}}), '-', ''))[{side}]"


def _outside(first: int, last: int) -> str:
    ticks = "reinterpretAsInt64({})"
    return f"({ticks} > {last} OR {ticks} < {first})"
