"""Draw the pictures that docs/pictures.md shows, of the published results: ``python -m docs.make_pictures``."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from harness import pricing, tables
from harness.catalog import data_root
from harness.pictures import album
from harness.published import tables as published

FOLDER = Path(__file__).resolve().parent / "pictures"
# The exchange rates that the paper's Table 4 follows from.
RATES = {
    "msmarco": {"latency": 33.0507, "cost": 10.4392},
    "xortydi": {"latency": 18.1102, "cost": 35.1647},
}
SHOWN = (
    "msmarco-santhanam2023-cost",
    "msmarco-santhanam2023-instances",
    "msmarco-santhanam2023-winners",
    "xortydi-winners",
    "xortydi-ranks",
)


def pictures() -> list[album.Picture]:
    """Those that are shown, at the paper's own prices."""
    folder = data_root() / "results" / "published" / "santhanam2023"
    table = tables.priced(tables.rows_of(folder), pricing.tariff(published.read(folder).follows()))
    return [
        each
        for dataset, rates in RATES.items()
        for each in album.album(table, {}, "RR@10", amrs=rates).pictures
        if each.place.dataset == dataset and each.name in SHOWN
    ]


def main() -> None:
    """Write them, in so few colours that the repository stays small."""
    for path in album.write(pictures(), FOLDER, "png"):
        with Image.open(path) as drawn:
            few = drawn.convert("RGB").quantize(128, dither=Image.Dither.NONE)
        few.save(path, optimize=True)
        print(path.name)


if __name__ == "__main__":
    main()
