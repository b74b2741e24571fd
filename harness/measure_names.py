"""Effectiveness measures, by the names that ir_measures gives them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from harness.errors import UsageError

DEFAULT = ("RR@10", "Success@10", "nDCG@10")

# Measures without a cutoff that look at what was retrieved as a set, or at the judgements alone: no deeper ranks exist
# for them.
_OF_THE_SET = frozenset({"Judged", "NumQ", "NumRel", "NumRelRet", "NumRet", "SetAP", "SetF", "SetP", "SetR", "SetRelP"})

# Measures that need no more than the relevance of each document that was retrieved.
OF_HITS_ALONE = frozenset({"RR", "Success", "P", "SetP", "RBP", "NumRet", "NumQ"})


def parse(names: Iterable[str]) -> tuple[Any, ...]:
    """Measures from their names, e.g. ``"nDCG@10"`` or ``"RR(rel=2)@10"``; one that stands twice is taken once.

    Raises:
        UsageError: a name is not known to ir_measures, or nothing installed can compute it.
    """
    import ir_measures

    parsed = []
    for name in names:
        try:
            with warnings.catch_warnings():
                # ir_measures 0.4.3 reads measures with parts of ast that newer Pythons deprecate.
                warnings.simplefilter("ignore", DeprecationWarning)
                measure = ir_measures.parse_measure(name)
            supported = ir_measures.DefaultPipeline.supports(measure)  # type: ignore[no-untyped-call]
        except (ValueError, NameError, KeyError, AssertionError) as error:
            raise UsageError(
                f"unknown measure {name!r} ({error}); write it as ir_measures does, e.g. nDCG@10, RR@10, AP(rel=2)@100"
            ) from error
        if not supported:
            raise UsageError(f"measure {name!r} cannot be computed by what is installed; see ir_measures' providers")
        parsed.append(measure)
    return tuple(dict.fromkeys(parsed))


def cutoff(measure: Any) -> int | None:
    """The rank down to which a measure looks, or ``None`` if it has none."""
    value = measure.params.get("cutoff")
    return value if isinstance(value, int) else None


def looks_deeper(measure: Any, k: int) -> bool:
    """Whether a measure asks for ranks below ``k``; one without a cutoff goes down the whole ranking."""
    depth = cutoff(measure)
    return measure.NAME not in _OF_THE_SET if depth is None else depth > k
