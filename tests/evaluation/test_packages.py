"""Packages of a pool, and the rule of 93 % that reviewers hold them to."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from harness.errors import FileError, UsageError
from harness.evaluation import packages, qrels_merge
from harness.evaluation.packages import CheckPlan, Review, cut_packages, read_check, require_accuracy
from harness.evaluation.pool import GradedPair, JudgingPool, read_graded_pool

POOL = JudgingPool(tuple((f"q{n // 5}", f"d{n}") for n in range(2345)), {}, 0, (), 50)


def test_packages_of_a_thousand_have_two_sheets_of_a_hundred_pairs() -> None:
    files = dict(cut_packages(POOL, CheckPlan(), 1, "tsv"))
    sizes = {name: len(part.pairs) for name, part in files.items()}
    assert [sizes[f"package-00{number}.tsv"] for number in (1, 2, 3)] == [1000, 1000, 345]
    assert [pair for n in (1, 2, 3) for pair in files[f"package-00{n}.tsv"].pairs] == list(POOL.pairs)
    for number in (1, 2, 3):
        mine, other = (files[f"package-00{number}.check-1-{reviewer}.tsv"].pairs for reviewer in (1, 2))
        assert len(mine) == len(other) == 100 and set(mine) | set(other) <= set(files[f"package-00{number}.tsv"].pairs)
        assert len(set(mine)) == 100 and set(mine) != set(other), "each reviewer draws for himself"
    assert len(files) == 9
    second = dict(cut_packages(POOL, CheckPlan(round=2), 1, "tsv"))
    assert sorted(second) == sorted(name.replace("check-1", "check-2") for name in files if "check" in name)
    assert set(second["package-001.check-2-1.tsv"].pairs) != set(files["package-001.check-1-1.tsv"].pairs)


def test_a_small_package_is_checked_whole() -> None:
    small = JudgingPool(POOL.pairs[:7], {}, 0, (), 5)
    assert [len(part.pairs) for _, part in cut_packages(small, CheckPlan(), 1, "tsv")] == [7, 7, 7]


def write_sheets(folder: Path, wrong: dict[str, int], size: int = 100) -> tuple[Path, list[GradedPair]]:
    """Write a package that says 1 everywhere, and sheets that contradict so many of its pairs."""
    package = folder / "package-001.tsv"
    lines = [f"q{n}\td{n}\t" for n in range(size)]
    package.write_text("query_id\tdoc_id\tgrade\n" + "".join(f"{line}1\n" for line in lines))
    for name, count in wrong.items():
        grades = "".join(f"{line}{int(n >= count)}\n" for n, line in enumerate(lines))
        (folder / f"package-001.check-{name}.tsv").write_text("query_id\tdoc_id\tgrade\n" + grades)
    return package, list(read_graded_pool(package) or ())


@pytest.mark.parametrize(
    ("wrong", "accuracy", "passes"),
    [
        ({"1-1": 7, "1-2": 7}, "93/100", True),
        ({"1-1": 8, "1-2": 6}, "93/100", True),  # the mean counts, and binary fractions do not spoil it
        ({"1-1": 8, "1-2": 7}, "185/200", False),
        ({"1-1": 20, "1-2": 0, "1-3": 0}, "280/300", True),
        ({"1-1": 90, "1-2": 90, "2-1": 0, "2-2": 1}, "199/200", True),  # the last round counts
    ],
)
def test_a_package_passes_at_a_mean_of_93_percent(
    tmp_path: Path, wrong: dict[str, int], accuracy: str, passes: bool
) -> None:
    check = read_check(*write_sheets(tmp_path, wrong))
    assert check is not None and check.accuracy == Fraction(accuracy)
    if passes:
        require_accuracy(check, packages.ACCURACY)
    else:
        with pytest.raises(UsageError, match=r"agree with 92\.5% of its grades .* below 93% .*--round 2"):
            require_accuracy(check, packages.ACCURACY)


def test_an_accuracy_below_the_limit_never_reads_as_the_limit(tmp_path: Path) -> None:
    check = read_check(*write_sheets(tmp_path, {"1-1": 141, "1-2": 140}, size=2010))
    assert check is not None
    with pytest.raises(UsageError, match=r"agree with 93\.0% of its grades on average, below 93\.5%"):
        require_accuracy(check, 0.935)
    assert packages.percent(Fraction(9299, 10000)) == "92.9%" and packages.percent(Fraction(1)) == "100.0%"


def test_incomplete_checks_are_refused(tmp_path: Path) -> None:
    package, pairs = write_sheets(tmp_path, {})
    assert read_check(package, pairs) is None, "a pool without sheets needs no check"
    package, pairs = write_sheets(tmp_path, {"1-1": 0})
    with pytest.raises(UsageError, match="round 1 has 1 sheet; bring back the others"):
        read_check(package, pairs)
    write_sheets(tmp_path, {"1-1": 0, "1-2": 0})
    sheet = tmp_path / "package-001.check-1-2.tsv"
    sheet.write_text("query_id\tdoc_id\tgrade\nq0\td0\t1\nq1\td1\t\n")
    with pytest.raises(FileError, match=r"1 of 2 grades are empty, the first in .*check-1-2\.tsv:3"):
        read_check(package, pairs)
    sheet.write_text("query_id\tdoc_id\tgrade\nq0\td7\t1\n")
    with pytest.raises(FileError, match=r"package-001\.tsv has no grade for query 'q0', document 'd7'"):
        read_check(package, pairs)
    sheet.write_text("query_id\tdoc_id\tgrade\n")
    with pytest.raises(FileError, match="has no pairs to compare"):
        read_check(package, pairs)
    with pytest.raises(FileError, match="has no package; harness pool --package writes them"):
        packages.find_packages(tmp_path / "none")


def test_reviews_stay_in_the_record_of_the_merge(tmp_path: Path) -> None:
    package, pairs = write_sheets(tmp_path, {"1-1": 1, "1-2": 2})
    check = read_check(package, pairs)
    assert check is not None
    (tmp_path / "base").write_text("q9 0 d9 1\n")
    base = qrels_merge.read_base(tmp_path / "base")
    merged = qrels_merge.merge_qrels(
        base, pairs, "override", source="us", date="2026", file=package, reviews=check.reviews
    )
    qrels_merge.write_merged(tmp_path / "new", merged)
    (record,) = qrels_merge.read_base(tmp_path / "new").merges
    sheets = ("package-001.check-1-1.tsv", "package-001.check-1-2.tsv")
    assert record.reviews == (Review(sheets[0], 100, 99), Review(sheets[1], 100, 98))
