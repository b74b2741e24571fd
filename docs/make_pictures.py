"""Draw the pictures that pages show, of the published results and of made-up runs: ``python -m docs.make_pictures``."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from PIL import Image

from docs import example_runs
from harness import fewer_judgements, judged_runs, pricing, robustness, tables
from harness.catalog import data_root
from harness.leaderboard import Asked
from harness.pictures import album, flips
from harness.published import tables as published

FOLDER = Path(__file__).resolve().parent / "pictures"
SHOWN = (
    "msmarco-santhanam2023-cost",
    "msmarco-santhanam2023-instances",
    "msmarco-santhanam2023-winners",
    "xortydi-cost",
    "xortydi-winners",
    "xortydi-ranks",
)


def pictures() -> list[album.Picture]:
    """Those that are shown, at the paper's own prices."""
    folder = data_root() / "results" / "published" / "santhanam2023"
    paper = published.read(folder)
    table = tables.priced(tables.rows_of(folder), pricing.tariff(paper.follows()))
    return [
        each
        for dataset in paper.about.datasets
        for each in album.album(table, {}, Asked("", "RR@10", amrs=dataset.amrs)).pictures
        if each.place.dataset == dataset.name and each.name in SHOWN
    ]


def example() -> robustness.Robustness:
    """What docs/significance.md shows."""
    with tempfile.TemporaryDirectory() as place:
        folder = example_runs.write(Path(place))
        runs = judged_runs.of_files(folder / "qrels.txt", [folder / f"{name}.run" for name in example_runs.SYSTEMS])
    keeps = (fewer_judgements.parse("1"), fewer_judgements.parse("50%"))
    asked = robustness.Asked("nDCG@10", ("RR@10", "AP"), keeps)
    return robustness.examine(replace(runs, dataset="example"), asked)


def main() -> None:
    """Write them, in so few colours that the repository stays small."""
    for path in (*album.write(pictures(), FOLDER, "png"), *flips.write([example()], FOLDER, "png")):
        with Image.open(path) as drawn:
            few = drawn.convert("RGB").quantize(128, dither=Image.Dither.NONE)
        few.save(path, optimize=True)
        print(path.name)


if __name__ == "__main__":
    main()
