"""Write ``results/published/growth.csv``, by which ``harness plan`` estimates a first run.

``python -m scripts.growth RESULTS...``; they were measured at several sizes of one dataset.  The file has the build
time, the index size and the peak of anonymous memory of each system and size, as medians over the processes.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

from harness.driver.records import Outcome
from harness.launch.images import catalog
from harness.results.reader import read_jobs
from harness.results.schema import Result

TO = Path(__file__).parent.parent / "results" / "published" / "growth.csv"


def main() -> None:
    """Read the results and write the file."""
    shipped = catalog.systems(catalog.images_dir())
    by_size: dict[tuple[str, int], list[Result]] = defaultdict(list)
    for result in (job.result for folder in sys.argv[1:] for job in read_jobs(Path(folder))):
        documents = result.provenance.corpus_documents
        system = result.spec.cell.system
        if system in shipped and result.outcome is Outcome.OK and result.index is not None and documents:
            by_size[system, documents].append(result)
    with TO.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(("system", "documents", "build_s", "index_bytes", "memory_bytes"))
        for (system, documents), results in sorted(by_size.items()):
            indexes = [result.index for result in results if result.index is not None]
            lines.writerow(
                (
                    system,
                    documents,
                    f"{median(index.own_build_s for index in indexes):.3g}",
                    round(median(index.index_bytes for index in indexes)),
                    round(median(result.observed.memory.peak_anon_bytes or 0 for result in results)),
                )
            )


if __name__ == "__main__":
    main()
