"""What a person sees of a run: a table that is drawn anew on a terminal, lines elsewhere."""

from __future__ import annotations

from types import TracebackType

from rich.live import Live
from rich.markup import escape
from rich.table import Table

from harness.ec2.standing import Run, Standing
from harness.progress import Screen, duration
from harness.result import Result


class Board:
    """One line for each instance, and one for each job that comes home."""

    def __init__(self, screen: Screen, expected_usd: float) -> None:
        self._screen = screen
        self._expected_usd = expected_usd
        self._live: Live | None = None
        self._told: dict[str, str] = {}
        self._jobs = 0

    def __enter__(self) -> Board:
        if self._screen.console.is_terminal:
            self._live = Live(console=self._screen.console, refresh_per_second=2, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """One line that stays."""
        self._screen.say(text)

    def came(self, result: Result, run: Run) -> None:
        """A job is home."""
        self._jobs += 1
        total = sum(len(standing.group.jobs) for standing in run.groups.values())
        self.say(line_of(result, self._jobs, total))

    def update(self, run: Run) -> None:
        """Show how it stands; without a terminal, what has changed."""
        if self._live is not None:
            self._live.update(self._table(run))
            return
        for standing in run.groups.values():
            said = _state(standing, run)
            if said != self._told.get(standing.group.name) and standing.part in run.book.launches:
                self._told[standing.group.name] = said
                instance = standing.seen.instance_id if standing.seen else "-"
                self.say(
                    f"{standing.part} {standing.group.instance_type} {instance}: {said}"
                    f"  (US$ {run.usd_so_far:.2f} of about {self._expected_usd:.2f})"
                )

    def _table(self, run: Run) -> Table:
        title = f"{run.book.run.run_id}: US$ {run.usd_so_far:.2f} of about {self._expected_usd:.2f}"
        table = Table(title=escape(title), title_justify="left", box=None)
        for head in ("part", "type", "instance", "state", "done", "US$"):
            table.add_column(head, justify="right" if head in ("done", "US$") else "left")
        for standing in run.open:
            seen, beat = standing.seen, run.book.signs.beats.get(standing.part)
            usd = standing.group.usd_per_hour * (run.now - seen.launched) / 3600 if seen else 0.0
            done = f"{beat.done}/{beat.total}" if beat else ""
            row = (standing.part, standing.group.instance_type, seen.instance_id if seen else "")
            table.add_row(*map(escape, (*row, _state(standing, run), done)), f"{max(usd, 0):.2f}" if seen else "")
        return table


def line_of(result: Result, number: int, total: int) -> str:
    """A job that came home, in one line."""
    cell = result.spec.cell
    trial = f" trial {result.spec.job + 1}/{result.spec.jobs}" if result.spec.jobs > 1 else ""
    detail = f": {result.detail}" if result.detail else ""
    scenario = "" if cell.scenario == "single_stream" else f" {cell.scenario}"
    return (
        f"  [{number}/{total}] {cell.system} {cell.dataset} {cell.profile}{scenario}{trial}:"
        f" {result.outcome.value}{detail}  [{duration(result.wall_s)}]"
    )


def _state(standing: Standing, run: Run) -> str:
    """What an instance is doing, in a few words."""
    if standing.fate is not None:
        return standing.fate
    if standing.part in run.book.signs.ends:
        return "ending"
    if standing.seen is None:
        return "waiting" if standing.part not in run.book.launches else "launching"
    beat = run.book.signs.beats.get(standing.part)
    if standing.seen.state != "running" or beat is None:
        return "booting" if standing.seen.state in ("pending", "running") else standing.seen.state
    return beat.phase if not beat.says else f"{beat.phase}: {beat.says}"
