"""Every ClickHouse type with values at its edges, and what the lake must show for them.

One line is one case: the type, SQL of some values, the Iceberg type, what a reader sees. Instants
are seen as their text in UTC, bytes as hex, NaN as 'nan', a map as pairs, a struct as a dict.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal as D  # noqa: N817  stands in every other line
from typing import Any, Final

__all__ = ["SCALARS", "Case", "bytes_of", "case", "nulls"]

NULL: Final = "NULL"


@dataclass(frozen=True)
class Case:
    """Values of one type under one conversion; `seen` are those of `sql`, in the same order."""

    type: str
    sql: tuple[str, ...]
    iceberg: str
    seen: tuple[Any, ...]
    conversion: str = ""

    @property
    def name(self) -> str:
        """The type, and how it is converted."""
        return f"{self.type} as {self.conversion}" if self.conversion else self.type


def case(of: str, iceberg: str, values: dict[str, Any], conversion: str = "") -> Case:
    """Return a case of SQL and what is seen of it."""
    return Case(of, tuple(values), iceberg, tuple(values.values()), conversion)


def nulls(one: Case) -> Case:
    """Return the case of the same type with NULL among its values."""
    return Case(
        f"Nullable({one.type})",
        (NULL, *one.sql),
        one.iceberg,
        (None, *one.seen),
        one.conversion,
    )


def bytes_of(text: str) -> str:
    """Return what is seen of the bytes of a text."""
    return text.encode().hex()


def _whole(bits: int, *, signed: bool) -> tuple[int, int]:
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)


def _integers() -> list[Case]:
    found = []
    for name, bits, signed, iceberg in (
        ("Int8", 8, True, "int"),
        ("Int16", 16, True, "int"),
        ("Int32", 32, True, "int"),
        ("Int64", 64, True, "long"),
        ("UInt8", 8, False, "int"),
        ("UInt16", 16, False, "int"),
        ("UInt32", 32, False, "long"),
    ):
        edges = _whole(bits, signed=signed)
        found.append(case(name, iceberg, {f"'{n}'": n for n in edges}))
    for name, bits, signed in (
        ("Int128", 128, True),
        ("UInt128", 128, False),
        ("Int256", 256, True),
        ("UInt256", 256, False),
    ):
        edges = _whole(bits, signed=signed)
        found.append(case(name, "string", {f"'{n}'": str(n) for n in edges}))
        found.append(case(name, "string", {f"'{n}'": str(n) for n in edges}, "string"))
        longest = 10**38 - 1
        fitting = {f"'{n}'": D(n) for n in ((-longest if signed else 0), longest)}
        found.append(case(name, "decimal(38, 0)", fitting, "decimal(38,0)"))
    greatest = 2**64 - 1
    unsigned = {"0": 0, f"'{greatest}'": greatest}
    found.append(case("UInt64", "decimal(20, 0)", {k: D(v) for k, v in unsigned.items()}))
    found.append(case("UInt64", "long", {"0": 0, f"'{2**63 - 1}'": 2**63 - 1}, "long"))
    found.append(case("UInt64", "string", {k: str(v) for k, v in unsigned.items()}, "string"))
    return found


_NINES: Final = "9" * 30
_DECIMALS: Final = [
    case("Decimal(9, 2)", "decimal(9, 2)", {"'-9999999.99'": D("-9999999.99"), "0": D("0.00")}),
    case("Decimal(18, 18)", "decimal(18, 18)", {"'0.000000000000000001'": D("1E-18")}),
    case("Decimal(38, 10)", "decimal(38, 10)", {"'-1.5'": D("-1.5000000000")}),
    case("Decimal(50, 5)", "string", {f"'{_NINES}.12345'": f"{_NINES}.12345", "'-0.5'": "-0.5"}),
    case("Decimal(76, 0)", "string", {f"'{'9' * 76}'": "9" * 76}),
    case("Decimal(50, 5)", "string", {"'1.1'": "1.1"}, "string"),
    case(
        "Decimal(50, 5)",
        "decimal(38, 8)",
        {f"'-{_NINES}.5'": D(f"-{_NINES}.50000000")},
        "decimal(38,8)",
    ),
    case("Decimal(50, 5)", "decimal(38, 0)", {f"'{'9' * 38}'": D("9" * 38)}, "decimal(38,0)"),
    # ClickHouse checks the bytes of a Decimal, not its digits.
    case(
        "Decimal(5, 0)",
        "decimal(12, 0)",
        {"reinterpret(toInt32(2000000000), 'Decimal(5, 0)')": D(2_000_000_000)},
        "decimal(12,0)",
    ),
]
_FLOATS: Final = [
    case("Float32", "float", {"nan": "nan", "'-inf'": float("-inf"), "'-0.0'": -0.0, "0.5": 0.5}),
    case(
        "Float64", "double", {"nan": "nan", "inf": float("inf"), "5e-324": 5e-324, "1e308": 1e308}
    ),
    case("BFloat16", "float", {"1.5": 1.5, "'-inf'": float("-inf")}),
    case("Bool", "boolean", {"true": True, "false": False}),
]
_U: Final = "'61f0c404-5cb3-11e7-907b-a6006ad3dba0'"
_FOUR: Final = "'ab\\0\\0'"
_LABELS: Final = "Enum8('a' = -128, 'it\\'s' = 1, '' = 127)"
_TEXTS: Final = [
    case("String", "string", {"''": "", "'a\\0ü😀'": "a\0ü😀"}),
    case("String", "string", {"'a'": "a"}, "string"),
    case("String", "binary", {"unhex('00FF')": "00ff", "''": ""}, "binary"),
    case(
        "FixedString(4)", "fixed[4]", {_FOUR: bytes_of("ab\0\0"), "unhex('FFFEFDFC')": "fffefdfc"}
    ),
    case("FixedString(4)", "string", {_FOUR: "ab\0\0", "'abcd'": "abcd"}, "string"),
    case("LowCardinality(String)", "string", {"'x'": "x", "''": ""}),
    case("LowCardinality(Nullable(String))", "string", {"'x'": "x", NULL: None}),
    case("LowCardinality(Nullable(String))", "binary", {"unhex('FF')": "ff", NULL: None}, "binary"),
    case("LowCardinality(UInt64)", "decimal(20, 0)", {"'18446744073709551615'": D(2**64 - 1)}),
    case("LowCardinality(UInt64)", "long", {"7": 7}, "long"),
    case(f"{_LABELS}", "string", {"'a'": "a", "'it\\'s'": "it's", "''": ""}),
    case(f"{_LABELS}", "string", {"''": ""}, "string"),
    case(f"{_LABELS}", "int", {"'a'": -128, "''": 127}, "long"),
    case("Enum16('x' = -32768, 'y' = 32767)", "string", {"'x'": "x", "'y'": "y"}),
    case("Enum16('x' = -32768, 'y' = 32767)", "int", {"'x'": -32768, "'y'": 32767}, "long"),
    case(
        "UUID",
        "uuid",
        {
            _U: _U.strip("'"),
            "'00000000-0000-0000-0000-000000000000'": "0" * 8 + "-0000" * 3 + "-" + "0" * 12,
        },
    ),
    case("UUID", "string", {_U: _U.strip("'")}, "string"),
    case("UUID", "fixed[16]", {_U: _U.strip("'").replace("-", "")}, "binary"),
    case("LowCardinality(UUID)", "fixed[16]", {_U: _U.strip("'").replace("-", "")}, "binary"),
    case("IPv4", "string", {"'0.0.0.0'": "0.0.0.0", "'255.255.255.255'": "255.255.255.255"}),  # noqa: S104  a value
    case("IPv4", "string", {"'1.2.3.4'": "1.2.3.4"}, "string"),
    case("IPv4", "long", {"'0.0.0.1'": 1, "'255.255.255.255'": 2**32 - 1}, "long"),
    case("IPv6", "string", {"'::ffff:1.2.3.4'": "::ffff:1.2.3.4", "'ff::1'": "ff::1"}),
    case("IPv6", "string", {"'::'": "::"}, "string"),
    case("IPv6", "fixed[16]", {"'ff::1'": "00ff" + "00" * 13 + "01", "'::'": "00" * 16}, "binary"),
    case("LowCardinality(Nullable(IPv4))", "string", {"'1.2.3.4'": "1.2.3.4", NULL: None}),
]


def _ticks(ticks: int, precision: int, zone: str = "UTC") -> str:
    return f"reinterpret(toInt64({ticks}), 'DateTime64({precision}, \\'{zone}\\')')"


_LEAST: Final = -(2**63)
_TOKYO: Final = "DateTime64(9, 'Asia/Tokyo')"
_JUST: Final = "1969-12-31 23:59:59.999999"
_TIMES: Final = [
    case("Date", "date", {"'1970-01-01'": "1970-01-01", "toDate(65535)": "2149-06-06"}),
    case("Date32", "date", {"'1900-01-01'": "1900-01-01", "toDate32(2932896)": "9999-12-31"}),
    case(
        "DateTime('UTC')", "timestamptz", {"toDateTime(4294967295, 'UTC')": "2106-02-07 06:28:15"}
    ),
    case("DateTime('Asia/Tokyo')", "timestamptz", {"'2024-01-01 09:00:00'": "2024-01-01 00:00:00"}),
    case("DateTime", "timestamptz", {"toDateTime(0)": "1970-01-01 00:00:00"}),
    case("DateTime64(0, 'UTC')", "timestamptz", {_ticks(-1, 0): "1969-12-31 23:59:59"}),
    case("DateTime64(3, 'UTC')", "timestamptz", {_ticks(-1, 3): "1969-12-31 23:59:59.999000"}),
    case("DateTime64(6, 'America/New_York')", "timestamptz", {_ticks(-1, 6): _JUST}),
    case("DateTime64(6, 'UTC')", "timestamptz", {"'0001-01-01 00:00:00'": "0001-01-01 00:00:00"}),
    case(_TOKYO, "timestamptz", {_ticks(-1000, 9, "Asia/Tokyo"): _JUST}),
    case(
        _TOKYO,
        "timestamptz",
        {
            _ticks(-1, 9): _JUST,
            _ticks(1, 9): "1970-01-01 00:00:00",
            _ticks(_LEAST, 9): "1677-09-21 00:12:43.145224",
            _ticks(2**63 - 1, 9): "2262-04-11 23:47:16.854775",
        },
        "truncate",
    ),
    case(
        "DateTime64(7, 'UTC')",
        "timestamptz",
        {_ticks(-19, 7): "1969-12-31 23:59:59.999998"},
        "truncate",
    ),
    case(
        "DateTime64(8, 'UTC')",
        "timestamptz",
        {_ticks(-1, 8): _JUST, _ticks(100, 8): "1970-01-01 00:00:00.000001"},
        "truncate",
    ),
    case(_TOKYO, "long", {_ticks(_LEAST, 9): _LEAST, _ticks(-1, 9): -1}, "long"),
    # The instants that 64 bits of microseconds do not hold.
    case("DateTime64(0, 'UTC')", "long", {_ticks(_LEAST, 0): _LEAST, _ticks(-1, 0): -1}, "long"),
    case(
        "DateTime64(3, 'Asia/Tokyo')",
        "long",
        {_ticks(2**63 - 1, 3, "Asia/Tokyo"): 2**63 - 1, _ticks(-1, 3, "Asia/Tokyo"): -1},
        "long",
    ),
    case("DateTime64(6, 'UTC')", "long", {_ticks(_LEAST, 6): _LEAST}, "long"),
    case("DateTime64(7, 'UTC')", "long", {_ticks(92 * 10**17, 7): 92 * 10**17}, "long"),
    case(_TOKYO, "string", {_ticks(-1, 9): "1969-12-31 23:59:59.999999999"}, "string"),
    case("DateTime64(0, 'UTC')", "string", {_ticks(-1, 0): "1969-12-31 23:59:59"}, "string"),
    case(
        "DateTime64(3, 'Asia/Tokyo')",
        "string",
        {_ticks(-62167219200 * 10**3, 3, "Asia/Tokyo"): "0000-01-01 00:00:00.000"},
        "string",
    ),
    case(
        "DateTime64(7, 'UTC')",
        "string",
        {_ticks(2534023007999999999, 7): "9999-12-31 23:59:59.9999999"},
        "string",
    ),
    # Two instants that the clock of Berlin shows alike.
    case(
        "DateTime64(8, 'Europe/Berlin')",
        "string",
        {
            _ticks(1729985400 * 10**8, 8): "2024-10-26 23:30:00.00000000",
            _ticks(1729989000 * 10**8, 8): "2024-10-27 00:30:00.00000000",
        },
        "string",
    ),
    case("Time", "long", {"'-999:59:59'": -3599999, "'00:00:01'": 1}),
    case("Time", "string", {"'-999:59:59'": "-999:59:59", "'00:00:01'": "00:00:01"}, "string"),
    case(
        "Time64(3)", "decimal(18, 3)", {"'-00:00:01.5'": D("-1.500"), "'24:00:00'": D("86400.000")}
    ),
    case("Time64(9)", "decimal(18, 9)", {"'999:59:59.999999999'": D("3599999.999999999")}),
    case("Time64(6)", "string", {"'-00:00:00.000001'": "-00:00:00.000001"}, "string"),
]
_INTERVALS: Final = [
    case(f"Interval{unit}", "long", {f"toInterval{unit}(-5)": -5, f"toInterval{unit}(0)": 0}, how)
    for unit in (
        *("Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"),
        *("Day", "Week", "Month", "Quarter", "Year"),
    )
    for how in ("", *(["long"] if unit == "Day" else []))
]
SCALARS: Final = [*_integers(), *_DECIMALS, *_FLOATS, *_TEXTS, *_TIMES, *_INTERVALS]
"""Cases of types that hold one value."""
