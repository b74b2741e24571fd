"""Check the container contract on a corpus of 28 documents: build, load, search twice, in batches, for fewer hits.

All documents share a word, so that every query can have the requested number of hits.  Eight documents have equal
texts, so that equal scores meet the cut-off.
"""

from __future__ import annotations

import functools
import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from harness import datasets, filesystem
from harness.driver.records import Envelope, JobSpec, Outcome, Query, ScenarioParams
from harness.errors import JobError
from harness.experiments.calibration.fixtures import write_dataset
from harness.jobs import indexes
from harness.jobs.collect import CollectedJob, collect
from harness.jobs.indexes import Index
from harness.launch.base import Launcher, LaunchRequest, Limits, Prepared
from harness.launch.checks import Check, Level
from harness.launch.images.systems import System
from harness.progress import silent, task
from harness.results.schema import NULL_SYSTEMS
from harness.untrusted import MAX_TEXT, one_line, to_json

_TOPICS = ("river", "glacier", "volcano", "desert", "forest", "harbour", "bridge", "castle", "market", "orchestra")
_LIMITS = Limits(load_s=300, query_s=60, build_s=600, job_s=900)
_SHARED_WORD = "north"
_TWINS = tuple(f"t{number}" for number in range(8))
_TWIN_TEXT = f"Old lanterns hang over a quiet quay in the {_SHARED_WORD}."
_TWIN_QUERY = "lanterns over the quay"
_K, _FEWER = 10, 3
# A system that may return fewer hits finds at least this many for the shared word.
_LEAST = 5
# Twelve queries form three batches, the last one smaller.
_BATCH = 5


def _check(ok: bool, what: str, fact: str = "") -> Check:
    return Check(Level.OK if ok else Level.FAIL, what, fact)


def examine(launcher: Launcher, system: System, envelope: Envelope, folder: Path) -> Iterator[Check]:
    """Check a system against the contract.

    Args:
        envelope: the limits of both jobs.  With GPUs, the index is still built without them (a suite's default), and
        the GPU image searches. folder: an empty folder for all files; the caller removes it.
    """
    write_dataset(folder / "small", documents(), [{"_id": "d0", "text": "river"}], [("d0", "d0")])
    corpus = datasets.load(folder / "small", folder).corpus
    with task(f"{system.name}: image"):
        builder = launcher.prepare(system)
        searching = system.for_job("search", gpus=envelope.gpus, build_gpus=0)
        prepared = builder if searching.image == system.image else launcher.prepare(searching)
    yield _check(True, "the system is ready", prepared.digest)
    try:
        index = _build(launcher, builder, corpus, replace(envelope, gpus=0), folder)
    except JobError as error:
        yield _check(False, "builds an index", f"{error.outcome.value}: {error.detail}")
        return
    yield _check(True, "builds an index", f"{index.facts.index_bytes} bytes in {index.facts.build_s:.1f} s")
    copy = Path(shutil.copytree(index.folder, folder / "copy"))
    search = functools.partial(_search, launcher, prepared, corpus, envelope)
    with task(f"{system.name}: search"):
        alone = search(index.folder, folder / "search")
    yield from _judge(system, alone)
    if alone.outcome in (Outcome.CRASH, Outcome.BAD_OUTPUT):
        yield from _judge_index(copy, lambda: search(copy, folder / "again", writes=True))
    if alone.outcome is Outcome.OK:
        with task(f"{system.name}: search for fewer hits"):
            fewer = search(index.folder, folder / "fewer", k=_FEWER)
        if system.name not in NULL_SYSTEMS:  # it answers without searching, on purpose
            yield from _judge_fewer(alone, fewer, _LEAST if system.fewer_hits_ok else _K)
        with task(f"{system.name}: search in batches"):
            batches = search(index.folder, folder / "batches", batch_size=_BATCH)
        yield from _judge_batches(alone, batches)


def _build(
    launcher: Launcher, builder: Prepared, corpus: datasets.PreparedCorpus, envelope: Envelope, folder: Path
) -> Index:
    """Build an index after the indexes of its components.

    Raises:
        JobError: an index cannot be built; the message names the component.
    """
    components, name, title = {}, builder.system.name, "index of 28 documents"
    for part in builder.system.components:
        try:
            components[part.name] = _build(launcher, launcher.prepare(part), corpus, envelope, folder)
        except JobError as error:
            raise JobError(error.outcome, f"{part.name}: {error.detail}") from error
    return indexes.build(
        launcher, builder, corpus, name, title, folder, envelope=envelope, limits=_LIMITS, components=components
    )


