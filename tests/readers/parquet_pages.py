"""Where the bytes of a Parquet file lie: column chunks, and the data pages in them with their rows.

pyarrow tells chunks, but not pages, so their headers are read here: Thrift's compact protocol, of
which only what stands before a page is needed (parquet.thrift, PageHeader).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

__all__ = ["Span", "chunks", "data_pages"]

_BOOLEANS: Final = (1, 2)
_INTEGERS: Final = (3, 4, 5, 6)
_BINARY: Final = 8
_STRUCT: Final = 12
_COMPRESSED_SIZE: Final = 3
# Both versions of data pages: the header's member of that kind, whose first field is the number of
# values, and the field of the encoding in it.
_DATA_PAGES: Final = {1: (5, 2), 2: (8, 4)}
_ENCODINGS: Final = {
    0: "PLAIN",
    2: "PLAIN_DICTIONARY",
    3: "RLE",
    5: "DELTA_BINARY_PACKED",
    6: "DELTA_LENGTH_BYTE_ARRAY",
    7: "DELTA_BYTE_ARRAY",
    8: "RLE_DICTIONARY",
    9: "BYTE_STREAM_SPLIT",
}


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a file: of which row group and column, and which rows of the group they hold.

    `version` and `encoding` are those of a data page, as in parquet.thrift; 0 and '' of a chunk.
    """

    group: int
    column: str
    start: int
    end: int
    first_row: int
    rows: int
    version: int = 0
    encoding: str = ""


def chunks(path: Path) -> Iterator[Span]:
    """Yield every column chunk, its dictionary page included."""
    footer = pq.read_metadata(path)
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for place in range(group.num_columns):
            chunk = group.column(place)
            start = chunk.data_page_offset
            if chunk.has_dictionary_page:
                start = min(start, chunk.dictionary_page_offset)
            end = start + chunk.total_compressed_size
            yield Span(number, chunk.path_in_schema, start, end, 0, group.num_rows)


def data_pages(path: Path) -> Iterator[Span]:
    """Yield every data page of every chunk; columns must not be nested."""
    content = path.read_bytes()
    for chunk in chunks(path):
        place, row = chunk.start, 0
        while place < chunk.end:
            header = _Header(content, place)
            end = header.end + header.integers[_COMPRESSED_SIZE,]
            for version, (member, of) in _DATA_PAGES.items():
                if rows := header.integers.get((member, 1)):
                    encoding = _ENCODINGS[header.integers[member, of]]
                    yield Span(chunk.group, chunk.column, place, end, row, rows, version, encoding)
                    row += rows
            place = end
        assert (place, row) == (chunk.end, chunk.rows), "the pages do not fill the chunk"


class _Header:
    """A page's header: its integers by the path of their field ids, and where it ends."""

    def __init__(self, content: bytes, start: int) -> None:
        self._content = content
        self.end = start
        self.integers: dict[tuple[int, ...], int] = {}
        self._struct(())

    def _struct(self, path: tuple[int, ...]) -> None:
        field = 0
        while byte := self._byte():
            step, kind = byte >> 4, byte & 15
            field = field + step if step else self._zigzag()
            if kind in _INTEGERS:
                self.integers[*path, field] = self._zigzag()
            elif kind == _BINARY:
                length = self._varint()
                self.end += length
            elif kind == _STRUCT:
                self._struct((*path, field))
            else:
                assert kind in _BOOLEANS, f"a page header with a field of kind {kind}"

    def _byte(self) -> int:
        self.end += 1
        return self._content[self.end - 1]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)
