"""Parse names of effectiveness measures, as ir_measures writes them; refuse parameters that would break its providers.

Besides the measures of ir_measures there are ``R@2kt`` (:mod:`harness.evaluation.answer_recall`), ``SetF@10``,
``F1@10``, and names of Frechet distances: ``FD@10``, ``FD(unlabelled=True)@10``, ``FD(encoder='minilm')@1``.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.errors import UsageError, nearest, quoted_name
from harness.evaluation.answer_recall import MAX_TOKENS, AnswerRecall
from harness.evaluation.trec_lines import MAX_GRADE

DEFAULT = ("RR@10", "Success@10", "nDCG@10")
# Measures that need only the relevance of each retrieved document.
OF_HITS_ALONE = frozenset({"RR", "Success", "P", "SetP", "RBP", "NumRet", "NumQ"})
# Measures whose values are between 0 and 1.
AT_MOST_ONE = frozenset(
    {"AP", "Accuracy", "Bpref", "ERR", "F1", "IPrec", "Judged", "P", "R", "RBP", "RR", "Rprec", "SetAP", "SetF", "SetP"}
    | {"SetR", "Success", "alpha_nDCG", "infAP", "nDCG", "nERR_IA", "AP_IA", "P_IA", "StRecall", AnswerRecall.NAME}
)
# Measures without a cutoff that have no deeper ranks to look at.  R@2kt reports its truncated queries itself.
_OF_THE_SET = frozenset(
    {"Judged", "NumQ", "NumRel", "NumRelRet", "NumRet", "SetAP", "SetF", "SetP", "SetR", "SetRelP", AnswerRecall.NAME}
)
# gdeval, which computes ERR and nDCG with gains of 2^grade - 1, fails on a higher grade.
MAX_GDEVAL_GRADE = 4
# trec_eval stores cutoffs as C's int.
_MAX_CUTOFF = 2**31 - 1
# Of a suite, and of all suites of a folder: each measure takes time for each run.
MOST_NAMES = 100
# Ranks to look at for unjudged hits where no measure has a cutoff.
_UNJUDGED_DEPTH = 10
# Names that are known without ir_measures, which takes long to import.
_PLAIN = re.compile("(?:AP|P|R|RR|Success|nDCG)@[1-9][0-9]{0,8}")
_DISTANCE_FORM = "FD@10, with any of judged=5 (or 'all'), unlabelled=True and encoder='minilm' in brackets after FD"


@dataclass(frozen=True)
class SetAtCutoff:
    """``SetF@10``: a set measure over the first ten hits; ``whole`` is ir_measures' own, without a cutoff."""

    whole: Any
    depth: int

    @property
    def NAME(self) -> str:
        """Name without parameters."""
        return str(self.whole.NAME)

    @property
    def params(self) -> dict[str, Any]:
        """Parameters by name."""
        return {**self.whole.params, "cutoff": self.depth}

    def aggregator(self) -> Any:
        """Return ir_measures' object that aggregates the values of queries."""
        return self.whole.aggregator()

    def __str__(self) -> str:
        return f"{self.whole}@{self.depth}"


@dataclass(frozen=True)
class F1AtCutoff:
    """``F1@10``: the harmonic mean of ``P@10`` (``precision``) and ``R@10``.

    With fewer than ten hits, ``SetF@10`` divides by their number, as P@10 does not.
    """

    precision: Any

    NAME: ClassVar[str] = "F1"

    @property
    def params(self) -> dict[str, Any]:
        """Parameters by name."""
        return dict(self.precision.params)

    @property
    def recall(self) -> Any:
        """``R@10`` with the same parameters."""
        import ir_measures

        return ir_measures.R(**self.params)

    def aggregator(self) -> Any:
        """Return ir_measures' object that aggregates the values of queries."""
        return self.precision.aggregator()

    def __str__(self) -> str:
        return f"F1{str(self.precision)[1:]}"


