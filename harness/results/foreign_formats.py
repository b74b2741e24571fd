"""Readers of others' result files: MTEB, HAKARI-Bench, ann-benchmarks and VectorDBBench.

Each file is a stranger's: it is read whole up to a limit, and what is not a figure is left out.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import itertools
import json
import lzma
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.errors import FileError, UsageError
from harness.results.foreign import ForeignPoint, ForeignQuality
from harness.untrusted import mistake, one_line, read_whole, reading

# An MTEB file of a multilingual task has some 10 MB.
_MOST_BYTES = 64 << 20
_MOST_META_BYTES = 1 << 20
_MOST_FILES = 100_000
META = "model_meta.json"
_MEASURES = {"ndcg": "nDCG", "mrr": "RR", "recall": "R", "precision": "P", "map": "AP"}
_OF_MTEB = re.compile(r"(ndcg|mrr|recall|precision|map)_at_([0-9]{1,4})")
_OF_HAKARI = re.compile(r"(ndcg|mrr|recall|precision|map)@([0-9]{1,4})", re.IGNORECASE)
_UNKNOWN_MODELS = {"no_model_name_available", "no_revision_available"}
_DAMAGE = (ValueError, OSError, EOFError, lzma.LZMAError, zlib.error, RecursionError)
# VectorDBBench names its cases by number (vectordb_bench/backend/cases.py, version 2.0.0).
_CASES = {
    **{1: "capacity 128D", 2: "capacity 960D", 3: "768D 100M", 4: "768D 10M", 5: "768D 1M"},
    **{6: "768D 10M 1P", 7: "768D 1M 1P", 8: "768D 10M 99P", 9: "768D 1M 99P", 10: "1536D 500K", 11: "1536D 5M"},
    **{12: "1536D 500K 1P", 13: "1536D 5M 1P", 14: "1536D 500K 99P", 15: "1536D 5M 99P"},
    **{17: "1024D 1M", 20: "1024D 10M", 50: "1536D 50K"},
}


@dataclass(frozen=True)
class Imported:
    """Figures of some files, and the number of files without one."""

    qualities: tuple[ForeignQuality, ...] = ()
    points: tuple[ForeignPoint, ...] = ()
    files: int = 0
    without: int = 0


@dataclass(frozen=True)
class _File:
    path: Path
    content: bytes

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def json(self) -> Any:
        """Return the parsed content; NaN, which these programs write, is ``None``."""
        name, content = self.path.name, self.content
        with reading(self.path, "give the file as it was published", damage=_DAMAGE):
            if name.endswith(".gz"):
                content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(_MOST_BYTES)
            elif name.endswith(".xz"):
                content = lzma.LZMADecompressor(memlimit=128 << 20).decompress(content, _MOST_BYTES)
            return json.loads(content.decode("utf-8"), parse_constant=lambda _: None)


def read(source: str, paths: list[Path], measures: frozenset[str]) -> Imported:
    """Read files of a source, and the files in folders.

    Args:
        source: a key of ``SOURCES``.
        paths: files or folders.
        measures: those that are taken, by their names in ir_measures; points have none.

    Raises:
        FileError: a file is not what the source writes.
        UsageError: there are no files, or too many.
    """
    suffixes, read_one = SOURCES[source]
    files = sorted(itertools.islice(_files(paths, suffixes), _MOST_FILES + 1))
    if not 0 < len(files) <= _MOST_FILES:
        raise UsageError(f"{len(files):,} files of {source}; give 1 to {_MOST_FILES:,} {' or '.join(suffixes)} files")
    qualities, points, without = [], [], 0
    for path in files:
        with reading(path, f"name a result of {source}"):
            file = _File(path, read_whole(path, _MOST_BYTES, links=True))
        try:
            taken = list(read_one(file, measures))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, csv.Error) as error:
            said = mistake(error) if isinstance(error, ValidationError) else f"{type(error).__name__}: {error}"
            raise FileError(f"{path}: not a result of {source} ({one_line(said, 200)}); leave it out") from error
        without += not taken
        qualities += [each for each in taken if isinstance(each, ForeignQuality)]
        points += [each for each in taken if isinstance(each, ForeignPoint)]
    return Imported(tuple(qualities), tuple(points), len(files), without)


def _files(paths: list[Path], suffixes: tuple[str, ...]) -> Iterator[Path]:
    """Yield files, and the results in folders."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        named = (file for file in path.rglob("*") if file.name.endswith(suffixes) and file.name != META)
        yield from (file for file in named if file.is_file())


def _mteb(file: _File, measures: frozenset[str]) -> Iterator[ForeignQuality]:
    """Yield the figures of a task; before version 1.11 its splits are at the top, and subsets in them."""
    content = file.json()
    model, revision = _mteb_model(file.path)
    scores = content.get("scores")
    if scores is None:
        task = content["mteb_dataset_name"]
        scores = {split: _old_entries(of) for split, of in content.items() if isinstance(of, dict)}
    else:
        task = content["task_name"]
    for split, entries in scores.items():
        for entry in entries:
            for name, value in entry.items():
                found = _OF_MTEB.fullmatch(name)
                measure = f"{_MEASURES[found[1]]}@{found[2]}" if found else ""
                if measure in measures and _is_number(value):
                    yield ForeignQuality(
                        source="mteb",
                        model=model,
                        revision=revision,
                        task=task,
                        dataset_revision=content.get("dataset_revision"),
                        split=split,
                        subset=entry.get("hf_subset", "default"),
                        measure=measure,
                        value=value,
                        file_sha256=file.sha256,
                    )


