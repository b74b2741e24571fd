"""`harness pool`: unjudged documents to judge next."""

from __future__ import annotations

import io
from pathlib import Path

import click

from harness.cli.lines import say
from harness.cli.options import cache_option
from harness.cli.output import Destination, destination_options
from harness.cli.stored_results import RunSelection, load_dataset, runs_options
from harness.datasets import Dataset
from harness.errors import UnknownName, UsageError, counted
from harness.evaluation import evaluate_runs, judged_runs, trec_lines
from harness.evaluation.evaluate_runs import count_and_ids
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.pool import JudgingPool, build_pool, has_judgements, write_pool
from harness.untrusted import one_line


@click.command()
@runs_options
@click.option("--depth", type=click.IntRange(1), default=5, help="Hits of each run to look at.")
@click.option(
    "--dataset", metavar="NAME|FOLDER", help="Holds the documents' texts.  [default: that of the stored results]"
)
@click.option("--no-texts", is_flag=True, help="Only ids of the documents; needs no dataset.")
@click.option("--seed", type=int, default=1, help="Seed of the order.")
@destination_options("tsv", "jsonl")
@cache_option
def pool(
    runs: RunSelection, depth: int, dataset: str | None, no_texts: bool, seed: int, destination: Destination
) -> None:
    """List the unjudged documents among the first hits of all RUNS, each pair once.

    RUNS are a folder of results (default: results), or run files.  The order hides whose a document is.  Fill the
    column grade in, then `harness qrels add`.  Without any judgements yet, leave --qrels out, and name the
    queries with --queries or --dataset.
    """
    if no_texts and dataset is not None:
        raise UsageError("--no-texts leaves out what --dataset has; leave one of them out")
    if destination.output is not None and destination.output.is_file():
        raise UsageError(
            f"{destination.output}: is there already, and somebody's grades may be in it; name another file"
        )
    holder = None
    if _are_unjudged(runs):
        holder = None if dataset is None else load_dataset(dataset, runs.cache)
        samples = _unjudged(runs, holder)
    else:
        samples = runs.judged()
    judging_pool = build_pool(samples, depth, seed)
    if not any(hits.hits for _, hits in judging_pool.systems):
        count = sum(len(sample.queries) for sample in samples)
        raise UsageError(f"none of the {count:,} queries has a hit in these runs; are these the runs of these queries?")
    documents: dict[str, dict[str, str]] = {}
    if not no_texts:
        holder = holder or _holder(dataset, samples, runs.cache)
        documents = _documents(judging_pool, holder)
        for query in holder.queries:
            if not judging_pool.queries.get(query.query_id, "?"):
                judging_pool.queries[query.query_id] = query.text
    if destination.on_terminal:
        say(f"Not for a terminal, with whole documents: write the pairs with -o pool.{destination.form}")
    else:
        stream = io.StringIO()
        write_pool(judging_pool, documents, destination.form, stream)
        destination.show(stream.getvalue())
    _summarise(judging_pool)
    for note in dict.fromkeys(note for sample in samples for note in sample.notes):
        say(one_line(note), err=True)
    for note in (note for sample in samples for note in evaluate_runs.unknown_query_notes(sample)):
        say(f"  {one_line(note)}", err=True)


def _are_unjudged(runs: RunSelection) -> bool:
    """Return whether the run files have no qrels yet."""
    if not runs.names_run_files:
        return False
    if runs.qrels is None:
        return True
    trec_lines.refuse_pipe(runs.qrels)  # is looked into here, and read later
    return not has_judgements(runs.qrels)


def _unjudged(runs: RunSelection, holder: Dataset | None) -> tuple[JudgedRuns, ...]:
    if runs.only is not None:
        raise UsageError("--only is of stored results; leave it out")
    if runs.queries is not None:
        texts = judged_runs.read_queries(runs.queries)
    elif holder is not None:
        texts = {query.query_id: query.text for query in holder.queries}
    else:
        raise UsageError(
            "without judgements, nothing says which queries to pool for; name those with --queries or --dataset, or"
            " judgements with --qrels"
        )
    return (judged_runs.read_unjudged_runs("runs", runs.paths, texts),)


def _summarise(judging_pool: JudgingPool) -> None:
    """Print the shares of unjudged hits by system, which the file must not show."""
    pairs, queries = len(judging_pool.pairs), judging_pool.queries_to_judge
    text = f"{counted(pairs, 'pair')} of {counted(queries, 'query')} to judge"
    say(f"{text}; {judging_pool.judged:,} more of the first {judging_pool.depth} hits are judged", err=True)
    for name, system in judging_pool.systems:
        share = "no hits"
        if system.share is not None:
            unjudged = f"{system.unjudged:,} of {system.hits:,} hits unjudged ({system.unjudged / system.hits:.1%})"
            share = f"{unjudged}; mean over queries {system.share:.1%}"
        say(f"  {one_line(name)}: {share}", err=True)


def _holder(named: str | None, samples: tuple[JudgedRuns, ...], cache: Path) -> Dataset:
    """Load the dataset of the retrieved documents."""
    corpus_sha256 = samples[0].corpus_sha256
    if named is None and corpus_sha256 is None:
        raise UsageError("run files have no documents; name their --dataset, or say --no-texts")
    try:
        holder = load_dataset(named or samples[0].dataset, cache)
    except UnknownName as error:
        raise UsageError(f"{error}; name it with --dataset, or say --no-texts") from error
    if corpus_sha256 not in (None, holder.corpus.sha256):
        raise UsageError(
            f"dataset {holder.name}: its documents ({holder.corpus.sha256[:12]}) are not those of the results "
            f"({str(corpus_sha256)[:12]}); name the right one with --dataset"
        )
    return holder


def _documents(judging_pool: JudgingPool, holder: Dataset) -> dict[str, dict[str, str]]:
    needed = {document for _, document in judging_pool.pairs}
    documents = {document["_id"]: document for document in holder.corpus.documents(needed)}
    missing = sorted(map(repr, needed - documents.keys()))
    if missing:
        raise UsageError(
            f"dataset {holder.name}: lacks documents of the runs, {count_and_ids(missing)}; name theirs with --dataset"
        )
    return documents
