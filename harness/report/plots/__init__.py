"""Pictures of a table for print: PNG, SVG and PDF, drawn without a display, the same bytes for the same input.

Each module draws one kind from plain records; :mod:`harness.report.plots.album` makes those records from a priced table.
"""

# The words by which the kinds are known, in file names too, in the order in which they are made.
KINDS = ("cost", "winners", "ranks", "distributions", "memory", "instances", "flips")
