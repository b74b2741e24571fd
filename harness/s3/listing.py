"""All objects below a prefix, listed by several requests at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from itertools import pairwise

from harness.aws.failures import aws_errors
from harness.aws.objects import Objects, Stored

# Folders at which the names are cut into ranges: enough to keep all connections busy.
_RANGES = 32
_ENOUGH = 8
_LEVELS = 5
_PAGE = 1000


def listed(objects: Objects, prefix: str, pool: Executor) -> list[Stored]:
    """Every object whose key begins so, by key.

    A page of a listing names the next, so one listing is one request after another; names are cut into ranges at
    folders, and each range is a listing of its own.  No object is missed wherever the cuts are.
    """
    first = _first_page(objects, prefix)
    if first is not None:
        return first
    marks: list[str | None] = [None, *_marks(objects, prefix, pool), None]
    ranges = pool.map(lambda ends: _range(objects, prefix, *ends), pairwise(marks))
    return [each for found in ranges for each in found]


def _first_page(objects: Objects, prefix: str) -> list[Stored] | None:
    """All there is, where one page holds it."""
    found: list[Stored] = []
    for each in objects.list(prefix):
        found.append(each)
        if len(found) == _PAGE:
            return None
    return found


def _range(objects: Objects, prefix: str, start: str | None, end: str | None) -> list[Stored]:
    found = []
    for each in objects.list(prefix, after=start):
        if end is not None and each.name > end:
            break
        found.append(each)
    return found


def _marks(objects: Objects, prefix: str, pool: Executor) -> list[str]:
    """Where to cut: folders of the first level that has enough of them, evenly."""
    folders: Sequence[str] = [prefix]
    for _ in range(_LEVELS):
        below = [name for names in pool.map(lambda each: _folders(objects, each), folders) for name in names]
        if not below:
            break
        folders = sorted(below)
        if len(folders) >= _ENOUGH:
            break
    step = max(1, len(folders) // _RANGES)
    return [each for each in folders[::step] if each != prefix]


def _folders(objects: Objects, prefix: str) -> list[str]:
    place = objects.place
    found = []
    with aws_errors(f"listing {place}"):
        pages = objects.client.get_paginator("list_objects_v2").paginate(
            Bucket=place.bucket, Prefix=prefix, Delimiter="/"
        )
        for page in pages:
            found += [each["Prefix"] for each in page.get("CommonPrefixes", ())]
    return found
