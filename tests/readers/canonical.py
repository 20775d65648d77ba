"""The one form in which values of all readers are compared: JSON, by the column's Iceberg type.

    boolean            true, false
    int, long          a number
    float, double      Python's text of the number: "1.5", "-0.0", "nan", "inf"
    decimal            digits without an exponent and without zeros at the end: "1.5"
    string             a text
    uuid               its text; 16 bytes are accepted, which some readers give
    fixed, binary      "0x" and hexadecimal digits
    date               "2024-02-29"
    timestamptz        "2024-02-29T00:00:00.000000Z"; a time without a zone is taken as UTC
    list, struct       an array; a struct's members in the order of the schema
    map                an array of [key, value], sorted by key; a key that comes twice stays so
    NULL               null

Nothing else is smoothed over. Types are as in Iceberg's metadata: a text, or an object for nested
ones. The programs of the readers run this in environments of their own: only the standard library.
"""

from __future__ import annotations

import datetime as dt
import json
import struct
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any, Final
from uuid import UUID

__all__ = ["Cell", "IcebergTypeJson", "canonical", "python_value"]

Cell = Any
"""A canonical value: what JSON can hold."""

_DIGITS: Final = Context(prec=38)

IcebergTypeJson = str | Mapping[str, Any]
"""A type as Iceberg's metadata writes it."""


def canonical(value: Any, of: IcebergTypeJson) -> Cell:
    """Return the canonical form of a value that a reader gave.

    Raises:
        ValueError: the value is none of the type.
        TypeError: likewise.
        KeyError: a struct lacks a member.
    """
    if value is None:
        return None
    return _primitive(value, of) if isinstance(of, str) else _nested(value, of)


def python_value(cell: Cell, of: IcebergTypeJson) -> Any:
    """Return a canonical value of a primitive type as Python has it, for a filter.

    Raises:
        ValueError: the type is nested.
    """
    match _name(of):
        case "boolean" | "int" | "long" | "string":
            return cell
        case "float" | "double":
            return float(cell)
        case "decimal":
            # Some readers compare only decimals of the column's own scale.
            scale = int(str(of).rpartition(",")[2].rstrip(")"))
            return Decimal(cell).quantize(Decimal(1).scaleb(-scale), context=_DIGITS)
        case "uuid":
            return UUID(cell)
        case "fixed" | "binary":
            return bytes.fromhex(cell[2:])
        case "date":
            return dt.date.fromisoformat(cell)
        case "timestamptz":
            return dt.datetime.fromisoformat(cell)
        case _:
            message = f"{of} is no primitive type"
            raise ValueError(message)


def _name(of: IcebergTypeJson) -> str:
    """Return a type's name without its length or precision."""
    return of.partition("(")[0].partition("[")[0] if isinstance(of, str) else str(of["type"])


def _primitive(value: Any, of: str) -> Cell:
    match _name(of):
        case "boolean" if isinstance(value, bool):
            return value
        case "int" | "long":
            return int(value)
        case "float":
            return repr(struct.unpack("f", struct.pack("f", float(value)))[0])
        case "double":
            return repr(float(value))
        case "decimal":
            return _decimal(Decimal(value))
        case "string" if isinstance(value, str):
            return value
        case "uuid":
            return str(UUID(bytes=bytes(value)) if isinstance(value, bytes) else value)
        case "fixed" | "binary":
            # What is no UTF-8 arrives from ClickHouse as surrogates.
            raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
            return f"0x{bytes(raw).hex()}"
        case "date":
            return value if isinstance(value, str) else value.isoformat()
        case "timestamptz":
            return _instant(value)
        case _:
            message = f"{value!r} is no {of}"
            raise ValueError(message)


def _nested(value: Any, of: Mapping[str, Any]) -> Cell:
    match _name(of):
        case "list":
            return [canonical(item, of["element"]) for item in value]
        case "map":
            pairs = value.items() if isinstance(value, Mapping) else value
            entries = [[canonical(k, of["key"]), canonical(v, of["value"])] for k, v in pairs]
            return sorted(entries, key=json.dumps)
        case _:
            fields = of["fields"]
            by_name = isinstance(value, Mapping)
            members = [value[f["name"]] for f in fields] if by_name else list(value)
            return [canonical(m, f["type"]) for m, f in zip(members, fields, strict=True)]


def _decimal(value: Decimal) -> str:
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _instant(value: Any) -> str:
    read = dt.datetime.fromisoformat(value) if isinstance(value, str) else value
    aware = read.replace(tzinfo=dt.UTC) if read.tzinfo is None else read.astimezone(dt.UTC)
    return f"{aware.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
