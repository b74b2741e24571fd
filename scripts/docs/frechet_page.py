"""The tables and pictures of docs/method/frechet.md, from docs/assets/frechet-scifact.json: ``python -m scripts.docs.frechet_page``.

A test holds the page against the tables.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from PIL import Image

from harness.analysis.rank_correlation import kendall_tau
from harness.report.plots import theme

DOCS = Path(__file__).resolve().parents[2] / "docs"
MOST = "1"  # judged documents of a query: few labels are what it is for
# Systems that no measure of ranking mistakes, and a distance does.
BLIND = ("bm25-shuffled", "random")


def stored() -> dict[str, Any]:
    """What ``scripts/frechet`` found, by judged documents a query; ``other``: by another encoder."""
    found: dict[str, Any] = json.loads((DOCS / "assets" / "frechet-scifact.json").read_text(encoding="utf-8"))
    return found


def systems(sample: dict[str, Any]) -> str:
    """Each system's distances beside its measures, the best by nDCG@10 first."""
    kinds = [(each["k"], each["unlabelled"]) for each in sample["systems"][0]["distances"]]
    lines = [f"| system | nDCG@10 | RR@10 | {' | '.join(_named(*kind) for kind in kinds)} |", _rule(1, 2 + len(kinds))]
    for each in sorted(sample["systems"], key=lambda one: -float(one["measures"]["nDCG@10"])):
        measures = [f"{each['measures'][name]:.3f}" for name in ("nDCG@10", "RR@10")]
        cells = [_cell(one["figure"]) for one in each["distances"]]
        lines.append(f"| {' | '.join([each['system'], *measures, *cells])} |")
    return "\n".join(lines) + "\n"


def taus(samples: dict[str, Any]) -> str:
    """Kendall's tau of each distance with nDCG@10: over all systems, and without those that a distance is blind to."""
    lines = ["| judged a query, encoder | systems | FD@1 | FD@10 | FD@1 (URR) | FD@10 (URR) |", _rule(2, 4)]
    for most, sample in samples.items():
        what = f"at most {most}, {sample['encoder']}" if most != "other" else f"at most 1, {sample['encoder']}"
        for without in ((), BLIND[:1], BLIND):
            kept = [each for each in sample["systems"] if each["system"] not in without]
            worth = {each["system"]: float(each["measures"]["nDCG@10"]) for each in kept}
            cells = []
            for place in range(len(kept[0]["distances"])):
                near = {each["system"]: -float(each["distances"][place]["figure"]["value"]) for each in kept}
                cells.append(f"{kendall_tau(near, worth):.2f}")
            which = f"{len(kept)}" + (f", without {' and '.join(without)}" if without else ", all")
            lines.append(f"| {' | '.join([what, which, *cells])} |")
    return "\n".join(lines) + "\n"


def _named(k: int, unlabelled: bool) -> str:
    return f"FD@{k}" + (" (URR)" if unlabelled else "")


def _rule(texts: int, numbers: int) -> str:
    return f"|{' --- |' * texts}{' ---: |' * numbers}"


def _cell(figure: dict[str, float | None]) -> str:
    ends = "" if figure["low"] is None else f" ({figure['low']:.3f}–{figure['high']:.3f})"
    return f"{figure['value']:.3f}{ends}"


def draw(sample: dict[str, Any], k: int) -> Any:
    """nDCG@10 against ``FD@k``: all retrieved documents on the left, without the judged ones on the right."""
    systems = sorted(sample["systems"], key=lambda each: str(each["system"]))
    looks = theme.looks(each["system"] for each in systems)
    with theme.settings(9):
        figure = theme.blank(9, 4.2)
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
    """Print the tables and write the pictures, in so few colours that the repository stays small."""
    samples = stored()
    print(systems(samples[MOST]), taus(samples), sep="\n")
    sample = samples[MOST]
    for k in (1, 10):
        path = DOCS / "assets" / f"frechet-fd{k}.png"
        with theme.settings(9):
            figure = draw(sample, k)
            figure.savefig(path, dpi=130)
        with Image.open(path) as drawn:
            few = drawn.convert("RGB").quantize(64, dither=Image.Dither.NONE)
        few.save(path, optimize=True)
        print(path.name)


if __name__ == "__main__":
    main()
