"""Draw the pictures of docs/, of published results and examples: ``python -m scripts.docs.make_pictures``."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from PIL import Image

from harness.analysis import robustness
from harness.analysis.leaderboard import LeaderboardQuery
from harness.evaluation import judged_runs, qrels_subsample
from harness.report.plots import album, order_flips, style
from scripts.docs import captions, example_runs, measures_example

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "assets"


def pictures() -> list[album.Plot]:
    """Return the pictures of published rows that docs show, at the paper's prices and exchange rates."""
    _, table = captions.priced()
    shown = captions.captions()
    drawn = album.plots_of(table, {}, LeaderboardQuery("", captions.MEASURE)).pictures
    return [each for each in drawn if each.name in shown]


def example() -> robustness.Robustness:
    """Return the example of docs/method/significance.md."""
    with tempfile.TemporaryDirectory() as place:
        folder = example_runs.write(Path(place))
        runs = judged_runs.read_runs(folder / "qrels.txt", [folder / f"{name}.run" for name in example_runs.SYSTEMS])
    keeps = (qrels_subsample.parse_keep("1"), qrels_subsample.parse_keep("50%"))
    options = robustness.RobustnessOptions("nDCG@10", ("RR@10", "AP"), keeps)
    return robustness.examine(replace(runs, dataset="example"), options)


def worked_example() -> Path:
    """Draw the picture of docs/method/measures.md."""
    with style.settings(9):
        return style.save(measures_example.draw(), FOLDER / f"{measures_example.NAME}.png")


def shrink(path: Path) -> None:
    """Write a picture again in few colours, so that the repository stays small."""
    with Image.open(path) as drawn:
        few = drawn.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


def main() -> None:
    """Write them."""
    made = (
        *style.save_each((each.picture for each in pictures()), FOLDER, "png"),
        *style.save_each(order_flips.pictures([example()]), FOLDER, "png"),
        worked_example(),
    )
    for path in made:
        shrink(path)
        print(path.name)


if __name__ == "__main__":
    main()
