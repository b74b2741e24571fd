"""Draw the pictures of docs/frechet.md from docs/frechet-scifact.json: ``python -m docs.frechet_pictures``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from PIL import Image

from harness.pictures import canvas, look

DOCS = Path(__file__).resolve().parent
MOST = "1"  # judged documents of a query: few labels are what it is for


def draw(sample: dict[str, Any], k: int) -> Any:
    """nDCG@10 against ``FD@k``: all retrieved documents on the left, without the judged ones on the right."""
    systems = sorted(sample["systems"], key=lambda each: str(each["system"]))
    looks = look.looks(each["system"] for each in systems)
    with canvas.settings(9):
        figure = canvas.blank(9, 4.2)
        both = figure.subplots(1, 2, sharey=True)
        for axes, unlabelled in zip(both, (False, True), strict=True):
            for each in systems:
                (found,) = [one for one in each["distances"] if (one["k"], one["unlabelled"]) == (k, unlabelled)]
                value, low, high = (found["figure"][name] for name in ("value", "low", "high"))
                seen = looks[each["system"]]
                axes.errorbar(
                    each["measures"]["nDCG@10"],
                    value,
                    yerr=[[value - low], [high - value]],
                    color=seen.colour,
                    marker=seen.marker,
                    capsize=3,
                    linestyle="none",
                    markersize=7,
                    label=each["system"],
                )
            axes.set_title("all that was retrieved" if not unlabelled else "judged documents skipped (URR)")
            axes.set_xlabel("nDCG@10 (larger is better)")
            axes.grid(alpha=0.3)
        both[0].set_ylabel(f"FD@{k} (smaller is better), 95 %")
        handles, labels = both[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", frameon=False)
    return figure


def main() -> None:
    """Write them, in so few colours that the repository stays small."""
    sample = json.loads((DOCS / "frechet-scifact.json").read_text(encoding="utf-8"))[MOST]
    for k in (1, 10):
        path = DOCS / "pictures" / f"frechet-fd{k}.png"
        with canvas.settings(9):
            figure = draw(sample, k)
            figure.savefig(path, dpi=130)
        with Image.open(path) as drawn:
            few = drawn.convert("RGB").quantize(64, dither=Image.Dither.NONE)
        few.save(path, optimize=True)
        print(path.name)


if __name__ == "__main__":
    main()