def _judge(system: System, collected: CollectedJob) -> Iterator[Check]:
    measured = collected.measured
    yield _check(
        collected.outcome is Outcome.OK,
        "verifies its envelope, loads, answers every query with valid hits, ends in order",
        collected.detail or (f"load {measured.load_s:.2f} s" if measured and measured.load_s is not None else ""),
    )
    if collected.outcome is not Outcome.OK or measured is None:
        return
    disagreements = collected.answers(len(_TOPICS)).ranking_disagreements
    yield _check(disagreements == 0, "ranks the same in both trials", f"{disagreements} queries differ")
    if system.name not in NULL_SYSTEMS:
        answers = _answers(collected)
        meant = [f"d{number}" for number in range(len(_TOPICS))]
        first = sum(bool(answers[name]) and answers[name][0] == name for name in meant)
        last = sum(len(answers[name]) > 1 and answers[name][-1] == name for name in meant)
        detail = f"{first} of {len(meant)} queries have it first" + (f", {last} have it last" if last else "")
        yield _check(first >= 8, "puts the document that is meant first", detail)
    threads = measured.effective.threads if measured.effective else {}
    yield _check(
        bool(threads), "says how many threads its libraries use", json.dumps(threads) if threads else "it names none"
    )
    yield _check(bool(measured.libraries), "names its libraries", to_json(measured.libraries))


def _judge_fewer(alone: CollectedJob, fewer: CollectedJob, wanted: int) -> Iterator[Check]:
    """Check that the number of hits follows k, and that with equal scores the first documents do not depend on k.

    The driver refuses answers with more hits.  An approximate search may find other documents with other scores for a
    larger k.
    """
    whats = (
        "returns as many documents as asked for",
        "returns the same first documents for any k, equal scores included",
    )
    if fewer.outcome is not Outcome.OK:
        for what in whats:
            yield _check(False, what, f"asked for {_FEWER}: {fewer.detail or fewer.outcome.value}")
        return
    many, few = _hits(alone), _hits(fewer)
    most, least = len(many[_SHARED_WORD]), len(few[_SHARED_WORD])
    detail = f"{most} of {_K} and {least} of {_FEWER}, for a word that all documents have"
    yield _check(most >= wanted and least == _FEWER, whats[0], detail)
    pairs = {query: (hits, many[query][:_FEWER]) for query, hits in few.items()}
    differ = [query for query, (some, first) in pairs.items() if _only_ids_differ(some, first)]
    detail = f"{len(differ)} of {len(few)} queries differ between k = {_FEWER} and k = {_K}"
    if differ:
        some, first = (" ".join(doc_id for doc_id, _ in hits) for hits in pairs[differ[0]])
        detail += f", first {differ[0]}: {some} against {first}"
        detail += "; break ties by one rule before the cut, e.g. the document's order or id"
    yield _check(not differ, whats[1], detail)


def _only_ids_differ(some: Sequence[tuple[str, float]], first: Sequence[tuple[str, float]]) -> bool:
    """Return whether two rankings have equal scores but different documents."""
    same = len(some) == len(first) and all(
        math.isclose(one[1], other[1]) for one, other in zip(some, first, strict=True)
    )
    return same and [doc_id for doc_id, _ in some] != [doc_id for doc_id, _ in first]


def _hits(collected: CollectedJob) -> dict[str, tuple[tuple[str, float], ...]]:
    """Return the first trial's hits by query."""
    return {sample.query_id: tuple(sample.hits) for sample in collected.samples if sample.trial == 0}


def _answers(collected: CollectedJob) -> dict[str, tuple[str, ...]]:
    """Return the ids of the first trial's hits by query."""
    return {query: tuple(doc_id for doc_id, _ in hits) for query, hits in _hits(collected).items()}


