"""`harness qrels`, as a person types it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.support.command_line import HEAD, RUN_FILES, Call, assert_refused, pooled


@pytest.fixture
def harness(tiny_runs: Call) -> Call:
    return tiny_runs


def test_judged_pool_becomes_judgements(harness: Call) -> None:
    assert harness("pool", *RUN_FILES, "--dataset", "tiny", "-o", "pool.tsv").exit_code == 0
    with Path("pool.tsv").open(newline="") as stream:
        lines = list(csv.DictReader(stream, dialect="excel-tab"))
    Path("judged.csv").write_text("".join(f"{line['pair']},{line['query_id']},{line['doc_id']},1\n" for line in lines))
    Path("judged.csv").write_text("pair,query_id,doc_id,grade\n" + Path("judged.csv").read_text())
    done = harness("qrels", "add", "judged.csv", "--to", "tiny", "-o", "more.trec", "--source", "an assessor")
    assert done.exit_code == 0 and done.stdout.startswith(f"more.trec: {len(lines)} added, 0 the same")
    again = harness("pool", "one.run", "two.run", "--qrels", "more.trec", "--no-texts")
    assert pooled(again) == [] and "0 pairs of 0 queries to judge" in again.stderr
    # Adding to the file itself: nothing new, and its record goes on.
    done = harness("qrels", "add", "judged.csv", "--to", "more.trec", "-o", "more.trec")
    assert done.exit_code == 0 and f"0 added, {len(lines)} the same as before" in done.stdout
    shown = json.loads(harness("qrels", "show", "more.trec", "--format", "json").stdout)
    assert [each["source"] for each in shown["merges"]] == ["an assessor", "judged.csv"]
    assert (shown["judgements"], shown["changed_after"]) == (4 + len(lines), [])
    with Path("more.trec").open("a") as stream:
        stream.write("q0 0 d9 1\n")
    assert "Something else changed the file after iteration 2." in harness("qrels", "show", "more.trec").stdout


def test_judgements_without_a_record_are_shown(harness: Call) -> None:
    done = harness("qrels", "show", "tiny/qrels.trec")
    assert done.exit_code == 0 and "4 judgements of 4 queries" in done.stdout and "iteration" not in done.stdout


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("q0\td1\tgood\n", (), "judged:2: grade 'good' is not a whole number"),
        ("q0\td0\t3\n", (), "1 existing grades differ: judged:2: 'q0', document 'd0': 3; "),
        ("q0\td99\t1\nq9\td1\t1\n", ("--dataset", "tiny"), "judged:2: document 'd99'; judged:3: query 'q9'"),
        ("q0\td1\t1\n", ("-o", "one.run"), "one.run: exists already; name another file"),
        ("q0\td1\t-1\n", (), "judged:2: grade '-1' is not a whole number from 0 on"),
    ],
)
def test_unusable_judgements_are_refused(harness: Call, content: str, options: tuple[str, ...], message: str) -> None:
    Path("judged").write_text(HEAD + content)
    before = Path("tiny/qrels.trec").read_bytes()
    output = () if "-o" in options else ("-o", "new.trec")
    assert_refused(harness("qrels", "add", "judged", "--to", "tiny/qrels.trec", *output, *options), message)
    assert not Path("new.trec").exists() and Path("tiny/qrels.trec").read_bytes() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("q0 0 d1 1\nq1 0 d2 -1\nq2 0 d3 -2\n", "judged:2: grade -1 is below 0; write 0 (not relevant), or remove"),
        ("# nothing yet\n", "judged: has no judgements; name a pool with grades"),
        ("", "judged: has no judgements; name a pool with grades"),
    ],
)
def test_unusable_trec_files_are_refused(harness: Call, content: str, message: str) -> None:
    Path("judged").write_text(content)
    assert_refused(harness("qrels", "add", "judged", "--to", "tiny/qrels.trec", "-o", "new.trec"), message)
    assert not Path("new.trec").exists()


def test_unknown_ids_have_a_note_if_a_dataset_is_extended(harness: Call) -> None:
    Path("judged").write_text("q0 0 d77 1\n")
    assert_refused(harness("qrels", "add", "judged", "--to", "tiny", "-o", "new.trec"), "judged:1: document 'd77'")
    Path("judged").write_text("q0 0 d7 1\n")
    assert harness("qrels", "add", "judged", "--to", "tiny", "-o", "new.trec.gz").exit_code == 0
    done = harness("qrels", "add", "judged", "--to", "tiny/qrels.trec", "-o", "other.trec")
    assert done.exit_code == 0 and done.stderr == "judged: its ids are taken as they are; --dataset checks them\n"
    message = "qrels.trc: is neither a file nor a dataset; unknown dataset"
    assert_refused(harness("qrels", "add", "judged", "--to", "qrels.trc", "-o", "third.trec"), message)
    assert harness("qrels", "show", "new.trec.gz").stdout.startswith("new.trec.gz: 5 judgements")
