"""What may stand in a measure's brackets and behind its @: what its providers would compute wrongly, or die of.

ir_measures checks that a parameter is of the right type and no more.  A cutoff of 0 then ends the process in C, a
grade of 0 as the least relevant one ends in a traceback, and recall to three decimals is silently cut to two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from harness.trec_lines import MOST_GRADE

# trec_eval keeps cutoffs as C's int.
_MOST_CUTOFF = 2**31 - 1
# gdeval, which computes ERR and nDCG with gains of 2^grade - 1, stops at a higher grade.
MOST_GDEVAL_GRADE = 4
_EXAMPLES = {"cutoff": "@10", "recall": "@0.1"}
_WORDS = {int: "a whole number", float: "a number with a point", bool: "True or False", str: "text", dict: "{1:1,2:3}"}


def fault(measure: Any) -> str | None:
    """What is wrong with a measure as it was asked for; ``None``: nothing.

    Args:
        measure: as ir_measures reads it, its parameters not yet looked at.
    """
    known = measure.SUPPORTED_PARAMS
    for name in measure.params:
        if name not in known:
            if name == measure.AT_PARAM:
                return f"{measure.NAME} has no cutoff"
            return f"{measure.NAME} has no {name!r}; it knows {', '.join(known) or 'nothing in brackets'}"
    for name, asked in known.items():
        if name not in measure.params:
            if asked.required:
                return _missing(measure, name)
            continue
        if (wrong := _wrong(name, measure.params[name], asked)) is not None:
            return wrong
    return None


def cutoff_fault(value: object) -> str | None:
    """What is wrong with a cutoff."""
    if not _whole(value) or not 1 <= value <= _MOST_CUTOFF:  # type: ignore[operator]
        return f"the cutoff is a whole number from 1 to {_MOST_CUTOFF:,}, not {value!r}"
    return None


def _missing(measure: Any, name: str) -> str:
    if name == measure.AT_PARAM:
        return f"it needs a {name}: {measure.NAME}{_EXAMPLES.get(name, '')}"
    return f"it needs {name}=... in brackets"


def _wrong(name: str, value: object, asked: Any) -> str | None:
    if name == "cutoff":
        return cutoff_fault(value)
    if not isinstance(value, asked.dtype) or (isinstance(value, bool) and asked.dtype is not bool):
        return f"{name} is {_WORDS[asked.dtype]}, not {value!r}"
    if not asked.validate(value):
        return f"{name} is one of {', '.join(map(repr, asked.choices))}, not {value!r}"
    return _LIMITS[name](value) if name in _LIMITS else None


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _rel(value: int) -> str | None:
    return None if 1 <= value <= MOST_GRADE else f"rel, the least relevant grade, is 1 to {MOST_GRADE:,}, not {value}"


def _gains(value: Mapping[Any, Any]) -> str | None:
    """Gains reach trec_eval as grades, and what is not relevant must stay so."""
    for grade, gain in value.items():
        if not _whole(grade) or not _whole(gain) or not 0 <= gain <= MOST_GRADE:
            return f"gains are of whole grades, and whole from 0 to {MOST_GRADE:,}, not {grade!r}:{gain!r}"
        if grade <= 0 < gain:
            return f"grade {grade} is not relevant and gains nothing, not {gain}"
    return None


def _recall(value: float) -> str | None:
    if 0 <= value <= 1 and math.isclose(value, round(value, 2), abs_tol=1e-12):
        return None
    return f"recall is 0 to 1 with two decimals at most, not {value!r}"


def _beta(value: float) -> str | None:
    return None if 0 <= value < math.inf else f"beta is 0 or more, not {value!r}"


def _persistence(value: float) -> str | None:
    return None if 0 < value < 1 else f"p lies between 0 and 1, not {value!r}"


_LIMITS: dict[str, Callable[[Any], str | None]] = {
    "rel": _rel,
    "gains": _gains,
    "recall": _recall,
    "beta": _beta,
    "p": _persistence,
}