@dataclass(frozen=True)
class DistanceName:
    """``FD@k``, as :func:`harness.evaluation.frechet.distances` computes it.  Smaller is better.

    ``judged``: the most judged documents of a query, ``None``: all.  ``unlabelled``: judged documents are skipped among
    the retrieved ones.  ``encoder``: the system whose vectors are used, ``None``: the only one.
    """

    k: int
    judged: int | None = 10
    unlabelled: bool = False
    encoder: str | None = None
    NAME: ClassVar[str] = "FD"

    @property
    def params(self) -> dict[str, Any]:
        """Parameters that ir_measures' measures have too."""
        return {"cutoff": self.k}

    def __str__(self) -> str:
        params: dict[str, object] = {} if self.judged == 10 else {"judged": self.judged or "all"}
        params |= {"unlabelled": True} if self.unlabelled else {}
        params |= {"encoder": self.encoder} if self.encoder else {}
        inside = ",".join(f"{name}={value!r}" for name, value in params.items())
        return f"FD{f'({inside})' if inside else ''}@{self.k}"


def cutoff(measure: Any) -> int | None:
    """Return the deepest rank of a measure, or ``None`` if it has no cutoff."""
    value = measure.params.get("cutoff")
    return value if isinstance(value, int) else None


def looks_deeper(measure: Any, k: int) -> bool:
    """Return whether a measure needs ranks below ``k``; one without a cutoff needs the whole ranking."""
    depth = cutoff(measure)
    return measure.NAME not in _OF_THE_SET if depth is None else depth > k


def unjudged_depth(measures: Iterable[Any], most: int) -> int:
    """Return how many ranks to look at for unjudged hits: the first cutoff of the measures, at most ``most``."""
    cutoffs = (cutoff(measure) for measure in measures)
    return min(most, next((depth for depth in cutoffs if depth), _UNJUDGED_DEPTH))


def parse(names: Iterable[str], *, distances: bool = False) -> tuple[Any, ...]:
    """Parse names such as ``"nDCG@10"`` or ``"RR(rel=2)@10"``; drop repeated ones.

    ``distances``: accept names of Frechet distances too.

    Raises:
        UsageError: a name is unknown, no installed provider computes it, or a parameter is out of range.
    """
    return tuple(dict.fromkeys(_parse_one(name, distances=distances) for name in names))


def check(names: Iterable[str]) -> None:
    """Refuse names that :func:`parse` refuses, distances apart; for usual ones ir_measures is not imported.

    Raises:
        UsageError: names the first that is wrong.
    """
    for name in names:
        if not _PLAIN.fullmatch(name):
            _parse_one(name, distances=True)


def _parse_one(name: str, *, distances: bool) -> Any:
    if name.strip() == "":
        raise _unknown(name, "it is empty")
    if recall := re.fullmatch(r"R(\(mean=(['\"])languages\2\))?@(\w*)kt", name):
        # Digits only and no leading zero: the measure's text must parse back.
        if re.fullmatch(r"[1-9][0-9]{0,3}", recall[3]) and int(recall[3]) * 1000 <= MAX_TOKENS:
            return AnswerRecall(int(recall[3]) * 1000, by_language=recall[1] is not None)
        raise UsageError(f"unknown measure {name!r}: write R@1kt to R@{MAX_TOKENS // 1000}kt")
    if distance := parse_distance(name):
        if not distances:
            raise UsageError(
                f"{name} is a distance of a whole run, and less is better: harness frechet shows it, and harness "
                "report in the formats md, csv, json and latex; name a measure, or use one of those"
            )
        return distance
    if f1 := re.fullmatch(r"F1((?:\(.*\))?(?:@.*)?)", name):
        if "@" not in f1[1]:
            raise _unknown(name, f"it needs a cutoff: {name}@10; over all retrieved documents it is SetF{f1[1]}")
        return F1AtCutoff(_ir_measure(name, f"P{f1[1]}"))
    if set_measure := re.fullmatch(r"(Set(?:AP|F|P|R)(?:\(.*\))?)@([0-9]{1,18})", name):
        measure = _ir_measure(name, set_measure[1])
        if fault := _cutoff_fault(int(set_measure[2])):
            raise _unknown(name, fault)
        return SetAtCutoff(measure, int(set_measure[2]))
    return _ir_measure(name, name)


