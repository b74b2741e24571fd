"""Plots of a table for print: PNG, SVG and PDF, drawn without a display, the same bytes for the same input.

Each kind is drawn from plain records, which :mod:`harness.report.plots.select` makes from a priced table.
"""

# The kinds, as in file names, in the order in which they are drawn.
KINDS = ("cost", "latency", "winners", "ranks", "distributions", "memory", "instances", "load", "flips")
