"""Queries while documents are deleted and inserted: each update once, and what a search sees of it."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.driver import mixed
from harness.driver.adapter import Document, QueryFailed
from harness.driver.output import ERROR, TIMED_OUT, UNSENT, UPDATES, Output
from harness.driver.records import Envelope, Hit, JobSpec, Measurement, Outcome, Query, ScenarioParams, Updates
from harness.driver.scenarios import planned_queries
from harness.driver.update_plan import moved_documents, planned_updates, turns
from harness.jobs.job_samples import incomplete, read_samples, worked_s
from harness.jobs.job_updates import read_updates, unplanned
from harness.launch.base import LaunchRequest, Prepared
from tests.driver.test_adapter import Least
from tests.support import job_fixtures

_K, _QUERIES, _DOCUMENTS = 3, 40, 20
_WORDS = [f"topic{n}" for n in range(_DOCUMENTS)]


class Shelf(Least):
    """Finds documents by their titles; what goes wrong is scripted."""

    def __init__(self) -> None:
        super().__init__({}, Envelope("e", 1, 1), Path())
        self.held = {f"d{n}": (word, 0.0) for n, word in enumerate(_WORDS)}
        self.calls: list[tuple[str, str]] = []
        self.delay_s = self.update_s = 0.0
        self.loses = self.keeps = False
        self.failing: Callable[[int], Exception | None] = lambda _: None

    def search(self, query: str, k: int) -> Sequence[Hit]:
        held, words, now = dict(self.held), query.split(), time.monotonic()
        found = [Hit(doc_id, 1.0) for doc_id, (word, since) in held.items() if word in words and since <= now]
        rest = [Hit(doc_id, 0.5) for doc_id, (word, since) in held.items() if word not in words and since <= now]
        return (found + sorted(rest))[:k]

    def insert(self, documents: Sequence[Document]) -> None:
        self._update("insert", [document.doc_id for document in documents])
        for document in documents:
            if not self.loses:
                self.held[document.doc_id] = (document.title, time.monotonic() + self.delay_s)

    def delete(self, doc_ids: Sequence[str]) -> None:
        self._update("delete", doc_ids)
        for doc_id in doc_ids if not self.keeps else ():
            self.held.pop(doc_id, None)

    def _update(self, kind: str, doc_ids: Sequence[str]) -> None:
        self.calls += [(kind, doc_id) for doc_id in doc_ids]
        time.sleep(self.update_s)
        if failure := self.failing(len(self.calls)):
            raise failure


def spec(update_qps: float = 100.0, query_qps: float = 100.0, moved: int = 6, **keys: Any) -> JobSpec:
    documents = tuple({"_id": f"d{n}", "title": _WORDS[n], "text": "all of it"} for n in range(moved))
    given: dict[str, Any] = {
        "scenario": "mixed",
        "trials": 3,
        "first_trial": 3,
        "k": _K,
        "corpus_size": _DOCUMENTS,
        "warmup": (Query("w0", "warm"),),
        "sample": tuple(Query(f"q{n}", _WORDS[n % _DOCUMENTS]) for n in range(_QUERIES)),
        "updates": Updates(query_qps, update_qps, documents),
        **keys,
    }
    return job_fixtures.spec(**given)


class Ran:
    """A job of the scenario, and what it wrote."""

    def __init__(self, folder: Path, shelf: Any, job: JobSpec) -> None:
        (folder / "out").mkdir()
        self.job, self.shelf = job, shelf
        self.measured: Measurement[str] = Measurement(Outcome.OK, None, None)
        with closing(Output(folder / "out")) as out:
            mixed.mixed(shelf, job, out, partial(planned_queries, job), self.measured)
            self.phases = [phase.name for phase in out.phases]
        self.request = LaunchRequest(job, Prepared(None, "", "", ""), folder, folder, folder)  # type: ignore[arg-type]
        self.lines = [json.loads(line) for line in (folder / "out" / UPDATES).read_text().splitlines()]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == kind]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed, "GIVE_UP_NS", 150_000_000)


def test_each_deleted_document_comes_back_before_the_cycle_ends() -> None:
    for documents in range(1, 8):
        deleted: set[int] = set()
        for kind, place in itertools.islice(turns(documents), 4 * documents):
            (deleted.remove if kind == "insert" else deleted.add)(place)
            assert len(deleted) <= documents // 2 + 1
        assert not deleted


def test_plan_is_poisson_ends_with_the_queries_and_depends_on_seed_and_job() -> None:
    updates = Updates(20.0, 5.0, ({},) * 50)
    plan = planned_updates(1, 0, updates, 400)
    times = [each.scheduled_ns for each in plan]
    assert times == sorted(times) and 70 < len(plan) < 130 and times[-1] < 30e9
    assert plan == planned_updates(1, 0, updates, 400)
    assert times != [each.scheduled_ns for each in planned_updates(1, 3, updates, 400)]
    assert times != [each.scheduled_ns for each in planned_updates(2, 0, updates, 400)]


def test_moved_documents_are_a_share_of_the_corpus_and_no_more_than_can_be_moved() -> None:
    params = ScenarioParams(query_qps=20.0, update_qps=5.0, deleted_share=0.05)
    assert moved_documents(params, 1000, 1000) == 50
    assert moved_documents(params, 1000, 1_000_000) == 125, "250 updates move 125 documents and put them back"
    assert moved_documents(params, 4, 10) == 1


@pytest.mark.slow
def test_every_update_is_planned_written_once_and_accepted_by_the_host(tmp_path: Path) -> None:
    ran = Ran(tmp_path, Shelf(), spec())
    assert ran.phases == ["warmup", "trial-3", "find", "trial-4", "settle", "trial-5"]
    samples, _, wrong = read_samples(ran.request)
    assert wrong is None and incomplete(ran.job, ran.measured, samples) is None
    updates, wrong = read_updates(ran.request)
    assert wrong is None and unplanned(ran.request, updates, 60.0) is None
    assert [len([each for each in samples if each.trial == trial]) for trial in (3, 4, 5)] == [_QUERIES] * 3
    assert all((each.scheduled_ns is None) == (each.trial != 4) for each in samples)
    assert {each.trial for each in samples if each.hits} >= {3, 5}, "both rankings are kept"
    assert worked_s(ran.job, samples) < 2
    plan = planned_updates(ran.job.seed, 3, ran.job.updates or Updates(1, 1, ()), _QUERIES)
    sent = [line for line in ran.lines if line["kind"] != "check"]
    assert [(line["kind"], line["doc_id"]) for line in sent] == [(each.kind, f"d{each.place}") for each in plan]
    assert all(line["latency_ns"] >= line["service_ns"] for line in sent)
    assert ran.shelf.held.keys() == {f"d{n}" for n in range(_DOCUMENTS)}
    assert [line["doc_id"] for line in ran.of("check")] == [f"d{n}" for n in range(6)]
    assert all(line["seen_ns"] is not None for line in ran.of("check"))
    watched = [line for line in sent if line.get("watched")]
    assert watched and all(line["seen_ns"] >= line["service_ns"] for line in watched)


@pytest.mark.slow
def test_time_until_a_search_finds_an_insert_is_longer_than_the_insert(tmp_path: Path) -> None:
    shelf = Shelf()
    shelf.delay_s = 0.06
    ran = Ran(tmp_path, shelf, spec(update_qps=20.0, query_qps=40.0))
    found = [line for line in ran.of("insert") if line.get("watched")]
    assert found and all(line["seen_ns"] > 50_000_000 > line["service_ns"] for line in found), found


@pytest.mark.slow
def test_engine_that_loses_inserts_shows_them_as_not_found_and_lost(tmp_path: Path) -> None:
    shelf = Shelf()
    shelf.loses = True
    ran = Ran(tmp_path, shelf, spec(update_qps=20.0, query_qps=40.0))
    watched = [line for line in ran.of("insert") if line.get("watched")]
    assert watched and all(line["seen_ns"] is None for line in watched)
    lost = [line["doc_id"] for line in ran.of("check") if line["seen_ns"] is None]
    assert lost == sorted({line["doc_id"] for line in ran.of("delete")})


@pytest.mark.slow
def test_engine_that_keeps_deleted_documents_shows_them_as_not_gone(tmp_path: Path) -> None:
    shelf = Shelf()
    shelf.keeps = True
    ran = Ran(tmp_path, shelf, spec(update_qps=20.0, query_qps=40.0))
    watched = [line for line in ran.of("delete") if line.get("watched")]
    assert watched and all(line["seen_ns"] is None for line in watched)
    assert all(line["seen_ns"] is not None for line in ran.of("check"))


@pytest.mark.slow
def test_failed_update_is_counted_and_its_document_is_inserted_in_the_end(tmp_path: Path) -> None:
    shelf = Shelf()
    # The first insert fails, and the third delete.
    failures = {3: QueryFailed("no", timed_out=True), 4: QueryFailed("no")}
    shelf.failing = failures.get
    ran = Ran(tmp_path, shelf, spec())
    failed = [line["failed"] for line in ran.lines if "failed" in line]
    assert failed == [TIMED_OUT, ERROR]
    assert not [line for line in ran.lines if line.get("failed") and line.get("watched")]
    assert shelf.held.keys() == {f"d{n}" for n in range(_DOCUMENTS)}


@pytest.mark.slow
def test_updates_that_come_too_late_are_not_sent_and_their_wait_is_known(tmp_path: Path) -> None:
    shelf = Shelf()
    shelf.update_s = 0.1
    ran = Ran(tmp_path, shelf, spec(query_qps=400.0, update_qps=200.0))
    unsent = [line for line in ran.lines if line.get("failed") == UNSENT]
    assert len(unsent) > 5 and all(line["service_ns"] == 0 and line["latency_ns"] > 0 for line in unsent)
    updates, wrong = read_updates(ran.request)
    assert wrong is None and unplanned(ran.request, updates, 60.0) is None


@pytest.mark.slow
def test_error_of_an_update_ends_the_job(tmp_path: Path) -> None:
    shelf = Shelf()
    shelf.failing = lambda number: RuntimeError("the disk is gone") if number == 2 else None
    with pytest.raises(RuntimeError, match="the disk is gone"):
        Ran(tmp_path, shelf, spec())


@pytest.mark.slow
def test_document_that_its_own_words_do_not_find_is_not_watched(tmp_path: Path) -> None:
    job = spec()
    assert job.updates is not None
    hidden = {"_id": "d0", "title": "nothing", "text": "of the kind"}
    documents = (hidden, *job.updates.documents[1:])
    shelf = Shelf()
    del shelf.held["d0"]
    shelf.held["d0"] = ("topic0", time.monotonic() + 3600)
    updates = Updates(job.updates.query_qps, job.updates.update_qps, documents)
    ran = Ran(tmp_path, shelf, spec(updates=updates))
    assert not [line for line in ran.lines if line["doc_id"] == "d0" and line.get("watched")]
    assert "d0" not in [line["doc_id"] for line in ran.of("check")]


def test_engine_without_updates_says_so(tmp_path: Path) -> None:
    engine = Least({}, Envelope("e", 1, 1), Path())
    with pytest.raises(ValueError, match="Least knows no updates; measure engines that know them, or another scenario"):
        Ran(tmp_path, engine, spec())
