"""Merged judgements: none is lost, none changes without a request, and each names its origin."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import FileError, UsageError
from harness.evaluation import pool, qrels_merge
from harness.evaluation.pool import GradedPair
from harness.evaluation.qrels_merge import BaseQrels, MergedQrels, MergeRecord
from harness.evaluation.trec import read_qrels

BASE = "q2 0 d1 1\nq1\tQ0  d1 0\nq1 0 d2 -1\n"


def given_grades(*grades: tuple[str, str, int | None]) -> tuple[GradedPair, ...]:
    return tuple(GradedPair(f"judged:{number}", *each) for number, each in enumerate(grades, start=2))


def merged(
    folder: Path, *grades: tuple[str, str, int | None], conflicts: str = "refuse", base: str = BASE
) -> MergedQrels:
    (folder / "base").write_text(base)
    return merged_into(folder, qrels_merge.read_base(folder / "base"), *grades, conflicts=conflicts)


def merged_into(
    folder: Path, base: BaseQrels, *grades: tuple[str, str, int | None], conflicts: str = "refuse"
) -> MergedQrels:
    (folder / "judged").write_text("")
    return qrels_merge.merge_qrels(
        base, given_grades(*grades), conflicts, source="us", date="2026-01-31", file=folder / "judged"
    )


def test_merge_keeps_existing_lines_and_appends_new_ones(tmp_path: Path) -> None:
    merge = merged(tmp_path, ("q3", "d9", 2), ("q1", "d5", 0), ("q1", "d1", 0), ("q1", "d7", None))
    assert merge.content.decode() == "q2 0 d1 1\nq1 Q0 d1 0\nq1 0 d2 -1\nq1 1 d5 0\nq3 1 d9 2\n"
    done = merge.merges[-1]
    assert (done.iteration, done.added, done.same, done.unfilled, done.conflicts) == (1, 2, 1, 1, ())
    (tmp_path / "made").write_bytes(merge.content)
    assert [line.iteration for line in ir_measures.read_trec_qrels(str(tmp_path / "made"))][-2:] == ["1", "1"]


def test_merge_keeps_comments_at_the_top(tmp_path: Path) -> None:
    path = tmp_path / "base"
    path.write_text("\ufeff# made by us\nq1 0 d1 1\n\n  #  and\tmore \n#q 0 d1 1\n#\u00a0q 0 d1 1\n")
    base = qrels_merge.read_base(path)
    assert base.comments == ("# made by us", "  #  and\tmore")
    made = merged_into(tmp_path, base)
    (tmp_path / "made").write_bytes(made.content)
    assert made.content.decode() == "# made by us\n  #  and\tmore\nq1 0 d1 1\n#q 0 d1 1\n#\u00a0q 0 d1 1\n"
    assert qrels_merge.read_base(tmp_path / "made").lines[0].grade == 1


def test_merge_takes_the_next_free_iteration_number(tmp_path: Path) -> None:
    assert merged(tmp_path, ("q9", "d1", 1), base="q1 7 d1 1\nq1 x d2 1\n").merges[-1].iteration == 8
    path = tmp_path / "made"
    first = qrels_merge.write_merged(path, merged(tmp_path))
    again = merged_into(tmp_path, qrels_merge.read_base(path)).merges
    assert (first.iteration, again[-1].iteration) == (1, 2), "though the first added nothing"
    assert again[0] == first


def test_conflicts_are_refused_by_default(tmp_path: Path) -> None:
    grades = [("q1", "d1", 3), ("q2", "d1", 0), ("q4", "d1", 1)]
    with pytest.raises(UsageError, match=r"2 existing grades differ: judged:2: 'q1', document 'd1': 3; .*base:2: 0;"):
        merged(tmp_path, *grades)
    many = [("q", f"d{n}", 2) for n in range(5)]
    with pytest.raises(UsageError, match=r"judged:4: [^;]*; [^;]* and 2 more; use --conflicts keep or override"):
        merged(tmp_path, *many, base="".join(f"q 0 d{n} 1\n" for n in range(5)))
    kept = merged(tmp_path, *grades, conflicts="keep")
    assert kept.content.decode() == "q2 0 d1 1\nq1 Q0 d1 0\nq1 0 d2 -1\nq4 1 d1 1\n"
    new = merged(tmp_path, *grades, conflicts="override")
    assert new.content.decode() == "q2 1 d1 0\nq1 1 d1 3\nq1 0 d2 -1\nq4 1 d1 1\n"
    assert new.merges[-1].conflicts == kept.merges[-1].conflicts
    conflicts = [(conflict.query_id, conflict.before, conflict.given) for conflict in new.merges[-1].conflicts]
    assert conflicts == [("q1", 0, 3), ("q2", 1, 0)]


# Surrogates, NULs, marks and every kind of white space among them, and what files have a use for.
odd = st.text(st.one_of(st.characters(), st.sampled_from("#\0\ufeff \t\x0b\x1c\x85\xa0\u2028")), max_size=4)


@pytest.mark.slow
@given(st.lists(st.tuples(odd, odd), max_size=4), st.sampled_from([BASE, ""]))
def test_added_judgements_read_back_or_are_refused(
    tmp_path_factory: pytest.TempPathFactory, given_ids: list[tuple[str, str]], base: str
) -> None:
    folder = tmp_path_factory.mktemp("odd")
    accepted = []
    for number, (query, document) in enumerate([*given_ids, ("plain#1", "\xa0d")]):
        line = {"query_id": query, "doc_id": document, "grade": number % 3}
        (folder / "one").write_text(json.dumps(line))
        try:
            accepted += pool.read_graded_pool(folder / "one") or ()
        except FileError:
            continue
    assert accepted, "what is out of the ordinary but stays as it is is taken"
    once = {(each.query_id, each.doc_id): each.grade for each in accepted}
    merge = merged(folder, *((*ids, grade) for ids, grade in once.items()), conflicts="override", base=base)
    qrels_merge.write_merged(folder / "made", merge)
    qrels = read_qrels(folder / "made")
    (folder / "base").write_text(base)
    expected = {(q, d): g for q, judged in read_qrels(folder / "base").items() for d, g in judged.items()} | once
    assert {(q, d): g for q, judged in qrels.items() for d, g in judged.items()} == expected


grade = st.integers(0, 3)
pairs = st.tuples(st.sampled_from("abc"), st.sampled_from("uvw"))


@pytest.mark.slow
@given(st.dictionaries(pairs, grade), st.dictionaries(pairs, st.none() | grade), st.sampled_from(["keep", "override"]))
def test_merge_equals_merged_dictionaries(
    tmp_path_factory: pytest.TempPathFactory,
    base: dict[tuple[str, str], int],
    new: dict[tuple[str, str], int | None],
    conflicts: str,
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    known = {pair: grade for pair, grade in new.items() if grade is not None}
    merge = merged(
        folder,
        *((*pair, grade) for pair, grade in new.items()),
        conflicts=conflicts,
        base="".join(f"{query} 0 {document} {grade}\n" for (query, document), grade in base.items()),
    )
    (folder / "made").write_bytes(merge.content)
    found = {(q, d): g for q, judged in read_qrels(folder / "made").items() for d, g in judged.items()}
    assert found == (known | base if conflicts == "keep" else base | known)
    done = merge.merges[-1]
    assert done.added + done.same + len(done.conflicts) + done.unfilled == len(new)


@pytest.mark.parametrize("name", ["made", "made.gz"])
def test_files_and_their_provenance_are_read_back(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    merge = merged(tmp_path, ("q3", "d1", 1), ("q2", "d1", 0), conflicts="keep")
    done = qrels_merge.write_merged(path, merge)
    base = qrels_merge.read_base(path)
    assert base.merges == (done,)
    assert done.after == base.sha256
    content = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
    assert content == merge.content
    assert sorted(each.name for each in tmp_path.iterdir()) == ["base", "judged", name, f"{name}.provenance.jsonl"]
    assert base.changed_after == ()
    assert replace(base, sha256="other").changed_after == (1,)


def test_changes_between_merges_are_detected() -> None:
    def one(iteration: int, before: str, after: str) -> MergeRecord:
        return MergeRecord(iteration, "", "", "", "", before, after, 0, 0, 0, (), "keep")

    merges = (one(1, "a", "b"), one(2, "b", "c"), one(3, "x", "d"))
    assert BaseQrels((), "d", merges=merges).changed_after == (2,)
    assert BaseQrels((), "a").changed_after == ()


def test_failed_write_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "made"
    qrels_merge.write_merged(path, merged(tmp_path))
    before = {each: each.read_bytes() for each in tmp_path.iterdir()}
    (tmp_path / "made.1").mkdir()
    with pytest.raises(FileError, match="is a folder; name a file"):
        qrels_merge.write_merged(tmp_path / "made.1", merged(tmp_path))
    (tmp_path / "made.1").rmdir()
    assert {each: each.read_bytes() for each in tmp_path.iterdir()} == before


@pytest.mark.parametrize("line", ["[]", "{}", '{"version": 2}', "text", '{"version": 1, "conflicts": [{}]}', b"\xff"])
def test_damaged_provenance_is_named(tmp_path: Path, line: str | bytes) -> None:
    path = tmp_path / "made"
    qrels_merge.write_merged(path, merged(tmp_path))
    record = qrels_merge.provenance_path(path)
    record.write_bytes(record.read_bytes() + (line.encode() if isinstance(line, str) else line) + b"\n")
    with pytest.raises(FileError, match=r"made.provenance.jsonl:2: cannot be read"):
        qrels_merge.read_base(path)
    qrels_merge.write_merged(path, merged(tmp_path))
    record.write_text(record.read_text().replace('"iteration": 1', '"iteration": "1"'))
    with pytest.raises(FileError, match=r"provenance.jsonl:1: .*key 'iteration' is \"1\"; restore or move it"):
        qrels_merge.read_base(path)


def test_repeated_line_counts_once(tmp_path: Path) -> None:
    (tmp_path / "base").write_bytes(b"q1 0 d1 1\r\n\nq1 0 d1 1\n")
    (line,) = qrels_merge.read_graded_qrels(tmp_path / "base")
    assert line == GradedPair(f"{tmp_path / 'base'}:1", "q1", "d1", 1, "0")


def test_judgements_are_counted_by_grade_and_query(tmp_path: Path) -> None:
    (tmp_path / "base").write_text(BASE)
    facts = qrels_merge.describe_qrels(qrels_merge.read_base(tmp_path / "base").lines)
    assert (facts["judgements"], facts["queries"], facts["grades"]) == (3, 2, {"-1": 1, "0": 1, "1": 1})
    assert facts["judged_per_query"] == {"least": 1, "median": 1, "mean": 1.5, "most": 2}
    assert facts["relevant_per_query"]["least"] == 0
    assert json.dumps(qrels_merge.describe_qrels(()))


@pytest.mark.parametrize("odd", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to(path.name)])
def test_odd_thing_in_place_of_provenance_is_named(tmp_path: Path, odd: Callable[[Path], object]) -> None:
    (tmp_path / "base").write_text(BASE)
    odd(qrels_merge.provenance_path(tmp_path / "base"))
    with pytest.raises(FileError, match=r"base.provenance.jsonl: cannot be read: .*; restore or move it"):
        qrels_merge.read_base(tmp_path / "base")
