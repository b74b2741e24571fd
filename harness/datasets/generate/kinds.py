"""Generate collections whose relevant passages have known places: see docs/guides/generated-collections.md."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import datasets
from harness.commands import option
from harness.datasets import DatasetLocation
from harness.datasets.generate.collection import (
    CANDIDATES,
    GENERATOR,
    CollectionWriter,
    Provenance,
    Written,
    new_folder,
)
from harness.datasets.generate.enlarging import write_larger
from harness.datasets.generate.filtering import write_filtered
from harness.datasets.generate.hiding import LADDER, Ladder, write_needles, write_pass_keys
from harness.datasets.generate.joining import write_joined
from harness.datasets.generate.passages import CUTS, RULE, PassageCut, PassageSource
from harness.datasets.generate.placing import Placing, write_placed
from harness.datasets.generate.shuffling import Places, Shuffling, known_places, write_shuffled
from harness.datasets.licence import DatasetFacts
from harness.errors import UsageError
from harness.progress import Progress, silent

__all__ = ["CANDIDATES", "CUTS", "GENERATOR", "KINDS", "Generated", "generate"]

_ONE_EACH: dict[str, Any] = {"queries": 1000, "passages": CUTS[0], "passage_tokens": (15, 300), "candidates": 100}
_RANGE: dict[str, Any] = {"min_tokens": 512, "max_tokens": 1431}
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
    "filtered": {},
    "larger": {"documents": 100_000, "passage_tokens": (5, 100), "max_tokens": 512},
}
# What ``generator.json`` and README.md call relevant, where it does not follow from the passages.
_RELEVANT = {
    "joined": "the part judged relevant",
    "filtered": "as in the source, of the documents that the query's filter lets through",
    "larger": "as in the source",
    "needle": RULE,
    "passkey": "the sentences with the pass key asked for",
}


@dataclass(frozen=True)
class Generated:
    """Folders of a generated collection with their counts, and the facts of its source."""

    folders: dict[Path, Written]
    facts: DatasetFacts


def generate(
    kind: str,
    location: DatasetLocation,
    out: Path,
    cache: Path,
    seed: int = 0,
    given: Mapping[str, Any] | None = None,
    progress: Progress = silent,
) -> Generated:
    """Write a collection of a kind from a dataset into a new folder; the same arguments write the same bytes.

    Args:
        kind: of ``KINDS``.
        location: the source, from :func:`harness.datasets.find`.
        out: does not exist yet; an interrupted call leaves nothing of it.
        cache: holds prepared corpora.
        seed: of all that is drawn.
        given: parameters by their names in ``KINDS``; the others keep their defaults.
        progress: gets the numbers of documents written and of all (0: unknown).

    Raises:
        UsageError: a parameter does not fit the kind, the other parameters or the source; or the source is wrong.
    """
    parameters = _parameters(kind, given or {})
    with new_folder(out) as folder:
        dataset = datasets.load(location, cache)
        if dataset.answers:
            raise UsageError(f"{dataset.name}: has answers, no qrels; name a dataset with qrels")
        provenance = Provenance(kind, seed, parameters, dataset, datasets.licence(location))
        if kind == "shuffled":
            source_folder = datasets.folder_of(location)
            places = None if source_folder is None else known_places(source_folder)
            folders = _write_copies(provenance, folder, places, progress)
        else:
            folders = {folder: _write_one(provenance, folder, progress)}
    return Generated({out / copy.relative_to(folder): written for copy, written in folders.items()}, provenance.facts)


def _parameters(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all parameters of a kind; raise UsageError for a parameter of other kinds, or a wrong value."""
    defaults = KINDS[kind]
    for name in given:
        if name not in defaults:
            others = ", ".join(other for other, known in KINDS.items() if name in known)
            raise UsageError(f"{option(name)} belongs to {others}, not to {kind}; remove it")
    parameters = {**defaults, **given}
    for name in ("passage_tokens", "segments"):
        low, high = parameters.get(name, (1, 1))
        if not 1 <= low <= high:
            raise UsageError(f"--{name.replace('_', '-')} {low}-{high}: write the lower of two numbers above 0 first")
    least, most = parameters.get("min_tokens", 0), parameters.get("max_tokens", math.inf)
    if least >= most:
        raise UsageError(f"--min-tokens {least} is not below {option('max-tokens', most)}; lower it")
    return parameters


def _passage_cut(parameters: Mapping[str, Any]) -> PassageCut:
    return PassageCut(parameters.get("passages", CUTS[1]), *parameters.get("passage_tokens", (1, math.inf)))


def _write_one(provenance: Provenance, folder: Path, progress: Progress) -> Written:
    parameters, kind = provenance.parameters, provenance.kind
    source = PassageSource(provenance.source, _passage_cut(parameters), provenance.seed, hold_out=kind != "larger")
    relevant = RULE if source.cut.how != CUTS[0] else "the document judged relevant, one at random of several"
    with CollectionWriter(folder, provenance, _RELEVANT.get(kind, relevant), progress) as writer:
        if kind == "joined":
            write_joined(writer, provenance.source)
        elif kind == "filtered":
            write_filtered(writer, provenance.source, provenance.seed)
        elif kind == "larger":
            write_larger(writer, source, parameters["documents"], parameters["max_tokens"])
        elif kind in ("needle", "passkey"):
            ladder = Ladder(parameters["lengths"], parameters["queries"], parameters["documents"])
            writer.total = ladder.documents_in_all
            (write_needles if kind == "needle" else write_pass_keys)(writer, source, ladder)
        else:
            geometry = {name: parameters[name] for name in parameters if name in Placing.__annotations__}
            write_placed(writer, source, Placing(kind, **geometry), parameters["queries"])
        if "candidates" in parameters:
            if kind != "passkey":
                writer.written.notes.update(source.left_out)
            writer.write_candidates(parameters["candidates"], provenance.seed)
    return writer.written


def _write_copies(
    provenance: Provenance, folder: Path, places: Places | None, progress: Progress
) -> dict[Path, Written]:
    parameters = provenance.parameters
    shuffling = Shuffling(parameters["segments"], parameters["max_tokens"], parameters["train_share"])
    relevant = f"as in the source; positions{': ' + RULE if places is None else ' are its own'}"
    written: dict[Path, Written] = {}
    for name, queries in shuffling.split(provenance.source, provenance.seed).items():
        copy = folder / name
        copy.mkdir()
        with CollectionWriter(copy, provenance, relevant, progress) as writer:
            cut, seed = _passage_cut(parameters), f"{provenance.seed}:{name}"
            write_shuffled(writer, provenance.source, queries, shuffling, places, cut, seed)
        written[copy] = writer.written
    return written
