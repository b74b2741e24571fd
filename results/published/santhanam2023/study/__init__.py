"""Study of Santhanam et al. 2023: contradictions in its tables, recomputed costs, later prices, its layouts.

``harness report`` and ``harness verify`` load it (:mod:`harness.report.study`); ``python -m
results.published.santhanam2023.study`` runs it from the repository's root.
"""

from .errata import find_errata
from .paper import render as render_paper
from .table3 import render as render_rows

__all__ = ["MEASURES", "find_errata", "render_paper", "render_rows"]

MEASURES = ("RR@10", "Success@10")
