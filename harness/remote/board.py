"""Show a run to the person who waits: a table that is drawn anew on a terminal, lines elsewhere."""

from __future__ import annotations

from types import TracebackType

from rich.live import Live
from rich.markup import escape
from rich.table import Table

from harness import orchestrator
from harness.progress import Screen
from harness.records import Outcome
from harness.result import Result

Line = tuple[str, str, str, str]


class Board:
    """One line for each machine, and one for each job that comes home."""

    def __init__(self, screen: Screen, title: str, jobs: int, expected_usd: float) -> None:
        self._screen = screen
        self._title = title
        self._jobs = jobs
        self._expected_usd = expected_usd
        self._live: Live | None = None
        self._shown: dict[str, str] = {}
        self._home = 0

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
        """Print a line that stays."""
        self._screen.say(text)

    def came(self, result: Result, expected: Outcome) -> None:
        """Print that a job is home."""
        self._home += 1
        self.say(orchestrator.line(self._home, self._jobs, result, expected))

    def update(self, lines: list[Line], committed_usd: float) -> None:
        """Show how it stands; without a terminal only what has changed."""
        money = f"at most US$ {committed_usd:.2f} so far, about {self._expected_usd:.2f} in all"
        if self._live is not None:
            table = Table(title=escape(f"{self._title}: {money}"), title_justify="left", box=None)
            for head in ("part", "type", "state", "jobs"):
                table.add_column(head, justify="right" if head == "jobs" else "left")
            for line in lines:
                table.add_row(*map(escape, line))
            self._live.update(table)
            return
        for name, machine, state, _ in lines:
            if state not in ("waiting", self._shown.get(name)):
                self._shown[name] = state
                self.say(f"{name} ({machine}): {state}  ({money})")
