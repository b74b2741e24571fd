"""Derived files: what was computed from stored jobs, kept in the cache so that it need not be computed again.

Reading samples, bootstrapping and judging thousands of jobs takes minutes; nothing of that depends on prices.  So the
measured rows of a results folder are kept, and they are taken again only for exactly these stored files (name, inode,
size, times of change), read by exactly this code.  A derived file may be removed at any time; one that is
damaged, or not this user's, is as good as none.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

import harness
from harness import filesystem
from harness.analysis import cell_cache
from harness.analysis.cell_cache import Made, Recall
from harness.analysis.table import Machine, Measurements
from harness.evaluation import per_query
from harness.evaluation.per_query import PerQuery
from harness.results import origins, reader
from harness.results.schema import ANSWER_DEPTHS, JUDGED_HITS
from harness.stats import Estimate

log = logging.getLogger(__name__)

# Makes rows, with whatever is remembered of some of them.
Compute = Callable[[Recall], Made]
# Beside the rows: what prices are applied to, what they are made of by query, and what is remembered of their cells.
_PRICEABLE, _BY_QUERY, _CELLS = ".prices.json", ".queries.parquet", ".cells.json"
# What numbers depend on beside our own sources.
_LIBRARIES = ("ir-measures", "numpy", "pyarrow", "scipy")
# The files of a job that rows are made of.
_OF_A_JOB = (reader.RESULT, reader.SAMPLES, reader.RUN, JUDGED_HITS, ANSWER_DEPTHS)
# What no price has to do with: most of a row's bytes.
_WITHOUT: dict[str, Any] = {
    **dict.fromkeys(("qrels_sha256", "service_s", "trial_spread_s", "detail")),
    **dict.fromkeys(("p50_s", "p95_s", "p99_s"), Estimate(None)),
    **dict.fromkeys(("queries_unjudged", "trial_means_s", "keys", "findings", "notes"), ()),
    **{name: {} for name in ("like_queries_s", "these_queries_s", "at_most_s", "stages_s", "spread_s")},
}
# Kept once for all jobs of a suite, five folders above a job's.
_OF_A_SUITE = ("qrels", "samples")


def rows(
    root: Path,
    measures: Sequence[str],
    compute: Compute,
    *,
    cache: Path | None,
    for_prices: bool = False,
) -> Measurements:
    """The measured rows of a results folder: those that are kept, if they still hold, else computed and kept.

    Args:
        root: folder of stored jobs.
        measures: names, as they were asked for.
        compute: makes the rows anew.
        cache: where derived files are kept; ``None``: nowhere.
        for_prices: what :func:`priceable` leaves of each row is enough; it is read in half the time.

    Raises:
        FileError: ``root`` is no folder or cannot be read.
        HarnessError: whatever ``compute`` raises.
    """
    if cache is None:
        return compute(cell_cache.nothing).rows
    path, stamp = _path(cache, root, measures), _stamp(root)
    kept = _read(path.with_suffix(_PRICEABLE) if for_prices else path, stamp)
    return kept or _computed(root, path, stamp, compute).rows


def by_query(root: Path, measures: Sequence[str], compute: Compute, *, cache: Path | None) -> dict[str, PerQuery]:
    """What those rows are made of, by :func:`harness.evaluation.per_query.per_query_key`; arguments and errors as for :func:`rows`."""
    if cache is None:
        made = compute(cell_cache.nothing)
    else:
        path, stamp = _path(cache, root, measures), _stamp(root)
        kept = per_query.read(path.with_suffix(_BY_QUERY), stamp)
        if kept is not None:
            return kept
        made = _computed(root, path, stamp, compute)
    return {each.key: each for each in made.queries}


def _path(cache: Path, root: Path, measures: Sequence[str]) -> Path:
    return cache / "tables" / f"{_name(root, measures)}.json"


def _computed(root: Path, path: Path, stamp: str, compute: Compute) -> Made:
    """Compute, and keep what was computed."""
    made = compute(_recall(path))
    # A run may have stored something meanwhile: then nobody knows which files these rows are made of.
    if _stamp(root) == stamp:
        try:
            _write(path, stamp, _adapter().dump_json(made.rows, exclude_defaults=True))
            part = _adapter().dump_json(priceable(made.rows), exclude_defaults=True)
            _write(path.with_suffix(_PRICEABLE), stamp, part)
            with filesystem.scratch_folder(path.parent, path.stem) as scratch:
                whole = scratch / path.with_suffix(_BY_QUERY).name
                per_query.write(whole, made.queries, stamp)
                whole.replace(path.with_suffix(_BY_QUERY))
            _write(path.with_suffix(_CELLS), stamp, cell_cache.dump(made.cells, _code()))
        except OSError as error:
            log.info("%s: cannot be written: %s; the next table is computed anew", path, error.strerror)
    return made


@dataclass(frozen=True)
class Kept:
    """A file of rows that would be taken instead of computing them; ``rows`` is ``None`` where it is damaged.

    ``for_prices``: it holds what :func:`priceable` leaves.  ``by_query`` stands beside whole rows, where it is kept.
    """

    path: Path
    rows: Measurements | None
    for_prices: bool
    by_query: dict[str, PerQuery] | None


def kept(root: Path, cache: Path) -> Iterator[Kept]:
    """What is kept for ``root`` as it is now.

    Raises:
        FileError: ``root`` is no folder or cannot be read.
    """
    stamp = _stamp(root)
    for path in sorted((cache / "tables").glob("*.json")):
        if path.name.endswith(_CELLS):
            continue
        with contextlib.suppress(OSError), path.open("rb") as stream:
            if stream.readline().split()[:1] == [stamp.encode("ascii")]:
                part = path.name.endswith(_PRICEABLE)
                by_query = None if part else per_query.read(path.with_suffix(_BY_QUERY), stamp)
                yield Kept(path, _read(path, stamp), part, by_query)


def priceable(made: Measurements) -> Measurements:
    """What prices are applied to, and what a priced row shows: the rest of each row is as if it were not known."""
    rows = (replace(row, machine=_architecture_of(row.machine), **_WITHOUT) for row in made.rows)
    return replace(made, rows=tuple(rows), overhead=())


def _architecture_of(machine: Machine | None) -> Machine | None:
    """All of a machine that prices have to do with."""
    if machine is None:
        return None
    return Machine("", machine.architecture, "", None, None, "", None, (), None, 0)


def _name(root: Path, measures: Sequence[str]) -> str:
    named = json.dumps([str(root.resolve()), list(measures)])
    return hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _stamp(root: Path) -> str:
    """Changes when the code does, or any stored file that rows are made of."""
    lines = sorted(_files(str(root.resolve())))
    text = "\n".join((_code(), *lines))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


@functools.cache
def _code() -> str:
    """Hash of the package's own sources, and the versions of the libraries that compute."""
    content = hashlib.sha256()
    package = Path(harness.__file__).resolve().parent
    for path in sorted(package.rglob("*.py")):
        content.update(f"{path.relative_to(package)}\n".encode())
        content.update(path.read_bytes())
    for name in _LIBRARIES:
        content.update(f"{name} {metadata.version(name)}\n".encode())
    return content.hexdigest()


