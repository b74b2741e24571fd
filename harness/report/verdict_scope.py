"""The scope of each verdict in a few words: what a command tests, and which command tests something else.

The same two systems may get two verdicts, because one command tests a measure alone and another all measures together.
"""

from __future__ import annotations

# The intervals of `harness report --at-least`: of a goal that is a number, and of one relative to a system.
OWN_MEAN = (
    "The interval is of each row's own mean (one measure, 95 %, over queries); harness compare tests two systems query"
    " by query, which shows smaller differences."
)
ONE_DIFFERENCE = (
    "The interval is of one difference, query by query (one measure, 95 %); harness compare tests every measure and"
    " latency together (Holm), and may show less."
)
# Of `harness robustness`.
RESAMPLES = (
    "Flips count resamples and test nothing; harness compare tests each pair, all of its comparisons together (Holm)."
)


def alone(measure: str) -> str:
    """Return the scope of the sentence below a table."""
    return (
        f"This tests {measure} alone (95 %, over queries); harness compare tests every measure and latency together"
        " (Holm), and may show less."
    )


def together(count: int, *, stored: bool) -> str:
    """Return the scope of ``harness compare`` with so many comparisons; ``stored``: of rows, which have a table too."""
    text = f"{count:,} comparisons are tested together (Holm's p)"
    other = "the line below the table of harness report tests one measure alone, and may show more"
    return f"{text}; {other}" if stored else text
