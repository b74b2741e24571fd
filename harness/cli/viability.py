"""Commands about the least hardware: the smallest limit, the reverse question, the curve."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from harness.cli.locations import as_given, of_suite, writable
from harness.cli.options import (
    Market,
    cache_option,
    chosen_launcher,
    launcher_option,
    market_options,
    models_option,
    one_line_errors,
    results_option,
)
from harness.errors import HarnessError
from harness.untrusted import printable

if TYPE_CHECKING:
    from harness.experiments.viability.acceptance import Criteria
    from harness.experiments.viability.session import Question, Viability


@dataclass(frozen=True)
class Bench:
    """Whom to ask, and where results and caches lie."""

    system: str
    dataset: str
    queries: int
    results: Path | str
    launcher: str
    cache: Path
    models: Path | None
    fresh: bool

    @contextmanager
    def asking(self, question: Question) -> Iterator[Viability]:
        """The subject, ready to be asked; everything that can be checked before it costs time is."""
        from harness import datasets
        from harness.experiments.viability.probe import SUITE, SubjectJobs, subject
        from harness.experiments.viability.session import Viability
        from harness.launch.images import catalog
        from harness.progress import Screen

        system, cache = catalog.system(self.system), self.cache.expanduser().absolute()
        asked = subject(system, datasets.find(self.dataset, Path.cwd()), cache, self.queries)
        screen = Screen(Console(stderr=True))
        with (
            writable(self.results, cache) as place,
            closing(chosen_launcher(self.launcher, cache, self.models)) as launcher,
        ):
            results = of_suite(self.results, SUITE, cache).absolute()
            jobs = SubjectJobs(asked, results, cache, launcher, screen, fresh=self.fresh, shelf=place.shelf)
            yield Viability(jobs, question)


def bench_options(command: Callable[..., None]) -> Callable[..., None]:
    """SYSTEM, ``--dataset`` and all that a run needs, handed over as one :class:`Bench`."""

    @click.argument("system")
    @click.option(
        "--dataset",
        default="scifact",
        show_default=True,
        help="A shipped dataset, a folder such as ./my-data, or an id of ir_datasets.",
    )
    @click.option(
        "--queries", type=click.IntRange(1), default=300, show_default=True, help="Queries in the fixed sample."
    )
    @click.option("--fresh", is_flag=True, help="Measure again, also what is stored; earlier jobs stay.")
    @results_option
    @launcher_option
    @cache_option
    @models_option
    @wraps(command)
    def wrapped(
        *args: Any,
        system: str,
        dataset: str,
        queries: int,
        fresh: bool,
        results: Path,
        launcher: str,
        cache: Path,
        models: Path | None,
        **others: Any,
    ) -> None:
        command(*args, bench=Bench(system, dataset, queries, results, launcher, cache, models, fresh), **others)

    return wrapped


@dataclass(frozen=True)
class Wanted:
    """What must hold, as it was written."""

    max_latency: tuple[str, ...]
    least: tuple[str, ...]

    def criteria(self) -> Criteria:
        """Read it.

        Raises:
            UsageError: it is not written right.
        """
        from harness.experiments.viability import acceptance

        return acceptance.parse_criteria(self.max_latency, self.least)


def criteria_options(command: Callable[..., None]) -> Callable[..., None]:
    """``--max-latency`` and ``--min``, handed over as one :class:`Wanted`."""

    @click.option(
        "--max-latency",
        multiple=True,
        metavar="FIGURE=TIME",
        help="mean, p50, p90, p95 or p99 of at most so much, e.g. p95=200ms; may come again."
        "  [default: the mean within 25 % of unconstrained]",
    )
    @click.option(
        "--min",
        "least",
        multiple=True,
        metavar="MEASURE=VALUE",
        help="At least so much, e.g. RR@10=0.3; may come again.",
    )
    @wraps(command)
    def wrapped(*args: Any, max_latency: tuple[str, ...], least: tuple[str, ...], **others: Any) -> None:
        command(*args, wanted=Wanted(max_latency, least), **others)

    return wrapped


_cpus_option = click.option("--cpus", default="1", show_default=True, metavar="N,...", help="CPU counts to ask for.")
_gpus_option = click.option("--gpus", type=click.IntRange(0), default=0, show_default=True, help="Whole NVIDIA GPUs.")
_format_option = click.option(
    "--format", "form", type=click.Choice(["md", "json"]), default="md", show_default=True, help="How to print it."
)


@click.command()
@bench_options
@_cpus_option
@_gpus_option
@criteria_options
@click.option("--step", default="16MiB", show_default=True, help="Limits are whole steps of this size.")
@market_options
@_format_option
@one_line_errors
def viable(bench: Bench, cpus: str, gpus: int, wanted: Wanted, step: str, market: Market, form: str) -> None:
    """Find the smallest memory limit in which SYSTEM still does its work, and what to rent for it.

    Each probe is a stored job, so the same command goes on where it was stopped, and shows what it found at once when
    it comes again.  Exit code 1 where no limit could be confirmed.
    """
    from harness.experiments.viability import acceptance
    from harness.experiments.viability.session import Question
    from harness.experiments.viability.smallest import check_step, smallest

    counts = acceptance.parse_whole_numbers(cpus, "--cpus")
    question = Question(wanted.criteria(), gpus, acceptance.parse_size(step, "--step"))
    snapshot = market.snapshot()  # before anything costs time
    found, refused = [], []
    with bench.asking(question) as asking:
        for count in counts:
            check_step(asking, count)
        for count in counts:
            try:
                found.append(smallest(asking, count))
            except HarnessError as error:  # the other CPU counts may do
                refused.append(error)
    from harness.experiments.viability import render

    click.echo(render.render_verdicts(found, snapshot, form), nl=False)
    for why in refused:
        said = f"harness: {printable(str(why))}; evidence: {asking.jobs.folder}"
        click.echo(as_given(said, bench.cache), err=True)
    if refused:
        sys.exit(max(why.exit_code for why in refused))
    sys.exit(0 if all(each.limit_bytes is not None for each in found) else 1)


@click.command()
@bench_options
@click.option("--instance", required=True, help="An instance type, e.g. m6g.medium (`harness instances`).")
@click.option("--provider", help="Whose type it is.  [default: the one in instance_profiles/defaults.toml]")
@_gpus_option
@criteria_options
@_format_option
@one_line_errors
def validate(bench: Bench, instance: str, provider: str | None, gpus: int, wanted: Wanted, form: str) -> None:
    """Emulate the CPUs and the memory of an instance type here, and say whether SYSTEM does its work in them.

    Exit code 1 where it does not.
    """
    from harness.experiments.viability import render, validation
    from harness.experiments.viability.session import Question

    named = validation.find_instance(instance, provider)
    validation.check_host(named, gpus)
    with bench.asking(Question(wanted.criteria(), gpus)) as asking:
        found = validation.validate(asking, named)
    click.echo(render.render_validation(found, form), nl=False)
    sys.exit(0 if found.holds else 1)


@click.command()
@bench_options
@click.option("--cpus", type=click.IntRange(1), default=1, show_default=True, help="How many CPUs.")
@_gpus_option
@click.option("--limits", metavar="SIZE,...", help="Memory limits, e.g. 64MiB,96MiB.  [default: a ladder of eight]")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Plots go to OUTPUT.png and OUTPUT.svg.  [default: beside the jobs]",
)
@_format_option
@one_line_errors
def curve(bench: Bench, cpus: int, gpus: int, limits: str | None, output: Path | None, form: str) -> None:
    """Measure SYSTEM under a ladder of memory limits: a table and a plot, with the knee marked."""
    from harness.experiments.viability import acceptance, render
    from harness.experiments.viability import curve as curves
    from harness.experiments.viability.session import Question

    rungs = tuple(acceptance.parse_size(each, "--limits") for each in limits.split(",")) if limits is not None else ()
    with bench.asking(Question(gpus=gpus)) as asking:
        found = curves.measure_curve(asking, cpus, rungs)
    name = curves.plot_name(cpus, gpus, len(asking.jobs.subject.queries.sample), rungs)
    paths = curves.draw_curve(found, output or asking.jobs.folder / name)
    for path in paths if output is None else ():
        asking.jobs.publish(path)
    click.echo(render.render_curve(found, form), nl=False)
    click.echo(as_given(f"plots: {' '.join(map(str, paths))}", bench.cache), err=True)


COMMANDS = (viable, validate, curve)
