"""Jobs under limits, one after the other, with the machine itself under suspicion where a latency is in doubt."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from harness.errors import HarnessError
from harness.viable.asked import MEAN
from harness.viable.judge import OOM, Judgement, against, judge
from harness.viable.probing import MIB
from harness.viable.reference import check_keeps
from harness.viable.run import Viability, milliseconds, outcome
from harness.viable.search import Finding, Purpose

# Jobs in a row that are put aside before the machine is called too slow to go on.
MOST_ASIDE = 3


@dataclass(frozen=True)
class Tried:
    """A job, and what it was for.  ``aside``: the machine was slow, so it says nothing."""

    purpose: Purpose
    judgement: Judgement
    aside: bool = False

    @property
    def limit(self) -> int:
        """Memory limit in bytes."""
        return self.judgement.seen.limit


class Session:
    """One question at one CPU count.  Stored jobs are taken in the order in which they were measured.

    Raises:
        UsageError: this host does not have the CPUs or GPUs, or even the unconstrained system misses what is asked.
        JobError: the unconstrained system does not run.
        EngineError, StoreError, FileError: as from a run.
    """

    def __init__(self, asked: Viability, cpus: int) -> None:
        self.cpus = cpus
        self.criteria = asked.question.criteria
        self.base = asked.unconstrained(cpus)
        check_keeps(self.base, self.criteria, asked.where(cpus))
        self.tried: list[Tried] = []
        self._asked = asked
        self._used: dict[int, int] = defaultdict(int)

    def try_once(self, limit: int, purpose: Purpose, label: str) -> Judgement:
        """Measure once under a limit (bytes).

        Where latency alone is in doubt, the unconstrained system is measured right after it and says whether it was
        the machine that was slow.  If so, both are put aside, and the limit is measured again.

        Args:
            limit: memory, in bytes.
            purpose: kept with the job.
            label: begins its line on the screen.

        Raises:
            HarnessError: the machine stays slow; or as from a run.
        """
        aside = 0
        while True:
            judged, now = self._asked.under(self.cpus, limit, self._used[limit], self.base)
            self._used[limit] += 1
            line = f"{label}, {limit // MIB:,} MiB: "
            if judged.finding is not Finding.DOUBT:
                self.tried.append(Tried(purpose, judged))
                self._asked.say(self.cpus, line + outcome(judged), now)
                return judged
            seen, control_now = self._asked.control(self.cpus, judged.seen, measured_now=now)
            held, said = None, "nothing was measured right after it"
            if seen is not None:
                control = judge(seen, self.base, self.criteria)
                held, said = against(judged, control), f"unconstrained right after it: {milliseconds(seen)}"
            self.tried.append(Tried(purpose, held or judged, aside=held is None))
            if seen is not None:
                self.tried.append(Tried(Purpose.CONTROL, control))
            if held is not None:
                self._asked.say(self.cpus, f"{line}{outcome(held)}; {said}", now or control_now)
                return held
            line += f"put aside, the machine is slow ({outcome(judged)}; {said})"
            self._asked.say(self.cpus, line, now or control_now)
            aside += now
            if aside >= MOST_ASIDE:
                before = self.base.latency_s[MEAN] * 1e3
                raise HarnessError(
                    f"the machine is too busy to judge a latency ({said}, {before:.4g} ms before); quieten it (harness"
                    " doctor shows its load), then the same command goes on from here"
                )

    def killed_above(self, limit: int | None) -> list[Tried]:
        """The first job of each larger limit that was killed for memory and that this session did not ask for.

        Args:
            limit: in bytes.

        Returns:
            Them, by ascending limit.
        """
        if limit is None:
            return []
        known = {each.judgement.seen.result.key for each in self.tried}
        found: dict[int, Tried] = {}
        passed: dict[int, int] = defaultdict(int)
        for each in self._asked.larger(self.cpus, limit, known, self.base):
            larger = each.seen.limit
            if larger in found:
                continue
            passed[larger] += 1
            if each.causes == (OOM,):
                found[larger] = Tried(Purpose.OTHER, each)
                self._used[larger] += passed[larger]  # what is asked for at that limit later is another job
        return list(found.values())
