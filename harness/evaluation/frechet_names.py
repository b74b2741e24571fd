"""Frechet distances by name, beside measures: ``FD@10``, ``FD(unlabelled=True)@10``, ``FD(encoder='minilm')@1``."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.errors import UsageError

_FORM = "FD@10, with any of judged=5 (or 'all'), unlabelled=True and encoder='minilm' in brackets behind FD"


@dataclass(frozen=True)
class DistanceName:
    """``FD@k``, as :func:`harness.evaluation.frechet.systems.distances` computes it.  Smaller is better.

    ``judged``: judged documents of one query at most, ``None``: all.  ``unlabelled``: those are skipped in what was
    retrieved.  ``encoder``: the system whose vectors are taken, ``None``: the only one that there is.
    It is looked at as ir_measures' own measures are: ``NAME``, ``params``, and its text parses back.
    """

    k: int
    judged: int | None = 10
    unlabelled: bool = False
    encoder: str | None = None
    NAME: ClassVar[str] = "FD"

    @property
    def params(self) -> dict[str, Any]:  # noqa: D102
        return {"cutoff": self.k}

    def __str__(self) -> str:
        said = {} if self.judged == 10 else {"judged": self.judged or "all"}
        said |= {"unlabelled": True} if self.unlabelled else {}
        said |= {"encoder": self.encoder} if self.encoder else {}
        inside = ",".join(f"{name}={value!r}" for name, value in said.items())
        return f"FD{f'({inside})' if inside else ''}@{self.k}"


def parse(name: str) -> DistanceName | None:
    """The distance that a name asks for; ``None``: it is no distance's name.

    Raises:
        UsageError: it is one, and wrong.
    """
    if re.match(r"FD\b", name) is None:
        return None
    found = re.fullmatch(r"FD(?:\((.*)\))?@([1-9][0-9]{0,5})", name)
    try:
        call = ast.parse(f"f({found[1] or ''})", mode="eval").body if found else None
        if found is None or not isinstance(call, ast.Call) or call.args:
            raise ValueError("no such form")
        given = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        if len(given) < len(call.keywords):
            raise ValueError("something stands twice")
        return _checked(int(found[2]), **given)
    except (ValueError, TypeError, SyntaxError) as error:
        raise UsageError(f"unknown distance {name!r} ({error}); write {_FORM}, without blanks") from error


def _checked(k: int, judged: object = 10, unlabelled: object = False, encoder: object = None) -> DistanceName:
    most = None if judged == "all" else judged
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        raise ValueError("judged is a number from 1 on, or 'all'")
    if not isinstance(unlabelled, bool):
        raise ValueError("unlabelled is True or False")
    if encoder is not None and (not isinstance(encoder, str) or not encoder):
        raise ValueError("encoder is the name of a system")
    return DistanceName(k, most, unlabelled, encoder)
