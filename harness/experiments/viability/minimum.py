"""The smallest hardware for each system of a suite: one question per system, dataset and number of GPUs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from harness.analysis import published
from harness.analysis.published import Viable
from harness.analysis.table import processors
from harness.datasets import dataset_name
from harness.errors import EngineError, HarnessError, StoreError, UsageError, quoted_name
from harness.experiments.viability.probe import MIB
from harness.experiments.viability.session import Question
from harness.experiments.viability.smallest import ViabilityVerdict, smallest
from harness.jobs import inputs
from harness.jobs.suite import Suite
from harness.launch.images.systems import System
from harness.results.schema import NULL_SYSTEMS

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SuiteQuestion:
    """A system and a dataset, its language in the suite, and the CPU counts to try, ascending."""

    system: System
    dataset: str
    cpus: tuple[int, ...]
    gpus: int
    language: str | None = None

    def __str__(self) -> str:
        gpus = f", {processors(self.cpus[0], self.gpus)}" if self.gpus else ""
        return f"{self.system.name} on {dataset_name(self.dataset)}{gpus}"


@dataclass(frozen=True)
class Minimum:
    """The answer to a question of a suite.

    ``verdicts`` by CPU count, ascending; ``failures`` map the other CPU counts to the reason.
    ``published`` is the row of a paper's Table 2 for this system, with or without a GPU; ``source`` cites the paper.
    """

    system: str
    dataset: str
    gpus: int
    verdicts: tuple[ViabilityVerdict, ...]
    failures: dict[int, str]
    published: Viable | None
    source: str = ""

    @property
    def smallest(self) -> ViabilityVerdict | None:
        """Return the verdict with a confirmed limit on the fewest CPUs."""
        return next((verdict for verdict in self.verdicts if verdict.limit_bytes is not None), None)


def suite_questions(suite: Suite, only: str | None, cpus: tuple[int, ...] | None) -> list[SuiteQuestion]:
    """Return the questions of a suite, in its order.

    Args:
        suite: gives the systems, datasets, and processors of the hardware profiles; the profiles' memory is ignored.
        only: a glob of cells, as for ``harness run``.
        cpus: CPU counts to try in place of the profiles'.

    Raises:
        UsageError: ``only`` matches nothing, or a name in the suite is unknown.
    """
    systems, profiles = inputs.suite_systems(suite), suite.envelopes()
    declared = {dataset_name(name): name for name in suite.datasets}
    counts: dict[tuple[str, str, int], set[int]] = {}
    for cell in suite.chosen(only):
        if cell.system not in NULL_SYSTEMS or cell.system in suite.systems:
            profile = profiles[cell.profile]
            counts.setdefault((cell.system, cell.dataset, profile.gpus), set()).add(profile.cpus)
    if not counts:
        raise UsageError(
            f"--only {quoted_name(str(only))} matches no cell of the suite {suite.name}; see `harness plan`"
        )
    return [
        SuiteQuestion(systems[system], declared[dataset], cpus or tuple(sorted(found)), gpus, suite.language(dataset))
        for (system, dataset, gpus), found in counts.items()
    ]


def find_minima(questions: Sequence[SuiteQuestion], ask: Callable[[SuiteQuestion], Question]) -> Iterator[Minimum]:
    """Answer the questions of a suite one after the other; go on after a system that fails.

    Each probe is a stored job, so a stopped search resumes at the same point.

    Args:
        questions: the questions to answer.
        ask: opens a question.

    Raises:
        EngineError, StoreError: jobs cannot run, or cannot be stored.
    """
    for number, question in enumerate(questions, start=1):
        place = f"[{number}/{len(questions)}] {question}"
        log.info(f"{place} ...")
        found = minimum(question, ask)
        outcome = next(iter(found.failures.values()), "no limit was confirmed")
        if (verdict := found.smallest) is not None and verdict.limit_bytes is not None:
            outcome = f"{processors(verdict.cpus, verdict.gpus)}, {verdict.limit_bytes // MIB:,} MiB"
        log.info(f"{place}: {outcome}")
        yield found


def minimum(question: SuiteQuestion, ask: Callable[[SuiteQuestion], Question]) -> Minimum:
    """Answer one question; errors as :func:`find_minima`."""
    verdicts: list[ViabilityVerdict] = []
    failures: dict[int, str] = {}
    opened: Question | None = None
    for count in question.cpus:
        try:
            opened = opened or ask(question)
            verdicts.append(smallest(opened, count))
        except (EngineError, StoreError):
            raise
        except HarnessError as error:
            failures[count] = str(error)
            if opened is None:
                failures = dict.fromkeys(question.cpus, str(error))
                break
    name = question.system.variant_of or question.system.name
    printed, source = published.minimum_viable(name, question.gpus) or (None, "")
    dataset = dataset_name(question.dataset)
    return Minimum(question.system.name, dataset, question.gpus, tuple(verdicts), failures, printed, source)
