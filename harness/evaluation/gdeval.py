"""Run ir_measures' gdeval.pl, which computes ERR@k and nDCG(dcg='exp-log2')@k, and drop its messages.

ir_measures' own provider passes Perl's stderr on, where a locale is missing or a line of judgements is unusual.
"""

from __future__ import annotations

import pkgutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.child_process import environment

_SCRIPT = "bin/gdeval.pl"


class GdevalEvaluator:
    """Evaluator of measures that gdeval computes, used as ir_measures' evaluators are.

    gdeval accepts only numbers as ids of queries.  It looks at grades above 0 alone and leaves out a query without one.
    """

    def __init__(self, measures: Sequence[Any], judged: Mapping[str, Mapping[str, int]]) -> None:
        self._measures = measures
        self._queries = list(judged)
        self._qrels = "".join(
            f"{number} 0 {document} {grade}\n"
            for number, grades in enumerate(judged.values())
            for document, grade in grades.items()
            if grade > 0
        )

    def iter_calc(self, run: Mapping[str, Mapping[str, float]]) -> Iterator[Any]:
        """Yield a metric of each measure for each query with a relevant document and a hit.

        Raises:
            OSError, subprocess.SubprocessError: Perl cannot be run, or fails.
        """
        from ir_measures import Metric

        lines = (
            f"{number} Q0 {document} {rank} {score} run\n"
            for number, query in enumerate(self._queries)
            for rank, (document, score) in enumerate(run.get(query, {}).items())
        )
        with tempfile.TemporaryDirectory() as named:
            folder = Path(named)
            script, qrels, ranked = folder / "gdeval.pl", folder / "qrels", folder / "run"
            script.write_bytes(pkgutil.get_data("ir_measures", _SCRIPT) or b"")
            qrels.write_text(self._qrels, encoding="utf-8")
            with ranked.open("w", encoding="utf-8") as file:
                file.writelines(lines)
            for cutoff in dict.fromkeys(measure["cutoff"] for measure in self._measures):
                command = ["perl", str(script), str(qrels), str(ranked), str(cutoff)]
                done = subprocess.run(command, capture_output=True, check=True, env=environment(LC_ALL="C"))
                for line in done.stdout.decode("utf-8").splitlines()[1:]:
                    _, number, ndcg, err = line.split(",")
                    for measure in self._measures:
                        if measure["cutoff"] == cutoff:
                            value = float(ndcg if measure.NAME == "nDCG" else err)
                            yield Metric(self._queries[int(number)], measure, value)
