"""Apache Otava finds the points at which a figure changed: the files that it reads, and its answer."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from harness import child_process
from harness.analysis.history import Series
from harness.errors import HarnessError
from harness.report.history import Changes, History, series_name
from harness.report.writers import csv_cell
from harness.untrusted import one_line

CONFIG = "otava.yaml"
_LONGEST_S = 120


def files_of(found: History) -> dict[str, str]:
    """Return the files that Otava reads, by name: a CSV for each series, and its configuration."""
    files, tests = {}, {}
    metric = found.figure.alias
    for number, each in enumerate(found.series):
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(("time", "results", metric))
        known = [point for point in each.points if point.value.value is not None]
        lines.writerows((point.started_at, csv_cell(point.label), repr(point.value.value)) for point in known)
        files[f"series-{number}.csv"] = text.getvalue()
        tests[f"series-{number}"] = {
            "type": "csv",
            "file": f"series-{number}.csv",
            "time_column": "time",
            "attributes": ["results"],
            "metrics": {metric: {"column": metric, "direction": 1 if found.figure.higher else -1}},
        }
    names = "".join(f"# series-{number}: {one_line(series_name(each))}\n" for number, each in enumerate(found.series))
    files[CONFIG] = names + yaml.safe_dump({"tests": tests}, sort_keys=False)
    return files


def with_changes(found: History) -> History:
    """Return the history with the points of change that Otava finds; unchanged where it is not installed.

    Raises:
        HarnessError: it failed.
    """
    program = shutil.which("otava")
    if program is None or not found.series:
        return found
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files_of(found).items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        tests = [f"series-{number}" for number in range(len(found.series))]
        words = [program, "analyze", *tests, "--since", "1970-01-01", "--output", "json", "--config-file", CONFIG]
        try:
            done = subprocess.run(
                words,
                cwd=folder,
                env=child_process.environment(),
                capture_output=True,
                text=True,
                timeout=_LONGEST_S,
                check=True,
            )
            answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        except (subprocess.SubprocessError, OSError, ValueError) as error:
            last = str(getattr(error, "stderr", None) or error).strip().splitlines()[-1:]
            raise HarnessError(f"{program} failed: {one_line(' '.join(last))}") from error
    by_test = {name: groups for answer in answers for name, groups in answer.items()}
    try:
        changes = [_changes(by_test.get(name, ()), each) for name, each in zip(tests, found.series, strict=True)]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise HarnessError(
            f"{program} gave an answer of another form ({error!r}); harness knows version 0.8"
        ) from error
    return replace(found, changes=tuple(changes))


def _changes(groups: Sequence[Mapping[str, Any]], each: Series) -> Changes:
    """Return the points of change of a series; Otava counts the points that have a value."""
    known = [number for number, point in enumerate(each.points) if point.value.value is not None]
    found: dict[int, float | None] = {}
    for group in groups:
        for change in group["changes"]:
            before, after = float(change["mean_before"]), float(change["mean_after"])
            found[known[int(change["index"])]] = after / before - 1 if before else None
    return found