def _files(root: str) -> Iterator[str]:
    """A line for each stored file that rows below ``root`` are made of."""
    suites = set()
    for folder, entries in reader.folders(root):
        job = [entry for entry in entries if entry.name in _OF_A_JOB]
        if any(entry.name == reader.RESULT for entry in job):
            suites.add(folder.rsplit("/", 5)[0])
            yield from map(_line, job)
    for suite in suites:
        for name in _OF_A_SUITE:
            yield from map(_line, reader.entries_of(f"{suite}/{name}"))
    for home in {suite.rpartition("/")[0] for suite in suites}:
        path = f"{home}/{origins.FILE}"
        with contextlib.suppress(OSError):  # most results were never merged
            yield _stamped(path, Path(path).lstat())


def _line(entry: os.DirEntry[str]) -> str:
    try:
        return _stamped(entry.path, entry.stat(follow_symlinks=False))
    except FileNotFoundError:
        return f"{entry.path} gone"


def _stamped(path: str, found: os.stat_result) -> str:
    # The time of change alone can be set back (cp -p, tar, touch); the kernel's own time of it cannot.
    return f"{path} {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


@functools.cache
def _adapter() -> TypeAdapter[Measurements]:
    return TypeAdapter(Measurements)


def _recall(path: Path) -> Recall:
    """What is remembered of the cells whose rows were kept there last, whatever else has changed since."""
    kept = _content(path)
    rows = None if kept is None else _rows(kept[1])
    if kept is None or rows is None:
        return cell_cache.nothing
    cells, queries = _content(path.with_suffix(_CELLS)), per_query.read(path.with_suffix(_BY_QUERY), kept[0])
    if cells is None or cells[0] != kept[0] or queries is None:
        return cell_cache.nothing
    return cell_cache.recall(cells[1], rows, queries, _code())


def _read(path: Path, stamp: str) -> Measurements | None:
    """What is kept there under that stamp; ``None``: nothing, or not what was written."""
    kept = _content(path)
    return _rows(kept[1]) if kept is not None and kept[0] == stamp else None


def _content(path: Path) -> tuple[str, bytes] | None:
    """The stamp of a file that is kept, and what it holds; ``None``: nothing, or not what was written."""
    try:
        with path.open("rb") as stream:
            if os.fstat(stream.fileno()).st_uid != os.getuid():
                return None
            head, body = stream.readline(), stream.read()
    except OSError:
        return None
    stamp, _, checksum = head.decode("ascii", "replace").strip().partition(" ")
    return (stamp, body) if checksum == hashlib.sha256(body).hexdigest() else None


def _rows(body: bytes) -> Measurements | None:
    try:
        with _no_collection():
            return _adapter().validate_json(body)
    except ValidationError:
        return None


def _write(path: Path, stamp: str, body: bytes) -> None:
    """Whole or absent, whoever else writes it at the same time."""
    with filesystem.scratch_folder(path.parent, path.stem) as scratch:
        whole = scratch / path.name
        whole.write_bytes(f"{stamp} {hashlib.sha256(body).hexdigest()}\n".encode("ascii") + body)
        whole.replace(path)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """A million small records that all live on are no garbage; looking for some among them doubles the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
