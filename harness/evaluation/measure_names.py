"""Effectiveness measures, by the names that ir_measures gives them; and those that it lacks: R@2kt, SetF@10, F1@10."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from harness.errors import UsageError, did_you_mean
from harness.evaluation import frechet_names
from harness.evaluation.answer_recall import MOST_TOKENS
from harness.evaluation.trec_parser import MOST_GRADE

# MERGED harness.evaluation.measure_names: What may stand in a measure's brackets and behind its @: what its providers would
# compute wrongly, or die of.


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

DEFAULT = ("RR@10", "Success@10", "nDCG@10")


@dataclass(frozen=True)
class AnswerRecall:
    """``R@2kt``: whether an answer stands within the first 2,000 tokens of what was retrieved.

    It is looked at as ir_measures' own measures are: ``NAME``, ``params``, and its text parses back.
    ``R(mean='languages')@2kt`` is the mean over languages of their means, as XOR-TyDi reports.
    """

    tokens: int
    by_language: bool = False
    params: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    NAME: ClassVar[str] = "R@kt"

    def __str__(self) -> str:
        mean = "(mean='languages')" if self.by_language else ""
        return f"R{mean}@{self.tokens // 1000}kt"


@dataclass(frozen=True)
class SetAtCutoff:
    """``SetF@10``: a measure of what was retrieved as a set, over the first ten hits alone.

    ``whole`` is ir_measures' own, which has no cutoff.
    """

    whole: Any
    depth: int

    @property
    def NAME(self) -> str:  # noqa: D102
        return str(self.whole.NAME)

    @property
    def params(self) -> dict[str, Any]:  # noqa: D102
        return {**self.whole.params, "cutoff": self.depth}

    def aggregator(self) -> Any:  # noqa: D102
        return self.whole.aggregator()

    def __str__(self) -> str:
        return f"{self.whole}@{self.depth}"


@dataclass(frozen=True)
class F1AtCutoff:
    """``F1@10``: the harmonic mean of ``P@10`` and ``R@10``, whatever the number of hits; ``precision`` is the former.

    ``SetF@10`` divides by the hits that there are, where P@10 divides by 10.
    """

    precision: Any

    NAME: ClassVar[str] = "F1"

    @property
    def params(self) -> dict[str, Any]:  # noqa: D102
        return dict(self.precision.params)

    @property
    def recall(self) -> Any:
        """``R@10`` with the same parameters."""
        import ir_measures

        return ir_measures.R(**self.params)

    def aggregator(self) -> Any:  # noqa: D102
        return self.precision.aggregator()

    def __str__(self) -> str:
        return f"F1{str(self.precision)[1:]}"


# Measures without a cutoff that look at what was retrieved as a set, or at the judgements alone: no deeper ranks exist
# for them.
# R@2kt says itself which queries have too few tokens.
_OF_THE_SET = frozenset(
    {"Judged", "NumQ", "NumRel", "NumRelRet", "NumRet", "SetAP", "SetF", "SetP", "SetR", "SetRelP", AnswerRecall.NAME}
)

# Measures that need no more than the relevance of each document that was retrieved.
OF_HITS_ALONE = frozenset({"RR", "Success", "P", "SetP", "RBP", "NumRet", "NumQ"})


def parse(names: Iterable[str], *, distances: bool = False) -> tuple[Any, ...]:
    """Measures from their names, e.g. ``"nDCG@10"`` or ``"RR(rel=2)@10"``; one that stands twice is taken once.

    Args:
        names: as ir_measures writes them.
        distances: Frechet distances are among what can be shown (:mod:`harness.evaluation.frechet_names`).

    Raises:
        UsageError: a name is not known to ir_measures, nothing installed can compute it, or what it asks for is beyond
            what may be asked for (:mod:`harness.evaluation.measure_names`).
    """
    parsed: list[Any] = []
    for name in names:
        if name.strip() == "":
            raise _unknown(name, "it is empty")
        if (tokens := re.fullmatch(r"R(\(mean=(['\"])languages\2\))?@(\w*)kt", name)) is not None:
            parsed.append(_answer_recall(name, tokens[3], by_language=tokens[1] is not None))
            continue
        if (distance := frechet_names.parse(name)) is not None:
            if not distances:
                raise UsageError(
                    f"{name} is a distance of a whole run, and less is better: harness frechet shows it, and harness "
                    "report in the formats md, csv, json and latex; name a measure, or one of those"
                )
            parsed.append(distance)
            continue
        if (of_f1 := re.fullmatch(r"F1((?:\(.*\))?(?:@.*)?)", name)) is not None:
            parsed.append(_f1(name, of_f1[1]))
            continue
        of_set = re.fullmatch(r"(Set(?:AP|F|P|R)(?:\(.*\))?)@([0-9]{1,18})", name)
        measure = _parsed(name, of_set[1] if of_set else name)
        if of_set:
            if (wrong := cutoff_fault(int(of_set[2]))) is not None:
                raise _unknown(name, wrong)
            measure = SetAtCutoff(measure, int(of_set[2]))
        parsed.append(measure)
    return tuple(dict.fromkeys(parsed))


def _parsed(name: str, text: str) -> Any:
    """ir_measures' measure of that text; ``name`` is what was asked for."""
    import ir_measures

    try:
        with warnings.catch_warnings():
            # ir_measures 0.4.3 reads measures with parts of ast that newer Pythons deprecate.
            warnings.simplefilter("ignore", DeprecationWarning)
            measure = ir_measures.parse_measure(text)
    except NameError as error:
        known = ir_measures.measures.registry
        raise _unknown(name, f"ir_measures has no such{did_you_mean(re.split(r'[@(]', text)[0], known)}") from error
    except (ValueError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise _unknown(name, "it is not NAME, NAME@k or NAME(key=value)@k") from error
    providers = [each for each in ir_measures.DefaultPipeline.providers if each.is_available()]
    # What cannot be computed at all is said before what is missing of it.
    named = any(other.NAME == measure.NAME for each in providers for other in each.SUPPORTED_MEASURES)
    wrong = fault(measure) if named else None
    if wrong is not None:
        raise _unknown(name, wrong)
    if not named or not any(each.supports(measure) for each in providers):
        raise UsageError(f"measure {name!r} cannot be computed by what is installed; see ir_measures' providers")
    return measure


def _f1(name: str, rest: str) -> F1AtCutoff:
    if "@" not in rest:
        raise _unknown(name, f"it needs a cutoff: {name}@10; over all that was retrieved it is SetF{rest}")
    return F1AtCutoff(_parsed(name, f"P{rest}"))


def _unknown(name: str, why: str) -> UsageError:
    return UsageError(
        f"unknown measure {name!r}: {why}; write it as ir_measures does, e.g. nDCG@10, RR@10, AP(rel=2)@100"
    )


def _answer_recall(name: str, thousands: str, *, by_language: bool) -> AnswerRecall:
    # Digits alone, and no zero before them: its text must parse back.
    if re.fullmatch(r"[1-9][0-9]{0,3}", thousands) is None or int(thousands) * 1000 > MOST_TOKENS:
        raise UsageError(
            f"unknown measure {name!r}: answers are looked for in the first {MOST_TOKENS:,} tokens; "
            f"R@1kt to R@{MOST_TOKENS // 1000}kt, of which R@2kt and R@5kt are XOR-TyDi's own"
        )
    return AnswerRecall(int(thousands) * 1000, by_language)


def cutoff(measure: Any) -> int | None:
    """The rank down to which a measure looks, or ``None`` if it has none."""
    value = measure.params.get("cutoff")
    return value if isinstance(value, int) else None


def looks_deeper(measure: Any, k: int) -> bool:
    """Whether a measure asks for ranks below ``k``; one without a cutoff goes down the whole ranking."""
    depth = cutoff(measure)
    return measure.NAME not in _OF_THE_SET if depth is None else depth > k
