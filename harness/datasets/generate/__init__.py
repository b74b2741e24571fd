"""Generate collections whose relevant passages have known places: see docs/guides/generated-collections.md."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import datasets
from harness.commands import option
from harness.datasets import Dataset, DatasetLocation, IrDataset
from harness.datasets.generate.collection import (
    CANDIDATES,
    GENERATOR,
    CollectionWriter,
    Provenance,
    Step,
    Written,
    new_folder,
)
from harness.datasets.generate.enlarging import Enlarging, write_larger
from harness.datasets.generate.hiding import LADDER, Ladder, write_needles, write_pass_keys
from harness.datasets.generate.joining import write_joined
from harness.datasets.generate.passages import CUTS, RULE, PassageCut, PassageSource
from harness.datasets.generate.placing import FULL, UNIFORM, Placing, write_placed
from harness.datasets.generate.shuffling import Shuffling, known_places, write_shuffled
from harness.datasets.licence import Licence
from harness.datasets.passage_positions import has_positions
from harness.errors import UsageError

__all__ = ["CANDIDATES", "CUTS", "FULL", "GENERATOR", "KINDS", "UNIFORM", "Generated", "generate"]

_ONE_EACH: dict[str, Any] = {"queries": 1000, "passages": CUTS[0], "passage_tokens": (15, 300), "candidates": 100}
_RANGE: dict[str, Any] = {"min_tokens": 512, "max_tokens": 1431, "length": UNIFORM}
_LADDER: dict[str, Any] = {"queries": 50, "documents": 100, "lengths": LADDER, "candidates": 100}

# Each kind's parameters with their defaults, which the study (arXiv 2207.01262) and LongEmbed have.
KINDS: dict[str, dict[str, Any]] = {
    "far-relevant": {**_ONE_EACH, **_RANGE},
    "placed": {**_ONE_EACH, "lengths": (512, 1431, 4096), "depths": tuple(each / 10 for each in range(11))},
    "needle": {**_LADDER, "passage_tokens": (5, 100)},
    "passkey": _LADDER,
    "shuffled": {"segments": (2, 6), "max_tokens": 8109, "train_share": 0.5},
    "uniform": {**_ONE_EACH, **_RANGE},
    "joined": {},
    "larger": {"documents": 100_000, "passage_tokens": (5, 100), "max_tokens": 512},
}


@dataclass(frozen=True)
class Generated:
    """Folders of a generated collection with their counts, and the licence of its source."""

    folders: dict[Path, Written]
    licence: Licence


@dataclass(frozen=True)
class _Request:
    """A kind with all of its parameters, and its source."""

    kind: str
    parameters: dict[str, Any]
    seed: int
    dataset: Dataset
    licence: Licence
    positions: Path | None

    def passage_cut(self) -> PassageCut:
        low, high = self.parameters.get("passage_tokens", (1, math.inf))
        return PassageCut(self.parameters.get("passages", CUTS[1]), low, high)

    def writer(self, folder: Path, relevant: str) -> CollectionWriter:
        made = Provenance(self.kind, self.seed, self.parameters, self.dataset, self.licence, relevant)
        return CollectionWriter(folder, made)


def generate(
    kind: str,
    location: DatasetLocation,
    out: Path,
    cache: Path,
    seed: int = 0,
    given: Mapping[str, Any] | None = None,
    step: Step = lambda _done, _total: None,
) -> Generated:
    """Write a collection of a kind from a dataset into a new folder; the same arguments write the same bytes.

    Args:
        kind: of ``KINDS``.
        location: the source, from :func:`harness.datasets.find`.
        out: does not exist yet; an interrupted call leaves nothing of it.
        cache: holds prepared corpora.
        seed: of all that is drawn.
        given: parameters by their names in ``KINDS``; the others keep their defaults.
        step: gets the number of documents written and of all.

    Raises:
        UsageError: a parameter does not fit the kind, the other parameters or the source; or the source is wrong.
    """
    parameters = _parameters(kind, given or {})
    with new_folder(out) as folder:
        dataset = datasets.load(location, cache)
        home = None if isinstance(location, IrDataset) else datasets.folder_of(location)
        positions = home if home is not None and has_positions(home) else None
        request = _Request(kind, parameters, seed, dataset, datasets.licence(location), positions)
        if kind == "shuffled":
            folders = _write_copies(request, folder, step)
        elif kind == "joined":
            with request.writer(folder, "the part judged relevant") as writer:
                write_joined(writer, dataset, step)
            folders = {folder: writer.written}
        elif kind == "larger":
            folders = {folder: _write_larger(request, folder, step)}
        else:
            folders = {folder: _write_one(request, folder, step)}
    return Generated({out / each.relative_to(folder): written for each, written in folders.items()}, request.licence)


def _parameters(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all parameters of a kind; raise UsageError for one that the kind has not, or a wrong value."""
    defaults = KINDS[kind]
    for name in given:
        if name not in defaults:
            others = ", ".join(other for other, known in KINDS.items() if name in known)
            flag = option(name)
            raise UsageError(f"{flag}: is of {others}, not of {kind}; leave it out")
    parameters = {**defaults, **given}
    for name in ("passage_tokens", "segments"):
        low, high = parameters.get(name, (1, 1))
        if not 1 <= low <= high:
            raise UsageError(f"--{name.replace('_', '-')} {low}-{high}: write the lower of two numbers above 0 first")
    least, most = parameters.get("min_tokens", 0), parameters.get("max_tokens", math.inf)
    if least >= most:
        raise UsageError(f"--min-tokens {least} is not below {option('max-tokens', most)}; lower it")
    return parameters


