"""Notes under a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.analysis import notes
from harness.analysis.table import Table, Validity
from harness.driver.records import Envelope, Outcome
from harness.pricing.prices import Snapshot
from harness.results.schema import Cell, IndexFacts
from harness.untrusted import MAX_TEXT
from tests.support import sample_records
from tests.support.sample_records import FakeJob, quiet
from tests.support.stored_jobs import Maker, build_table, samples

NULL = Cell("quick", "null", "scifact", "single_stream", "cpu1-mem1")


def notes_with(jobs: list[FakeJob], snapshot: Snapshot, word: str) -> list[str]:
    return [note for note in build_table(jobs, snapshot=snapshot).notes if word in note]


@pytest.mark.slow
def test_incomparable_rows_have_a_note(make: Maker, snapshot: Snapshot) -> None:
    def warnings(table: Table) -> list[str]:
        return [note for note in table.notes if "do not compare" in note]

    assert warnings(build_table([make("a"), make("b")], snapshot=snapshot)) == []
    differing = build_table([make("a"), make("b", sample_sha256="other")], snapshot=snapshot)
    assert len(warnings(differing)) == 1
    assert "scifact were measured with 2 different query samples" in warnings(differing)[0]


@pytest.mark.slow
def test_builds_on_different_machines_have_a_note(make: Maker, snapshot: Snapshot) -> None:
    def said(*builds: IndexFacts) -> list[str]:
        jobs = [make(f"s{number}", changes={"index": each}) for number, each in enumerate(builds)]
        return notes_with(jobs, snapshot, "Index builds ran")

    here = sample_records.build()
    elsewhere = replace(here, environment=replace(sample_records.ENVIRONMENT, instance_type="r6g.large"))
    assert said(here, replace(here, build_s=99.0)) == []
    (note,) = said(here, elsewhere, elsewhere)
    assert note == (
        "Index builds ran on 2 kinds of machine: do not compare their times or costs (s0 on 1 CPU, 1 GiB of CPU; "
        "s1, s2 on 1 CPU, 1 GiB of r6g.large, CPU); build them on one, with one build_profile (--fresh-index)."
    )
    assert "2 CPUs, 1 GiB" in said(here, replace(here, envelope=Envelope("large", 2, 1 << 30)))[0]
    assert "an unknown machine, or several" in said(here, replace(here, environment=None))[0]
    assert said(here, replace(here, envelope=replace(here.envelope, name="another name"))) == []


def test_null_system_is_a_note_and_not_a_row(make: Maker, snapshot: Snapshot) -> None:
    null = make(cell=NULL, table=samples(0.0004))
    table = build_table([make(), null], snapshot=snapshot)
    assert [row.system for row in table.rows] == ["bm25"]
    (overhead,) = table.overhead
    assert (overhead.profile, overhead.validity, overhead.key) == ("cpu1-mem1", Validity.CLEAN, null.result.key)
    assert overhead.latency.mean_s.value == pytest.approx(0.695e-3 + 0.4e-6)
    assert overhead.latency.p99_s.reason == "p99 needs 662 queries, timed 140"
    (note,) = [note for note in table.notes if note.startswith("null ")]
    assert note == (
        "null answers at once, without a search: its latency is what harness itself adds to a query; with the limits"
        " of each profile: cpu1-mem1 mean 695 µs, p50 690 µs."
    )


def test_doubtful_or_failed_null_system_has_a_note(make: Maker, snapshot: Snapshot) -> None:
    doubtful = make(cell=NULL, changes={"ranking_disagreements": 3})
    other = make("null", "cpu2-mem4", Outcome.CRASH)
    table = build_table([make(), doubtful, other], snapshot=snapshot)
    note, doubt = (note for note in table.notes if note.startswith("null "))
    assert doubt == "null is noisy on cpu1-mem1: 3 of 140 queries were ranked differently in different trials."
    assert "cpu2-mem4 not measured (crash: killed by the kernel at 256 MiB)" in note
    assert [item.outcome for item in table.overhead] == [Outcome.OK, Outcome.CRASH]


@pytest.mark.slow
def test_null_system_on_many_profiles_has_notes_that_none_cuts(make: Maker, snapshot: Snapshot) -> None:
    nulls = [make(cell=replace(NULL, profile=f"cpu1-mem{n}")) for n in range(9)]
    told = [note for note in build_table([make(), *nulls], snapshot=snapshot).notes if note.startswith("null ")]
    assert len(told) == 3 and max(map(len, told)) < MAX_TEXT
    assert sum(note.count(" mean ") for note in told) == 9


def test_null_service_is_the_clients_part_of_services_alone(make: Maker, snapshot: Snapshot) -> None:
    placement = replace(sample_records.PLACEMENT, client_cpus=(1,))
    service = make("chroma", changes={"placement": placement, "counters": quiet(client_cpu_s=0.7)})
    null = make(cell=replace(NULL, system="null-service"), changes={"placement": placement}, table=samples(0.1))
    table = build_table([make("bm25"), service, null], snapshot=snapshot)
    rows = {row.system: row for row in table.rows}
    assert rows.keys() == {"bm25", "chroma"} and rows["bm25"].client is None
    client = rows["chroma"].client
    assert client.null_s == table.overhead[0].latency.mean_s.value
    # 0.7 s over 5 trials of 140 queries; nothing of harness is subtracted from the server's own CPU time.
    assert client.cpu_per_query_s == pytest.approx(1e-3) and rows["chroma"].cpu.driver_s is None
    (note,) = [note for note in table.notes if note.startswith("null-service ")]
    assert note.startswith("null-service is a server that answers at once: its latency is what a client and")


def test_null_system_alone_is_a_row(make: Maker, snapshot: Snapshot) -> None:
    table = build_table([make(cell=NULL)], snapshot=snapshot)
    assert [row.system for row in table.rows] == ["null"]
    assert table.overhead == ()
    assert f"{notes.NULL_METHOD}." in table.notes


def unjudged(**shares: float | None) -> list[str]:
    rows = [sample_records.row(system=name, unjudged_share=share, unjudged_depth=10) for name, share in shares.items()]
    return list(notes.of_unjudged(rows))


def test_unjudged_hits_are_noted_largest_share_first() -> None:
    (message,) = unjudged(bm25=0.102, new=0.643, old=0.0, none=None)
    assert message.startswith("Unjudged among the first 10 hits on scifact: new 64%, bm25 10%, old 0%. They count")
    assert unjudged(bm25=0.0) == unjudged(bm25=None) == unjudged() == []


def test_many_systems_are_noted_as_a_range() -> None:
    (message,) = unjudged(**{f"s{number:02}": number / 100 for number in range(1, 12)})
    assert "on scifact: s11 11%, s10 10%, ... s01 1.0% (11 systems). They" in message


def test_system_with_differing_profiles_has_its_own_range() -> None:
    rows = [sample_records.row(unjudged_share=share, unjudged_depth=5, dataset="a") for share in (0.2, 0.31, 0.25)]
    rows.append(sample_records.row(unjudged_share=0.5, unjudged_depth=5, dataset="b"))
    found = list(notes.of_unjudged(rows))
    assert [note.partition(". They")[0] for note in found] == [
        "Unjudged among the first 5 hits on a: bm25 20%–31%",
        "Unjudged among the first 5 hits on b: bm25 50%",
    ]


def test_judgement_note_appears_once() -> None:
    rows = [sample_records.row(rejudged=("by more.trec", "without 2 of its 9 queries")) for _ in range(2)]
    assert list(notes.of_judgements([*rows, sample_records.row()])) == [
        "scifact is judged by more.trec, without 2 of its 9 queries."
    ]
