"""The page headers of a Parquet file, read before anything is unpacked.

A file's footer may declare less than its pages hold, and pyarrow trusts the pages.  Each header is a struct in Thrift's
compact protocol (https://parquet.apache.org/docs/file-format/data-pages).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import BufferedReader
from typing import Any

_HEADER_BYTES = 16 << 10
_MOST_PAGES = 100_000
# Fields of a page header, and of the headers of data (both versions) and of a dictionary within it.
_UNPACKED, _PACKED = 2, 3
_ENCODINGS = {5: 2, 7: 2, 8: 4}
# Plain, run lengths, and dictionary indices.  Delta encodings can repeat long texts in a few bytes.
_KNOWN_ENCODINGS = frozenset({0, 2, 3, 4, 8})
_BYTE, _INTEGERS, _DOUBLE, _BINARY, _STRUCT = 3, (4, 5, 6), 7, 8, 12
_MOST_LEVELS = 4

_Struct = dict[int, Any]


def check_values(about: Any) -> None:
    """Raise ValueError if a column's number of values differs from its row group's number of rows."""
    for group in (about.row_group(number) for number in range(about.num_row_groups)):
        for number in range(group.num_columns):
            if (values := group.column(number).num_values) != group.num_rows:
                raise ValueError(f"{values:,} values in {group.num_rows:,} rows; samples have one in each")


def unpacked_bytes(file: BufferedReader, about: Any) -> int:
    """Return the sum of all pages' unpacked sizes; ``about``: the file's metadata by pyarrow.

    Raises:
        ValueError: a header is damaged, or the file has more pages or other encodings than samples have.
    """
    total = 0
    for count, page in enumerate(_pages(file, about), start=1):
        if count > _MOST_PAGES:
            raise ValueError(f"more than {_MOST_PAGES:,} pages")
        for field, encoding in _ENCODINGS.items():
            if field not in page:
                continue
            found = page[field].get(encoding) if isinstance(page[field], dict) else None
            if found not in _KNOWN_ENCODINGS:
                raise ValueError(f"an encoding ({found}) that no samples have")
        if not isinstance(page.get(_UNPACKED), int):
            raise ValueError("a page has no size")
        total += page[_UNPACKED]
    return total


def _pages(file: BufferedReader, about: Any) -> Iterator[_Struct]:
    size = file.seek(0, os.SEEK_END)
    for group in (about.row_group(number) for number in range(about.num_row_groups)):
        for column in (group.column(number) for number in range(group.num_columns)):
            first = column.data_page_offset
            # In pyarrow's way.
            if column.has_dictionary_page and 0 < column.dictionary_page_offset < first:
                first = column.dictionary_page_offset
            end = first + column.total_compressed_size
            if not 0 <= first <= end <= size:
                raise ValueError("a column is outside the file")
            while first < end:
                file.seek(first)
                header = _Header(file.read(min(_HEADER_BYTES, end - first)))
                page = header.struct()
                if page.get(_UNPACKED, -1) < 0 or page.get(_PACKED, -1) < 0:
                    raise ValueError("a page has no size")
                yield page
                first += header.place + page[_PACKED]


class _Header:
    """Reader of one struct; ``place`` is the next byte to read."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.place = 0

    def struct(self, level: int = 0) -> _Struct:
        """Read a struct: its whole numbers and structs by field number."""
        fields: _Struct = {}
        number = 0
        while kind := self._byte():
            step, kind = divmod(kind, 16)
            number = number + step if step else self._integer()
            if kind == _STRUCT and level < _MOST_LEVELS:
                fields[number] = self.struct(level + 1)
            elif kind in _INTEGERS:
                fields[number] = self._integer()
            elif kind in (_BYTE, _DOUBLE, _BINARY):
                self._skip({_BYTE: 1, _DOUBLE: 8}.get(kind) or self._varint())
            elif kind > _BYTE:  # the other kinds are true and false, which take no bytes
                raise ValueError(f"the header of a page has a field of kind {kind}")
        return fields

    def _byte(self) -> int:
        self._skip(1)
        return self._content[self.place - 1]

    def _skip(self, count: int) -> None:
        self.place += count
        if self.place > len(self._content):
            raise ValueError("the header of a page is cut off or too long")

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number in the header of a page is too long")
        return value | byte << shift

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
