"""`harness pool`: unjudged documents to judge next."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import click

from harness import datasets
from harness.cli.lines import say
from harness.cli.options import Command, Decorator, cache_option
from harness.cli.output import Destination, destination_options, write
from harness.cli.stored_results import RunSelection, runs_options
from harness.commands import command, option
from harness.datasets import Dataset
from harness.datasets.judgements import documents_of
from harness.errors import UnknownName, UsageError, counted
from harness.evaluation import evaluate_runs, judged_runs, trec, trec_lines
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.packages import CHECKED, PAIRS, REVIEWERS, CheckPlan, cut_packages, find_packages
from harness.evaluation.pool import (
    Ensemble,
    JudgingPool,
    build_pool,
    has_judgements,
    pool_candidates,
    read_graded_pool,
    write_candidates,
    write_pool,
)
from harness.untrusted import one_line

# Hits of each run to look at, and the number with rerankers, which choose a few (Qiu et al. 2022, section 2.3).
SHALLOW, DEEP, KEPT = 5, 50, 5


def _package_options(function: Command) -> Command:
    """Add the options of rerankers, packages and checks."""
    options: list[Decorator] = [
        click.option(
            "--reranker",
            "rerankers",
            multiple=True,
            type=click.Path(path_type=Path),
            metavar="RUN",
            help="A run that scores all candidates; repeat it.  Their mean score chooses what to judge.",
        ),
        click.option(
            "--keep", type=click.IntRange(1), help="With --reranker: documents a query to choose.  [default: 5]"
        ),
        click.option(
            "--candidates",
            type=click.Path(path_type=Path),
            metavar="RUN",
            help="Write all candidates as a run for rerankers to score, and stop.",
        ),
        click.option("--again", is_flag=True, help="List judged documents too, to be judged again."),
        click.option(
            "--package",
            type=click.IntRange(1),
            metavar="PAIRS",
            help=f"Write packages of so many pairs, and sheets to check them, into the folder -o.  (paper: {PAIRS})",
        ),
        click.option("--check", "checked", type=click.IntRange(1), help=f"Pairs of a sheet.  [default: {CHECKED}]"),
        click.option(
            "--reviewers", type=click.IntRange(REVIEWERS), help=f"Sheets of a package.  [default: {REVIEWERS}]"
        ),
        click.option(
            "--round",
            "check_round",
            type=click.IntRange(1),
            help="Of sheets; from 2 on for packages in -o.  [default: 1]",
        ),
    ]
    for each in reversed(options):
        function = each(function)
    return function


@click.command()
@runs_options
@click.option("--depth", type=click.IntRange(1), help="Hits of each run to look at.  [default: 5; with --reranker: 50]")
@click.option(
    "--dataset", metavar="NAME|FOLDER", help="Holds the documents' texts.  [default: that of the stored results]"
)
@click.option("--no-texts", is_flag=True, help="Only ids of the documents; needs no dataset.")
@click.option("--seed", type=int, default=1, help="Seed of the order.")
@_package_options
@destination_options("tsv", "jsonl")
@cache_option
def pool(
    runs: RunSelection,
    depth: int | None,
    dataset: str | None,
    no_texts: bool,
    seed: int,
    destination: Destination,
    rerankers: tuple[Path, ...],
    keep: int | None,
    candidates: Path | None,
    again: bool,
    **packages: int | None,
) -> None:
    """List the unjudged documents among the first hits of all RUNS, each pair once.

    RUNS are a folder of results (default: results), or run files.  The order hides which system found a document.  Fill
    in the column grade, then run `harness qrels add`.  If there are no judgements yet, leave --qrels out, and name the
    queries with --queries or --dataset.  With --reranker, a deep pool is reduced to the documents to judge.
    """
    if no_texts and dataset is not None:
        raise UsageError("--no-texts leaves out what --dataset has; leave one of them out")
    plan = _check_plan(packages, destination)
    depth = depth or (DEEP if rerankers or candidates else SHALLOW)
    samples, holder = _samples(runs, dataset)
    if candidates is not None:
        _write_candidates(candidates, samples, depth)
        return
    judging_pool = build_pool(samples, depth, seed, _ensemble(rerankers, keep), again=again)
    if not any(hits.hits for _, hits in judging_pool.systems):
        count = sum(len(sample.queries) for sample in samples)
        raise UsageError(f"none of the {count:,} queries has a hit in these runs; are these the runs of these queries?")
    documents: dict[str, dict[str, str]] = {}
    if not no_texts:
        holder = holder or _holder(dataset, samples, runs.cache)
        documents = documents_of(judging_pool.pairs, holder)
        for query in holder.queries:
            if not judging_pool.queries.get(query.query_id, "?"):
                judging_pool.queries[query.query_id] = query.text
    if plan is not None:
        _write_packages(judging_pool, documents, plan, seed, destination)
    elif destination.on_terminal:
        say(f"Not for a terminal, with whole documents: write the pairs with -o pool.{destination.form}")
    else:
        destination.show(_text(judging_pool, documents, destination.form))
    _summarise(judging_pool, len(rerankers))
    _show_notes(samples)


def _samples(runs: RunSelection, dataset: str | None) -> tuple[tuple[JudgedRuns, ...], Dataset | None]:
    """Return the runs, and the named dataset if it was read."""
    if not _are_unjudged(runs):
        return runs.judged(), None
    holder = None if dataset is None else datasets.load_named(dataset, Path.cwd(), runs.cache)
    return _unjudged(runs, holder), holder


def _show_notes(samples: tuple[JudgedRuns, ...]) -> None:
    for note in dict.fromkeys(note for sample in samples for note in sample.notes):
        say(one_line(note), err=True)
    for note in (note for sample in samples for note in evaluate_runs.unknown_query_notes(sample)):
        say(f"  {one_line(note)}", err=True)


def _check_plan(packages: Mapping[str, int | None], destination: Destination) -> CheckPlan | None:
    """Return how to divide the pool (None: undivided); refuse to overwrite a file with grades."""
    output, size = destination.output, packages["package"]
    others = {"checked": "check", "reviewers": "reviewers", "check_round": "round"}
    if size is None:
        given = next((flag for name, flag in others.items() if packages[name] is not None), None)
        if given is not None:
            raise UsageError(
                f"--{given} needs packages; name their size with {option('package', PAIRS)}, or leave it out"
            )
        if output is not None and output.is_file():
            raise UsageError(f"{output}: is there already, and somebody's grades may be in it; name another file")
        return None
    plan = CheckPlan(
        size, packages["checked"] or CHECKED, packages["reviewers"] or REVIEWERS, packages["check_round"] or 1
    )
    folder = destination.folder
    if folder.is_file():
        raise UsageError(f"{folder}: is a file; name a folder for the packages with -o")
    if plan.round == 1 and folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder}: is not empty, and somebody's grades may be in it; name another folder")
    return plan


def _ensemble(rerankers: tuple[Path, ...], keep: int | None) -> Ensemble | None:
    if not rerankers:
        if keep is not None:
            raise UsageError("--keep needs rerankers; name their runs with --reranker, or leave it out")
        return None
    names = judged_runs.run_names(rerankers)
    return Ensemble(dict(zip(names, map(trec.read_scores, rerankers), strict=True)), keep or KEPT)


def _write_candidates(path: Path, samples: tuple[JudgedRuns, ...], depth: int) -> None:
    if path.exists():
        raise UsageError(f"{path}: is there already; name another file")
    found = pool_candidates(samples, depth)
    stream = io.StringIO()
    write_candidates(found, stream)
    write(path, stream.getvalue())
    most = max(map(len, found.values()), default=0)
    pairs = sum(map(len, found.values()))
    say(one_line(f"{path}: {counted(pairs, 'candidate')} of {counted(len(found), 'query')}, at most {most} a query"))


def _write_packages(
    judging_pool: JudgingPool,
    documents: Mapping[str, Mapping[str, str]],
    plan: CheckPlan,
    seed: int,
    destination: Destination,
) -> None:
    folder, form = destination.folder, destination.form
    files = dict(cut_packages(judging_pool, plan, seed, form))
    if plan.round > 1:
        _check_packages(folder, judging_pool)
    there = next((folder / name for name in files if (folder / name).exists()), None)
    if there is not None:
        raise UsageError(f"{there}: is there already, and somebody's grades may be in it; take a later --round")
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in files.items():
        write(folder / name, _text(part, documents, form))
    count = -(-len(judging_pool.pairs) // plan.pairs)
    sheets = f"{counted(plan.reviewers, 'sheet')} of {min(plan.checked, plan.pairs):,} pairs each, round {plan.round}"
    say(one_line(f"{folder}: {counted(count, 'package')} of {plan.pairs:,} pairs, {sheets}"))
    say(f"When all are filled in: {command('qrels check', folder)}")


def _check_packages(folder: Path, judging_pool: JudgingPool) -> None:
    """Refuse a later round if these runs do not give the packages of the first."""
    held = [pair for path in find_packages(folder) for pair in read_graded_pool(path) or ()]
    if {(pair.query_id, pair.doc_id) for pair in held} != set(judging_pool.pairs):
        raise UsageError(f"{folder}: its packages have other pairs than these runs; repeat the options of round 1")


def _text(judging_pool: JudgingPool, documents: Mapping[str, Mapping[str, str]], form: str) -> str:
    stream = io.StringIO()
    write_pool(judging_pool, documents, form, stream)
    return stream.getvalue()


def _are_unjudged(runs: RunSelection) -> bool:
    """Return whether the run files have no qrels yet."""
    if not runs.names_run_files:
        return False
    if runs.qrels is None:
        return True
    trec_lines.refuse_pipe(runs.qrels)  # opened here, read later
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


def _summarise(judging_pool: JudgingPool, rerankers: int) -> None:
    """Print the shares of unjudged hits by system; the file must not show them."""
    pairs, queries = len(judging_pool.pairs), judging_pool.queries_to_judge
    text = f"{counted(pairs, 'pair')} of {counted(queries, 'query')} to judge"
    if judging_pool.candidates:
        text += f", chosen by {counted(rerankers, 'reranker')} from {judging_pool.candidates:,} candidates"
        say(f"{text}; {judging_pool.judged:,} more of those chosen are judged", err=True)
    else:
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
        holder = datasets.load_named(named or samples[0].dataset, Path.cwd(), cache)
    except UnknownName as error:
        raise UsageError(f"{error}; name it with --dataset, or say --no-texts") from error
    if corpus_sha256 not in (None, holder.corpus.sha256):
        raise UsageError(
            f"dataset {holder.name}: its documents ({holder.corpus.sha256[:12]}) are not those of the results "
            f"({str(corpus_sha256)[:12]}); name the right one with --dataset"
        )
    return holder
