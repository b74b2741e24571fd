"""`harness viable`, `validate`, `curve`: the smallest hardware on which a system works."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from harness import config, datasets, extras
from harness.cli.launchers import LauncherChoice, launcher_option
from harness.cli.lines import say
from harness.cli.locations import as_given, of_suite, writable
from harness.cli.options import (
    PATH,
    Decorator,
    cache_option,
    given_parameters,
    models_option,
    only_option,
    record_options,
    rental_options,
    results_option,
)
from harness.cli.output import FORMATS, Destination, destination_options
from harness.cli.traffic import at_option
from harness.errors import UsageError
from harness.experiments.viability import acceptance, render, validation
from harness.experiments.viability import curve as curves
from harness.experiments.viability.acceptance import Criteria
from harness.experiments.viability.at_size import limits_at
from harness.experiments.viability.minimum import SuiteQuestion, find_minima, minimum, suite_questions
from harness.experiments.viability.probe import SUITE, SubjectJobs, subject
from harness.experiments.viability.render_minimum import minima_document
from harness.experiments.viability.session import Question
from harness.jobs.inputs import check_launcher
from harness.jobs.suite import load
from harness.launch.images import catalog
from harness.pricing.prices import PriceSelection
from harness.untrusted import one_line


@dataclass(frozen=True, kw_only=True)
class Bench(LauncherChoice):
    """The system, dataset and launcher of a question, and the folders of its results and caches."""

    system: str
    dataset: str
    queries: int
    unjudged: bool
    fresh: bool
    results: Path | str

    @contextmanager
    def asking(self, criteria: Criteria, step: int = Question.step) -> Iterator[Ask]:
        """Open the launcher and the results; yield a function that opens a question, after all cheap checks."""
        cache = config.absolute_folder(self.cache)
        with writable(self.results, cache) as location, self.open() as launcher:
            results = of_suite(self.results, SUITE, cache).absolute()

            def ask(question: SuiteQuestion) -> Question:
                place = datasets.find(question.dataset, Path(self.system).absolute().parent)
                asked = self.queries, question.language
                about = subject(question.system, place, cache, *asked, unjudged=self.unjudged)
                jobs = SubjectJobs(about, results, cache, launcher, fresh=self.fresh, publisher=location.publisher)
                return Question(jobs, criteria, question.gpus, step)

            yield ask

    def question(self, gpus: int, cpus: tuple[int, ...] = (1,)) -> SuiteQuestion:
        """Return the question about the system of the command line."""
        return SuiteQuestion(catalog.system(self.system), self.dataset, cpus, gpus)


Ask = Callable[[SuiteQuestion], Question]


def _bench_options(metavar: str) -> Decorator:
    return record_options(
        "bench",
        Bench,
        click.argument("system", metavar=metavar),
        click.option("--dataset", default="scifact", help="A shipped dataset, a folder, or an id of ir_datasets."),
        click.option("--queries", type=click.IntRange(1), default=300, help="Queries in the fixed sample."),
        click.option("--unjudged", is_flag=True, help="Fill the sample with queries that have no judgements."),
        click.option("--fresh", is_flag=True, help="Measure stored jobs again too; earlier jobs stay."),
        results_option,
        launcher_option,
        cache_option,
        models_option,
    )


criteria_options = record_options(
    "criteria",
    acceptance.parse_criteria,
    click.option(
        "--max-latency",
        "targets",
        multiple=True,
        metavar="FIGURE=TIME",
        help="Maximum mean, p50, p90, p95 or p99, e.g. p95=200ms; repeatable."
        "  [default: the mean within 25 % of unconstrained]",
    ),
    click.option(
        "--min",
        "least",
        multiple=True,
        metavar="MEASURE=VALUE",
        help="Minimum of a measure, e.g. RR@10=0.3; repeatable.",
    ),
)
_cpus_option = click.option(
    "--cpus", metavar="N,...", help="CPU counts.  [default: 1; SUITE: the CPUs of its hardware profiles]"
)
_gpus_option = click.option("--gpus", type=click.IntRange(0), default=0, help="NVIDIA GPUs.")
_destination_options = destination_options(*FORMATS, wide=True)


@click.command()
@_bench_options("SYSTEM|SUITE")
@_cpus_option
@_gpus_option
@criteria_options
@click.option("--step", default="16MiB", help="Limits are whole steps of this size.")
@at_option("Predict the smallest limit at this many documents (10M), by the limits of a SUITE's [sizes].")
@rental_options
@only_option
@_destination_options
def viable(
    bench: Bench,
    cpus: str | None,
    gpus: int,
    criteria: Criteria,
    step: str,
    at: int | None,
    only: str | None,
    selection: PriceSelection,
    destination: Destination,
) -> None:
    """Find the smallest memory limit under which SYSTEM still works, and the instance to rent for it.

    With SUITE (a TOML file): of each of its systems, on its datasets and with the CPUs and GPUs of its hardware
    profiles, next to Table 2 of a shipped paper if it has the system.  A system that fails does not stop the others.

    Each probe is a stored job, so the same command resumes a stopped search, and shows a finished search at once.  Exit
    code 1 if no limit could be confirmed.
    """
    counts = acceptance.parse_whole_numbers(cpus, "--cpus") if cpus is not None else None
    step_bytes = acceptance.parse_size(step, "--step")
    snapshot = selection.snapshot()  # before anything costs time
    suite = load(config.suite_by_name(Path(bench.system))) if bench.system.endswith(".toml") else None
    if at is not None and (suite is None or not suite.sizes.documents):
        raise UsageError("--at needs a suite with `[sizes] documents = [10_000, 30_000, 100_000, 300_000]`; name one")
    if suite is not None:
        check_launcher(suite, None)
        if decided := [name for name in ("dataset", "gpus") if name in given_parameters()]:
            raise UsageError(
                f"--{decided[0]} is for a SYSTEM; the suite's file names its own, and --only chooses among them"
            )
        questions = suite_questions(suite, only, counts)
        with bench.asking(criteria, step_bytes) as ask:
            minima = list(find_minima(questions, ask))
    elif only is not None:
        raise UsageError("--only chooses cells of a SUITE; leave it out, or name a suite's file")
    else:
        asked = bench.question(gpus, counts or (1,))
        with bench.asking(criteria, step_bytes) as ask:
            opened = ask(asked)
            for count in asked.cpus:
                opened.check(count)
            minima = [minimum(asked, lambda _: opened)]
    if suite is not None or minima[0].verdicts:
        name = suite.name if suite is not None else None
        predicted = limits_at(minima, at, snapshot, selection.choice) if at is not None else ()
        destination.show_report(minima_document(minima, criteria, snapshot, selection.choice, name, predicted))
    for found in minima:
        for reason in dict.fromkeys(found.failures.values()):
            say(as_given(f"harness: {found.system} on {found.dataset}: {one_line(reason)}", bench.cache), err=True)
    sys.exit(0 if all(found.smallest and not found.failures for found in minima) else 1)


@click.command()
@_bench_options("SYSTEM")
@click.option("--instance", required=True, help="An instance type, e.g. m6g.medium (`harness instances`).")
@_gpus_option
@criteria_options
@_destination_options
def validate(bench: Bench, instance: str, gpus: int, criteria: Criteria, destination: Destination) -> None:
    """Emulate the CPUs and the memory of an instance type here, and check whether SYSTEM works in them.

    Exit code 1 if it does not work.
    """
    named = validation.find_instance(instance)
    with bench.asking(criteria) as ask:
        outcome = validation.validate(ask(bench.question(gpus)), named)
    destination.show_report(render.validation_document(outcome))
    sys.exit(0 if outcome.holds else 1)


@click.command()
@_bench_options("SYSTEM")
@click.option("--cpus", type=click.IntRange(1), default=1, help="Number of CPUs.")
@_gpus_option
@click.option("--limits", metavar="SIZE,...", help="Memory limits, e.g. 64MiB,96MiB.  [default: a ladder of eight]")
@click.option("--plots", type=PATH, help="Plots go to PLOTS.png and PLOTS.svg.  [default: next to the jobs]")
@_destination_options
def curve(bench: Bench, cpus: int, gpus: int, limits: str | None, plots: Path | None, destination: Destination) -> None:
    """Measure SYSTEM under a ladder of memory limits: a table and a plot, with the knee marked."""
    extras.require("matplotlib")
    rungs = acceptance.parse_sizes(limits, "--limits") if limits is not None else ()
    with bench.asking(Criteria()) as ask:
        question = ask(bench.question(gpus))
        curve_points = curves.measure_curve(question, cpus, rungs)
    name = curves.plot_name(cpus, gpus, len(question.jobs.subject.queries.sample), rungs)
    paths = curves.draw_curve(curve_points, plots or question.jobs.folder / name)
    for path in paths if plots is None else ():
        question.jobs.publish(path)
    destination.show_report(render.curve_document(curve_points))
    say(as_given(f"plots: {' '.join(map(str, paths))}", bench.cache), err=True)
