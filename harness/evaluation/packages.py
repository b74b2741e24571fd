"""Packages of a pool for assessors, and their check by reviewers (Qiu et al. 2022, appendix A.3).

A pool is cut into packages of 1,000 pairs, one file each.  At least two reviewers each judge 100 random pairs of a
package without seeing its grades.  If they agree with less than 93 % of the grades on average, the assessors revise the
package, and the reviewers judge other pairs in the next round.

``package-001.tsv`` is a package, ``package-001.check-2-1.tsv`` the sheet of its second round for reviewer 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from pydantic import ConfigDict

from harness import filesystem
from harness.commands import option
from harness.errors import FileError, UsageError
from harness.evaluation.pool import GradedPair, JudgingPool, read_graded_pool, shuffle_key, write_pool

PAIRS, CHECKED, REVIEWERS = 1000, 100, 2
ACCURACY = 0.93
_SHEET = re.compile(r"(?P<package>[^.]+)\.check-(?P<round>[0-9]{1,4})-(?P<reviewer>[0-9]{1,4})\.[^.]+", re.ASCII)


@dataclass(frozen=True)
class CheckPlan:
    """Division of a pool into packages, and their check; the defaults follow the paper.

    ``pairs`` of a package, ``checked`` of them by each of ``reviewers``, drawn for this ``round``.
    """

    pairs: int = PAIRS
    checked: int = CHECKED
    reviewers: int = REVIEWERS
    round: int = 1


@dataclass(frozen=True)
class Review:
    """One reviewer's sheet: its name, its pairs, and those with the package's grade."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    sheet: str
    pairs: int
    same: int

    @property
    def accuracy(self) -> Fraction:
        """Share of pairs with the package's grade."""
        return Fraction(self.same, self.pairs)


@dataclass(frozen=True)
class PackageCheck:
    """The reviews of a package's last round."""

    package: Path
    round: int
    reviews: tuple[Review, ...]

    @property
    def accuracy(self) -> Fraction:
        """Mean over reviewers."""
        return mean_accuracy(self.reviews)


def mean_accuracy(reviews: Sequence[Review]) -> Fraction:
    """Return the mean accuracy of one or more reviews."""
    return sum((review.accuracy for review in reviews), Fraction()) / len(reviews)


def cut_packages(pool: JudgingPool, plan: CheckPlan, seed: int, form: str) -> Iterator[tuple[str, JudgingPool]]:
    """Yield the name and the pairs of each file: packages in the first round, and the sheets of their reviewers."""
    for number, start in enumerate(range(0, len(pool.pairs), plan.pairs), start=1):
        package, pairs = f"package-{number:03}", pool.pairs[start : start + plan.pairs]
        if plan.round == 1:
            yield f"{package}.{form}", replace(pool, pairs=pairs)
        for reviewer in range(1, plan.reviewers + 1):
            drawn = sorted(pairs, key=lambda pair: shuffle_key(seed, "check", str(plan.round), str(reviewer), *pair))
            yield f"{package}.check-{plan.round}-{reviewer}.{form}", replace(pool, pairs=tuple(drawn[: plan.checked]))


def check_folder(folder: Path, plan: CheckPlan) -> None:
    """Raise UsageError for a folder that cannot take packages: a file, or a folder that may hold grades."""
    if folder.is_file():
        raise UsageError(f"{folder}: is a file; name a folder for the packages with -o")
    if plan.round == 1 and folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder}: is not empty and may hold grades; name another folder")