def _old_entries(split: Mapping[str, Any]) -> list[dict[str, Any]]:
    subsets = {name: of for name, of in split.items() if isinstance(of, dict)}
    if not subsets:
        return [dict(split)]
    return [{**of, "hf_subset": name} for name, of in subsets.items()]


def _mteb_model(path: Path) -> tuple[str, str | None]:
    """Return model and revision: by ``model_meta.json`` in its folder, else by the folders' names."""
    name: str | None = path.absolute().parent.parent.name.replace("__", "/")
    revision: str | None = path.absolute().parent.name
    if (about := _meta(path.parent / META)) is not None:
        name, revision = about.get("name") or name, about.get("revision")
    if not name or name in _UNKNOWN_MODELS:
        raise FileError(f"{path}: names no model; keep the folders MODEL/REVISION/ around it, or {META} beside it")
    return name, None if revision in _UNKNOWN_MODELS else revision


@cache
def _meta(path: Path) -> dict[str, Any] | None:
    """Return what MTEB says of a model in the folder of its results, if it says something."""
    if not path.is_file():
        return None
    with reading(path, "remove it; the folders name the model too"):
        about = _File(path, read_whole(path, _MOST_META_BYTES, links=True)).json()
    return about if isinstance(about, dict) else None


def _hakari(file: _File, measures: frozenset[str]) -> Iterator[ForeignQuality]:
    """Yield the figure of a task for the vectors as they are, not cut or quantised."""
    content = file.json()
    about, target, evaluation = content["model"], content["target"], content["evaluation"]
    found = _OF_HAKARI.fullmatch(evaluation["aggregate_metric"])
    value = evaluation["aggregate_metric_value"]
    measure = f"{_MEASURES[found[1].lower()]}@{found[2]}" if found else ""
    if measure not in measures or not _is_number(value):
        return
    dataset = target.get("dataset_id") or target["dataset_name"]
    yield ForeignQuality(
        source="hakari",
        model=about.get("id") or about["name_or_path"],
        revision=(about.get("source") or {}).get("revision"),
        task=f"{dataset}/{target['task_name']}",
        dataset_revision=target.get("dataset_revision"),
        split=target["split_name"],
        subset="default",
        measure=measure,
        value=value,
        file_sha256=file.sha256,
    )


def _ann_benchmarks(file: _File, _measures: frozenset[str]) -> Iterator[ForeignPoint]:
    """Yield the lines of the CSV that ``data_export.py`` writes; columns are found by their names."""
    lines = csv.DictReader(io.StringIO(file.content.decode("utf-8"), newline=""))
    if not {"algorithm", "parameters", "k-nn", "qps", "dataset"} <= set(lines.fieldnames or ()):
        raise ValueError("it lacks a column of algorithm, parameters, k-nn, qps and dataset")
    for line in lines:
        recall, queries_per_s = float(line["k-nn"]), float(line["qps"])
        if _is_number(recall) and _is_number(queries_per_s) and queries_per_s > 0:
            yield ForeignPoint(
                source="ann-benchmarks",
                dataset=line["dataset"],
                system=line["algorithm"],
                setting=_plain(line["parameters"]),
                recall=recall,
                queries_per_s=queries_per_s,
                file_sha256=file.sha256,
            )


def _vectordbbench(file: _File, _measures: frozenset[str]) -> Iterator[ForeignPoint]:
    """Yield the cases that ended well and have both numbers."""
    for result in file.json()["results"]:
        metrics, task = result["metrics"], result["task_config"]
        recall, queries_per_s = metrics.get("recall"), metrics.get("qps")
        if result.get("label") != ":)" or not (_is_number(recall) and _is_number(queries_per_s) and queries_per_s > 0):
            continue
        number, told = task["case_config"]["case_id"], task["db_config"].get("db_label") or ""
        settings = {name: value for name, value in task["db_case_config"].items() if value is not None}
        yield ForeignPoint(
            source="vectordbbench",
            dataset=_CASES.get(number, f"case {number}"),
            system=_plain(f"{task['db']} {told}".strip()),
            setting=_plain(", ".join(f"{name}={value}" for name, value in sorted(settings.items()))),
            recall=recall,
            queries_per_s=queries_per_s,
            file_sha256=file.sha256,
        )


def _plain(text: str) -> str:
    """Return a text with the characters of a name alone."""
    return re.sub(r"[^A-Za-z0-9 ._:@+/()=,*%|&-]+", " ", text).strip(" ._:@+/()=,*%|&-")[:200] or "default"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# What each source writes: the ends of its files' names, and their reader.
SOURCES: dict[
    str, tuple[tuple[str, ...], Callable[[_File, frozenset[str]], Iterator[ForeignQuality | ForeignPoint]]]
] = {
    "mteb": ((".json",), _mteb),
    "hakari": ((".json", ".json.gz", ".json.xz"), _hakari),
    "ann-benchmarks": ((".csv",), _ann_benchmarks),
    "vectordbbench": ((".json",), _vectordbbench),
}
