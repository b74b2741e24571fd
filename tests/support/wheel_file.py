"""Wheels that tests pack."""

from __future__ import annotations

import io
import zipfile


def packed(members: dict[str, bytes]) -> bytes:
    """Return a wheel with these files, by name."""
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return file.getvalue()


def distribution(name: str, code: bytes) -> bytes:
    """Return a wheel that pip can install: version 1 of a project with one module."""
    info = f"{name}-1.dist-info"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    return packed({**files, f"{info}/RECORD": record.encode()})