def _write_one(request: _Request, folder: Path, step: Step) -> Written:
    parameters, kind = request.parameters, request.kind
    source = PassageSource(request.dataset, request.passage_cut(), request.seed)
    relevant = {
        "passkey": "the sentences with the pass key asked for",
        "needle": RULE,
    }.get(kind, RULE if source.cut.how != CUTS[0] else "the document judged relevant, one at random of several")
    with request.writer(folder, relevant) as writer:
        if kind in ("needle", "passkey"):
            ladder = Ladder(parameters["lengths"], parameters["queries"], parameters["documents"])
            (write_needles if kind == "needle" else write_pass_keys)(writer, source, ladder, step)
        else:
            geometry = {name: parameters[name] for name in parameters if name in Placing.__annotations__}
            write_placed(writer, source, Placing(kind, **geometry), parameters["queries"], step)
        writer.written.notes |= {} if kind == "passkey" else source.left_out
        writer.write_candidates(parameters["candidates"], request.seed)
    return writer.written


def _write_larger(request: _Request, folder: Path, step: Step) -> Written:
    enlarging = Enlarging(request.parameters["documents"], request.parameters["max_tokens"])
    source = PassageSource(request.dataset, request.passage_cut(), request.seed, hold_out=False)
    with request.writer(folder, "as in the source") as writer:
        write_larger(writer, source, enlarging, step)
    return writer.written


def _write_copies(request: _Request, folder: Path, step: Step) -> dict[Path, Written]:
    parameters = request.parameters
    shuffling = Shuffling(parameters["segments"], parameters["max_tokens"], parameters["train_share"])
    places = known_places(request.positions)
    relevant = (
        "as in the source; positions are its own" if places is not None else f"as in the source; positions: {RULE}"
    )
    written: dict[Path, Written] = {}
    for name, queries in shuffling.split(request.dataset, request.seed).items():
        copy = folder / name
        copy.mkdir()
        with request.writer(copy, relevant) as writer:
            cut, seed = request.passage_cut(), f"{request.seed}:{name}"
            write_shuffled(writer, request.dataset, queries, shuffling, places, cut, seed, step)
        written[copy] = writer.written
    return written