def _judge_index(copy: Path, search: Callable[[], object]) -> Iterator[Check]:
    """Search again with a writable index, and check whether the engine writes into it."""
    for entry in (copy, *(Path(below.path) for below in filesystem.walk(copy))):
        entry.chmod(0o777 if entry.is_dir() else 0o666)  # the job runs as another user
    before = _contents(copy)
    search()
    after = _contents(copy)
    if wrote := sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)):
        remedy = "an index is read-only then: write it in build, and what passes into /tmp"
        yield _check(
            False,
            "leaves its index as it was built",
            f"search writes {one_line(wrote[0], MAX_TEXT)!r} into it; {remedy}",
        )


def _contents(folder: Path) -> dict[str, str]:
    files = (Path(entry.path) for entry in filesystem.walk(folder) if entry.is_file(follow_symlinks=False))
    return {str(path.relative_to(folder)): filesystem.sha256(path) for path in files}


def _judge_batches(alone: CollectedJob, batches: CollectedJob) -> Iterator[Check]:
    what = "answers batches as it answers single queries"
    if batches.outcome is not Outcome.OK:
        yield _check(False, what, batches.detail or batches.outcome.value)
        return
    # Batches are padded and summed in another order, so last digits may differ and equal texts may swap.
    single, batched = (
        {query: ["twin" if name in _TWINS else name for name in ids] for query, ids in _answers(collected).items()}
        for collected in (alone, batches)
    )
    differ = [query for query, ids in batched.items() if ids != single[query]]
    yield _check(
        not differ,
        what,
        f"{len(differ)} of {len(single)} queries get other ids" + (f", first {differ[0]}" if differ else ""),
    )


def _search(
    launcher: Launcher,
    prepared: Prepared,
    corpus: datasets.PreparedCorpus,
    envelope: Envelope,
    index: Path,
    folder: Path,
    *,
    batch_size: int | None = None,
    k: int = _K,
    writes: bool = False,
) -> CollectedJob:
    """Run a search job over all queries: ``offline`` with a ``batch_size``; ``writes``: with a writable index."""
    (folder / "out").mkdir(parents=True)
    spec = JobSpec(
        kind="search",
        system=prepared.system.name,
        params=prepared.system.params,
        envelope=envelope,
        enforced=launcher.isolation.enforced,
        scenario="offline" if batch_size else "single_stream",
        scenario_params=ScenarioParams(batch_size=batch_size),
        k=k,
        trials=2,
        # The job uses all that the driver can do: trials, a pause between them, and repeats.
        repeats=0 if batch_size else 3,
        pause=True,
        corpus_size=corpus.size,
        fewer_hits_ok=prepared.system.fewer_hits_ok,
        warmup=warmup(),
        sample=queries(),
        service_url=prepared.system.service_url("search"),
    )
    job = LaunchRequest(spec, prepared, folder, corpus.folder, index, _LIMITS, index_is_copy=writes)
    return collect(job, launcher.launch(job, silent), corpus.unknown)


def documents() -> list[dict[str, str]]:
    """Return documents about topics, documents that mention them (every engine should rank them lower), and twins."""
    about = [
        {
            "_id": f"d{number}",
            "title": topic.capitalize(),
            "text": f"This one is about the {topic} of the {_SHARED_WORD} . A {topic} is {topic}.",
        }
        for number, topic in enumerate(_TOPICS)
    ]
    # An empty title and non-ASCII text must survive as well.
    about[3]["title"] = ""
    about[4]["text"] += " Grüße, 森林, 🌲."
    mentions = [
        {
            "_id": f"m{number}",
            "title": "Letters",
            "text": f"Home again from far {_SHARED_WORD} we wrote that somebody saw one {topic} there.",
        }
        for number, topic in enumerate(_TOPICS)
    ]
    return about + mentions + [{"_id": name, "title": "", "text": _TWIN_TEXT} for name in _TWINS]


def queries() -> tuple[Query, ...]:
    """Return a query about each topic, one for the word that all documents have, and one for the twins."""
    topics = (Query(f"d{number}", f"the {topic} of the {_SHARED_WORD}") for number, topic in enumerate(_TOPICS))
    return (*topics, Query(_SHARED_WORD, _SHARED_WORD), Query("twins", _TWIN_QUERY))


def warmup() -> tuple[Query, ...]:
    """Return other queries of the same topics."""
    return tuple(Query(f"w{query.query_id}", f"old {query.text}") for query in queries())
