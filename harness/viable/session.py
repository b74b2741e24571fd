"""Jobs under limits, one after the other, with the machine itself under suspicion where a latency is in doubt."""

from __future__ import annotations

from collections import defaultdict
from copy import copy
from dataclasses import dataclass

from harness.errors import HarnessError
from harness.records import Outcome
from harness.viable.asked import MEAN
from harness.viable.judge import OOM, Judgement, against, judge
from harness.viable.probing import MIB
from harness.viable.reference import check_keeps
from harness.viable.run import Viability, milliseconds, outcome
from harness.viable.search import Finding, Purpose, Settled, wrong_side
from harness.viable.seen import Seen

# Jobs in a row that are put aside before the machine is called too slow to go on.
MOST_ASIDE = 3
# Jobs of one question, controls and those put aside included, however often the command comes again.
MOST_JOBS = 64


@dataclass(frozen=True)
class Tried:
    """A job, and what it was for."""

    purpose: Purpose
    judgement: Judgement

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

    def __init__(self, asked: Viability, cpus: int, most: int = MOST_JOBS) -> None:
        self.cpus = cpus
        self.criteria = asked.question.criteria
        self.base = asked.unconstrained(cpus)
        check_keeps(self.base, self.criteria, asked.where(cpus))
        self.tried: list[Tried] = []
        self._asked = asked
        self._used: dict[int, int] = defaultdict(int)
        self._most = most

    def try_once(self, limit: int, purpose: Purpose, label: str) -> Judgement:
        """Measure once under a limit (bytes).

        Where latency alone is in doubt, the unconstrained system is measured right after it and says whether it was
        the machine that was slow.  If so, the job is put aside, and the limit is measured again.

        Args:
            limit: memory, in bytes.
            purpose: kept with the job.
            label: begins its line on the screen.

        Raises:
            HarnessError: the machine stays slow, or all jobs of this question are used up; or as from a run.
        """
        aside = 0
        while True:
            if len(self.tried) >= self._most:
                raise HarnessError(
                    f"{self._asked.where(self.cpus)}: {len(self.tried)} jobs settled nothing, and no more are run;"
                    " quieten the machine (harness doctor shows its load) and start anew with --fresh"
                )
            judged, now = self._asked.under(self.cpus, limit, self._used[limit], self.base)
            self._used[limit] += 1
            line = f"{label}, {limit // MIB:,} MiB: "
            if judged.finding is not Finding.DOUBT:
                self.tried.append(Tried(purpose, judged))
                self._asked.say(self.cpus, line + outcome(judged), now)
                return judged
            control, control_now = self._asked.control(self.cpus, judged.seen, measured_now=now)
            held, said = self._held(judged, control, purpose)
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

    def _held(self, judged: Judgement, seen: Seen | None, purpose: Purpose) -> tuple[Judgement | None, str]:
        """A job in doubt held against its control, both kept; ``None``: it says nothing; and what the control said."""
        if seen is None:
            self.tried.append(Tried(Purpose.ASIDE, judged))
            return None, "nothing was measured right after it"
        control = judge(seen, self.base, self.criteria)
        # An unconstrained system that does not even end well says that something is wrong with this machine.
        ended = seen.result.outcome is Outcome.OK
        held = against(judged, control) if ended else None
        self.tried.append(Tried(Purpose.ASIDE if held is None else purpose, held or judged))
        self.tried.append(Tried(Purpose.CONTROL, control))
        return held, f"unconstrained right after it: {milliseconds(seen)}"

    def most_killed(self, limit: int) -> int | None:
        """The largest limit (bytes), from this one on, under which any stored job was killed for memory."""
        stored = self._asked.limited(self.cpus, self.base)
        killed = [each.seen.limit for each in stored if each.causes == (OOM,)]
        return max((each for each in killed if each >= limit), default=None)

    def again(self, failed: int) -> Session:
        """This session as it is now, to go on from with what is known of a limit (bytes) that failed elsewhere.

        What others ran up to there counts as used up, so that no sequence of such limits goes on for ever.
        """
        other = copy(self)
        other.tried, other._used = list(self.tried), self._used.copy()
        least = min((each.limit for each in self.tried), default=failed)
        other._most = self._most - sum(least <= each.limit <= failed for each in self._unasked())
        return other

    def against(self, first: int | None, settled: Settled) -> list[Tried]:
        """What was run for something else and speaks against an edge, or has moved it, by limit.

        Args:
            first: the limit (bytes) that the search came to before it knew of others' jobs.
            settled: its end.
        """
        if first is None:
            return []
        return [
            each
            for each in self._unasked()
            if (each.judgement.causes == (OOM,) and each.limit >= first)
            or wrong_side(each.limit, each.judgement.finding, settled.limit, settled.below)
        ]

    def _unasked(self) -> list[Tried]:
        """Stored jobs under limits that this session did not ask for; one in doubt has no control, and says nothing."""
        known = {each.judgement.seen.result.key for each in self.tried}
        return [
            Tried(Purpose.OTHER, each)
            for each in self._asked.limited(self.cpus, self.base)
            if each.seen.result.key not in known and each.finding is not Finding.DOUBT
        ]
