"""Changes to the entries of tars and zips, and archives of very many entries."""

from __future__ import annotations

import copy
import io
import re
import struct
import tarfile
import zipfile
from collections.abc import Callable

# Takes the content and two numbers.
Edit = Callable[[bytes, int, int], bytes]


def _tar_entry(content: bytes, at: int, value: int) -> bytes:
    """Add a copy of a tar's entry with another name, kind, header or mode."""
    entries: list[tuple[tarfile.TarInfo, bytes]] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            for entry in tar:
                file = tar.extractfile(entry) if entry.isreg() else None
                entries.append((entry, file.read() if file else b""))
    except (tarfile.TarError, OSError, EOFError, ValueError):
        return content
    if not entries:
        return content
    entry, data = entries[at % len(entries)]
    names = (
        "../beside/new.txt",
        "/tmp/new.txt",
        ".",
        "",
        "a/../../b",
        "a\\b",
        "x" * 300,
        "result.json/x",
        "\x1b[2J",
        "é",
    )
    special = (tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE, tarfile.GNUTYPE_SPARSE)
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, *special)
    changed = copy.copy(entry)
    match value % 4:
        case 0:
            changed.name = names[value // 4 % len(names)]
        case 1:
            changed.type, changed.linkname = kinds[value // 4 % len(kinds)], "../beside/secret.txt"
        case 2:
            changed.pax_headers = {"path": names[value // 4 % len(names)] or "x", "comment": "x" * (value * 8)}
        case _:
            changed.mode = 0o7777
    entries.insert(value % (len(entries) + 1), (changed, data))
    target = io.BytesIO()
    try:
        with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for info, body in entries:
                tar.addfile(info, io.BytesIO(body) if info.isreg() else None)
    except (tarfile.TarError, ValueError, OSError, UnicodeError):
        return content
    return target.getvalue()


# The fields of a zip's headers: an entry's own, the directory's, the directory's end.
_ZIP_FIELDS = {
    b"PK\x03\x04": ((4, "<H"), (6, "<H"), (8, "<H"), (14, "<I"), (18, "<I"), (22, "<I"), (26, "<H"), (28, "<H")),
    b"PK\x01\x02": (
        *((6, "<H"), (8, "<H"), (10, "<H"), (12, "<I"), (16, "<I"), (20, "<I"), (24, "<I")),
        *((28, "<H"), (30, "<H"), (32, "<H"), (38, "<I"), (42, "<I")),
    ),
    b"PK\x05\x06": ((4, "<H"), (8, "<H"), (10, "<H"), (12, "<I"), (16, "<I"), (20, "<H")),
}


def _zip_field(content: bytes, at: int, value: int) -> bytes:
    """Change a number in a header of a zip: a size, a place, a length, a way of packing."""
    places = [
        (found.start() + start, form)
        for magic, fields in _ZIP_FIELDS.items()
        for found in re.finditer(re.escape(magic), content)
        for start, form in fields
        if found.start() + start + struct.calcsize(form) <= len(content)
    ]
    if not places:
        return content
    place, form = places[at % len(places)]
    most = (1 << 8 * struct.calcsize(form)) - 1
    number = (value & most, value % 16, most, most // 2 + 1, 0)[value % 5]
    return content[:place] + struct.pack(form, number) + content[place + struct.calcsize(form) :]


def _zip_large(content: bytes, at: int, value: int) -> bytes:
    """Say in a further field that an entry has a size or a place beyond 32 bits."""
    found, end = list(re.finditer(rb"PK\x01\x02", content)), content.rfind(b"PK\x05\x06")
    if not found or end < found[-1].start():
        return content
    start = found[at % len(found)].start()
    header = bytearray(content[start : start + 46])
    name_end = start + 46 + int.from_bytes(header[28:30], "little")
    numbers = [(0, 5, 1 << 32, 1 << 63, (1 << 64) - 1)[value // 5**place % 5] for place in range(3)]
    extra = struct.pack("<HHQQQ", 1, 24, *numbers)
    header[20:28], header[42:46] = b"\xff" * 8, b"\xff" * 4
    header[30:32] = struct.pack("<H", len(extra) + int.from_bytes(header[30:32], "little"))
    size = int.from_bytes(content[end + 12 : end + 16], "little") + len(extra)
    tail = content[end : end + 12] + struct.pack("<I", size & 0xFFFFFFFF) + content[end + 16 :]
    return content[:start] + bytes(header) + content[start + 46 : name_end] + extra + content[name_end:end] + tail


TAR: dict[str, Edit] = {"tar entry": _tar_entry}
ZIP: dict[str, Edit] = {"zip field": _zip_field, "zip large": _zip_large}


def example_tar() -> bytes:
    """Return a small tar."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        entry = tarfile.TarInfo("a")
        entry.size = 3
        tar.addfile(entry, io.BytesIO(b"abc"))
    return target.getvalue()


def example_zip() -> bytes:
    """Return a small zip, as a wheel is one."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a", b"abc")
    return target.getvalue()


def tar_of_many(entries: int) -> bytes:
    """Return a tar of empty files, all of one name."""
    return tarfile.TarInfo("data/a").tobuf() * entries + bytes(1024)


def zip_of_many(entries: int) -> bytes:
    """Return a zip whose directory has very many entries, all of the same file."""
    content = example_zip()
    start, end = content.index(b"PK\x01\x02"), content.rindex(b"PK\x05\x06")
    directory = content[start:end] * entries
    tail = content[end : end + 12] + struct.pack("<I", len(directory)) + content[end + 16 :]
    return content[:start] + directory + tail
