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