def parse_distance(name: str) -> DistanceName | None:
    """Parse the name of a Frechet distance; return ``None`` for another name.

    Raises:
        UsageError: the distance is malformed.
    """
    if re.match(r"FD\b", name) is None:
        return None
    match = re.fullmatch(r"FD(?:\((.*)\))?@([1-9][0-9]{0,5})", name)
    try:
        call = ast.parse(f"f({match[1] or ''})", mode="eval").body if match else None
        if match is None or not isinstance(call, ast.Call) or call.args:
            raise ValueError("no such form")
        params = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        if len(params) < len(call.keywords):
            raise ValueError("a parameter appears twice")
        return _distance_name(int(match[2]), **params)
    except (ValueError, TypeError, SyntaxError) as error:
        raise UsageError(f"unknown distance {name!r}; write {_DISTANCE_FORM}, without blanks") from error


def _distance_name(k: int, judged: Any = 10, unlabelled: Any = False, encoder: Any = None) -> DistanceName:
    if judged != "all" and (type(judged) is not int or judged < 1):
        raise ValueError("judged is a number from 1 on, or 'all'")
    if not isinstance(unlabelled, bool):
        raise ValueError("unlabelled is True or False")
    if encoder is not None and (not isinstance(encoder, str) or not encoder):
        raise ValueError("encoder is the name of a system")
    return DistanceName(k, None if judged == "all" else judged, unlabelled, encoder)


def _read_measure(text: str) -> Any:
    import ir_measures

    with warnings.catch_warnings():
        # ir_measures 0.4.3 uses parts of ast that newer Pythons deprecate.
        warnings.simplefilter("ignore", DeprecationWarning)
        return ir_measures.parse_measure(text)


def _ir_measure(name: str, text: str) -> Any:
    """Return the measure that ir_measures reads from ``text``; ``name`` is the user's name for errors."""
    import ir_measures

    try:
        measure = _read_measure(text)
    except NameError as error:
        raise _unknown(name, "ir_measures does not have it", _suggestion(text)) from error
    except (ValueError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise _unknown(name, "it is not NAME, NAME@k or NAME(key=value)@k", _suggestion(text)) from error
    providers = [provider for provider in ir_measures.DefaultPipeline.providers if provider.is_available()]
    # A measure that no provider has is refused before its parameters are checked.
    exists = any(other.NAME == measure.NAME for provider in providers for other in provider.SUPPORTED_MEASURES)
    fault = _parameter_fault(measure) if exists else None
    if fault is not None:
        raise _unknown(name, fault)
    if not exists or not any(provider.supports(measure) for provider in providers):
        raise UsageError(f"no installed provider of ir_measures computes {name!r}; install one or name another measure")
    return measure


# Names here, and the same measures' names in other tools, in small letters alone.
_SYNONYMS = {
    "AP": "map mapcut averageprecision",
    "RR": "mrr reciprank reciprocalrank",
    "nDCG": "ndcgcut",
    "P": "precision",
    "R": "recall recallcap",
    "Success": "hit hits hitrate acc",
    "SetAP": "setmap",
    "SetR": "setrecall",
    "SetP": "setprecision",
    "SetF": "fscore",
    "IPrec": "iprecatrecall",
    "Rprec": "rprecision",
}
_OTHER_NAMES = {name: measure for measure, names in _SYNONYMS.items() for name in names.split()}


def _suggestion(text: str) -> str:
    """Return ``. Did you mean 'nDCG@10'?`` for a name in other letters or of another tool, or nothing.

    The cutoff may be after ``@``, ``_``, ``.`` or nothing: ``ndcg_cut_10``, ``ndcg_cut.10``, ``P_5``, ``mrr10``.
    """
    import ir_measures

    match = re.fullmatch(r"([Ff]1|[A-Za-z_ -]*[A-Za-z])(\(.*\))?[@_. :]*([0-9]+(?:\.[0-9]+)?)?", text.strip())
    if match is None:
        return ""
    registry = ir_measures.measures.registry
    known = {_letters(name): measure.NAME for name, measure in registry.items() if name[-1].isalpha()}
    known |= {"f": "F1"} | _OTHER_NAMES
    near = nearest(_letters(match[1]), known)
    if near is None:
        return ""
    name = known[near]
    examples = (f"{name}{match[2] or ''}{f'@{match[3]}' if match[3] else ''}", f"{name}@10", name)
    return next((f". Did you mean {example!r}?" for example in examples if _is_measure(example)), "")


def _letters(name: str) -> str:
    return re.sub("[^a-z]", "", name.lower())


def _is_measure(name: str) -> bool:
    try:
        return _parameter_fault(_read_measure(f"P{name[2:]}" if name.startswith("F1@") else name)) is None
    except (ValueError, KeyError, TypeError, NameError):
        return False


def _unknown(name: str, reason: str, hint: str = "") -> UsageError:
    return UsageError(
        f"unknown measure {quoted_name(name)}: {reason}; write it like nDCG@10, RR@10 or AP(rel=2)@100{hint}"
    )


_EXAMPLES = {"cutoff": "@10", "recall": "@0.1"}
_TYPES = {int: "a whole number", float: "a number with a point", bool: "True or False", str: "text", dict: "{1:1,2:3}"}
# Check of a parameter's value, and the rule in words.
_LIMITS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "rel": (lambda rel: 1 <= rel <= MAX_GRADE, f"rel, the lowest relevant grade, is 1 to {MAX_GRADE:,}"),
    "recall": (
        lambda recall: 0 <= recall <= 1 and math.isclose(recall, round(recall, 2), abs_tol=1e-12),
        "recall is 0 to 1 with at most two decimals",
    ),
    "beta": (lambda beta: 0 <= beta < math.inf, "beta is 0 or more"),
    "p": (lambda p: 0 < p < 1, "p is above 0 and below 1"),
}


