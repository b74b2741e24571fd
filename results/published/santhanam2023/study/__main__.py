"""Print the paper's tables at today's prices, or with ``--errata`` the content of ``errata.csv``."""

import argparse
from pathlib import Path

from harness.analysis import published
from harness.pricing import prices

from . import find_errata, render_paper
from .errata import as_csv

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--errata", action="store_true", help="print errata.csv")
    options = parser.parse_args()
    paper = published.read(Path(__file__).parents[1])
    follows = paper.follows()
    if options.errata:
        print(as_csv(find_errata(paper, follows)), end="")
    else:
        print(render_paper(paper, follows, prices.snapshot(), "md"), end="")
