"""Reads the texts that a Java class declares as constants out of its file, without a Java machine.

The format is that of the Java Virtual Machine Specification, chapter 4: the pool of constants, then
the fields, of which those that are constant say which entry of the pool they are.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Final

__all__ = ["text_constants"]

_TEXT, _STRING = 1, 8
_SIZES: Final = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2,
                 17: 4, 18: 4, 19: 2, 20: 2}  # fmt: skip
_OF_TWO_ENTRIES: Final = (5, 6)


def text_constants(jar: Path, name: str) -> dict[str, str]:
    """Return the constants of a class that are texts, by the names of their fields."""
    with zipfile.ZipFile(jar) as packed:
        content = packed.read(f"{name.replace('.', '/')}.class")
    reader = _Reader(content)
    return reader.constants()


class _Reader:
    """Goes through a class file once."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 8
        self._texts: dict[int, str] = {}
        self._strings: dict[int, int] = {}

    def constants(self) -> dict[str, str]:
        self._read_pool()
        self._at += 6
        interfaces = self._number()
        self._at += 2 * interfaces
        found: dict[str, str] = {}
        for _ in range(self._number()):
            _, field, _ = (self._number() for _ in range(3))
            for _ in range(self._number()):
                attribute, size = self._number(), self._number(4)
                value = int.from_bytes(self._content[self._at : self._at + 2], "big")
                if self._texts[attribute] == "ConstantValue" and value in self._strings:
                    found[self._texts[field]] = self._texts[self._strings[value]]
                self._at += size
        return found

    def _read_pool(self) -> None:
        entry, size = 1, self._number()
        while entry < size:
            kind = self._number(1)
            if kind == _TEXT:
                length = self._number()
                text = self._content[self._at : self._at + length]
                self._texts[entry] = text.decode(errors="replace")
                self._at += length
            else:
                if kind == _STRING:
                    (self._strings[entry],) = struct.unpack_from(">H", self._content, self._at)
                self._at += _SIZES[kind]
            entry += 2 if kind in _OF_TWO_ENTRIES else 1

    def _number(self, size: int = 2) -> int:
        self._at += size
        return int.from_bytes(self._content[self._at - size : self._at], "big")