def write_packages(
    pool: JudgingPool, documents: Mapping[str, Mapping[str, str]], plan: CheckPlan, seed: int, folder: Path, form: str
) -> None:
    """Write the packages of a pool, and the sheets of a round, into a folder; arguments as :func:`write_pool`.

    Raises:
        UsageError: a file exists, or the packages of the first round hold other pairs.
    """
    files = dict(cut_packages(pool, plan, seed, form))
    if plan.round > 1:
        held = [pair for path in find_packages(folder) for pair in read_graded_pool(path) or ()]
        if {(pair.query_id, pair.doc_id) for pair in held} != set(pool.pairs):
            raise UsageError(
                f"{folder}: its packages hold other pairs than these runs give; repeat the options of round 1"
            )
    existing = next((folder / name for name in files if (folder / name).exists()), None)
    if existing is not None:
        raise UsageError(f"{existing}: exists already and may hold grades; take a later --round")
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in files.items():
        with filesystem.atomic_write(folder / name) as partial, partial.open("w", encoding="utf-8") as stream:
            write_pool(part, documents, form, stream)


def find_packages(folder: Path) -> list[Path]:
    """Return the packages in a folder; raise FileError without any."""
    found = sorted(
        path
        for path in filesystem.without_litter(folder.glob("package-*.*"))
        if not _SHEET.fullmatch(path.name) and path.is_file()
    )
    if not found:
        raise FileError(f"{folder}: has no package; harness pool --package writes them")
    return found


def read_check(package: Path, pairs: Sequence[GradedPair]) -> PackageCheck | None:
    """Read the sheets of a package's last round; return ``None`` for a file without sheets.

    Args:
        package: the file.
        pairs: its pairs.

    Raises:
        FileError: a sheet cannot be read, has an empty grade, or a pair that the package lacks or left empty.
        UsageError: the round has fewer than two sheets.
    """
    sheets: dict[int, list[Path]] = {}
    for path in sorted(package.parent.iterdir()):
        match = _SHEET.fullmatch(path.name)
        if match and match["package"] == package.name.partition(".")[0]:
            sheets.setdefault(int(match["round"]), []).append(path)
    if not sheets or _SHEET.fullmatch(package.name):
        return None
    last = max(sheets)
    if len(sheets[last]) < REVIEWERS:
        raise UsageError(f"{package}: round {last} has {len(sheets[last])} sheet; bring back the others")
    grades = {(pair.query_id, pair.doc_id): pair.grade for pair in pairs}
    return PackageCheck(package, last, tuple(_review(path, package, grades) for path in sheets[last]))


def _review(path: Path, package: Path, grades: dict[tuple[str, str], int | None]) -> Review:
    pairs = read_graded_pool(path)
    if not pairs:
        raise FileError(f"{path}: has no pairs to compare; bring back the sheet that harness pool wrote")
    empty = [pair for pair in pairs if pair.grade is None]
    if empty:
        raise FileError(f"{path}: {len(empty):,} of {len(pairs):,} grades are empty, the first in {empty[0].place}")
    for pair in pairs:
        if grades.get((pair.query_id, pair.doc_id)) is None:
            ids = f"query {pair.query_id!r}, document {pair.doc_id!r}"
            raise FileError(f"{pair.place}: {package.name} has no grade for {ids}; fill it in there")
    same = sum(grades[pair.query_id, pair.doc_id] == pair.grade for pair in pairs)
    return Review(path.name, len(pairs), same)


def require_accuracy(check: PackageCheck, least: float) -> None:
    """Raise UsageError if the mean accuracy of a package is below ``least``."""
    if check.accuracy < exact(least):
        named = ", ".join(f"{review.sheet} {percent(review.accuracy)}" for review in check.reviews)
        again = f"{option('round', check.round + 1)} of `harness pool`"
        raise UsageError(
            f"{check.package}: reviewers agree with {percent(check.accuracy)} of its grades on average, below "
            f"{limit(least)} ({named}); revise it, then check other pairs ({again})"
        )


def exact(share: float) -> Fraction:
    """Return a share as its decimals say: binary floating point has no exact 0.93."""
    return Fraction(str(share))


def limit(share: float) -> str:
    """Return a least share in per cent, with all of its digits."""
    return f"{float(100 * exact(share)):g}%"


def percent(share: Fraction) -> str:
    """Return a share in per cent, rounded down, so that a share below a limit never reads as the limit."""
    return f"{math.floor(1000 * share) / 10:.1f}%"