def _parameter_fault(measure: Any) -> str | None:
    """Return the first fault of a measure's parameters, which providers would compute wrongly or fail on."""
    supported = measure.SUPPORTED_PARAMS
    for name in measure.params:
        if name not in supported:
            if name == measure.AT_PARAM:
                return f"{measure.NAME} has no cutoff"
            return f"{measure.NAME} has no {name!r}; it has {', '.join(supported) or 'nothing in brackets'}"
    for name, parameter in supported.items():
        if name in measure.params:
            if fault := _value_fault(name, measure.params[name], parameter):
                return fault
        elif parameter.required and name == measure.AT_PARAM:
            return f"it needs a {name}: {measure.NAME}{_EXAMPLES.get(name, '')}"
        elif parameter.required:
            return f"it needs {name}=... in brackets"
    return None


def _value_fault(name: str, value: Any, parameter: Any) -> str | None:
    if name == "cutoff":
        return _cutoff_fault(value)
    if not isinstance(value, parameter.dtype) or (isinstance(value, bool) and parameter.dtype is not bool):
        return f"{name} is {_TYPES[parameter.dtype]}, not {value!r}"
    if not parameter.validate(value):
        return f"{name} is one of {', '.join(map(repr, parameter.choices))}, not {value!r}"
    if name == "gains":
        return _gains_fault(value)
    is_valid, rule = _LIMITS.get(name, (lambda _: True, ""))
    return None if is_valid(value) else f"{rule}, not {value!r}"


def _cutoff_fault(value: Any) -> str | None:
    if type(value) is int and 1 <= value <= _MAX_CUTOFF:
        return None
    return f"the cutoff is a whole number from 1 to {_MAX_CUTOFF:,}, not {value!r}"


def _gains_fault(gains: Mapping[Any, Any]) -> str | None:
    """Return the fault of gains: they reach trec_eval as grades, and irrelevant documents must stay irrelevant."""
    for grade, gain in gains.items():
        if type(grade) is not int or type(gain) is not int or not 0 <= gain <= MAX_GRADE:
            return f"gains map whole grades to whole numbers from 0 to {MAX_GRADE:,}, not {grade!r}:{gain!r}"
        if grade <= 0 < gain:
            return f"grade {grade} is not relevant and gains nothing, not {gain}"
    return None
