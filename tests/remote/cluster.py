"""A real Slurm for tests: the one that answers here, and a user of it who may be another than this process's."""

from __future__ import annotations

import os
import pwd
import re
import site
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness.remote import records
from harness.remote.shared_folder import open_folder
from harness.remote.worker import HEARTBEAT_VARIABLE
from tests.conftest import Bench

ROOT = Path(__file__).resolve().parents[2]
# The user who submits; by default this process's.
USER_VARIABLE = "HARNESS_CLUSTER_USER"
_PATIENCE_S = 120
_ANSWER_S = 15


def slurm(*command: str, user: str | None = None) -> str:
    """Run one of Slurm's commands."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=_environment(), user=user, timeout=_ANSWER_S
    )
    return done.stdout


def _environment(**own: str) -> dict[str, str]:
    names = ("PATH", "LANG", "SLURM_CONF")
    return {name: os.environ[name] for name in names if name in os.environ} | own


def user() -> str:
    """The user who submits."""
    return os.environ.get(USER_VARIABLE) or pwd.getpwuid(os.getuid()).pw_name


def interpreter(folder: Path) -> str | None:
    """Return a Python with harness's packages that the user may run; ``None``: there is none."""
    works = ["-c", "import click"]
    if _runs(sys.executable, *works):
        return sys.executable
    system = "/usr/bin/python3"
    if not _runs(system, "-c", f"import sys; sys.exit(sys.version_info[:2] != {tuple(sys.version_info[:2])})"):
        return None
    home = folder / "python"
    subprocess.run([system, "-m", "venv", "--without-pip", str(home)], check=True, env=_environment())
    [packages] = (home / "lib").glob("python*/site-packages")
    (packages / "packages.pth").write_text("\n".join(site.getsitepackages()))
    return str(home / "bin" / "python") if _runs(str(home / "bin" / "python"), *works) else None


def _runs(*command: str) -> bool:
    try:
        return subprocess.run(command, user=_other_user(), cwd="/", env=_environment(), check=False).returncode == 0
    except OSError:
        return False


def _other_user() -> str | None:
    return None if user() == pwd.getpwuid(os.getuid()).pw_name else user()


@dataclass
class Login:
    """A login node's user with a bench and a shared folder."""

    bench: Bench
    python: str
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def shared(self) -> Path:
        return self.bench.folder / "shared"

    def hand_over(self) -> None:
        """Give all files to the user."""
        if _other_user():
            subprocess.run(["chown", "-R", f"{user()}:", str(self.bench.folder)], check=True, env=_environment())

    def command(self, *more: str, launcher: str = "process") -> list[str]:
        words = ["run", "test-suite.toml", "--on", "slurm", "--launcher", launcher, "--work", "shared"]
        return [self.python, "-P", "-m", "harness", *words, *more]

    def variables(self) -> dict[str, str]:
        """The user's environment."""
        return _environment(
            HOME=str(self.bench.folder),
            PYTHONPATH=str(ROOT),
            PYTHONDONTWRITEBYTECODE="1",
            HARNESS_IMAGES=str(self.bench.folder / "engines"),
            HARNESS_PRICES=os.devnull,
            **{HEARTBEAT_VARIABLE: "0.3"},
        )

    def start(self, *more: str, launcher: str = "process") -> subprocess.Popen[bytes]:
        """Start the command of the run as the user."""
        other = _other_user()
        with (self.bench.folder / "log").open("ab") as log:
            child = subprocess.Popen(
                self.command(*more, launcher=launcher),
                cwd=self.bench.folder,
                env=self.variables(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=other,
                group=other,
                extra_groups=[] if other else None,
            )
        self.children.append(child)
        return child

    def log(self) -> str:
        """What all commands have printed."""
        return (self.bench.folder / "log").read_text(errors="replace")

    def tasks(self, *states: str) -> list[str]:
        """Tasks of the user in these states."""
        shown = slurm(
            "squeue", f"--user={user()}", "--noheader", "--array", f"--states={','.join(states)}", "-o", "%F_%K"
        )
        return shown.split()

    def wait(self, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not done():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def measures(self, profile: str = "") -> bool:
        """Whether a worker that has uploaded a job measures another, on this profile."""
        work = open_folder(self.shared)
        names = [stored.name for stored in work.list(f"{records.WORKERS}/")]
        busy = (
            name.removesuffix(f"/{records.HEARTBEAT}")
            for name in names
            if name.endswith(records.HEARTBEAT) and re.search(rb'"current": ?"', work.get(name, 1 << 20) or b"")
        )
        uploads = [name for worker in busy for name in names if name.startswith(f"{worker}/{records.JOBS}/")]
        return any(profile.encode() in (work.get(name, 1 << 28) or b"") for name in uploads)


@contextmanager
def login(bench: Bench, python: str) -> Iterator[Login]:
    """A user with an empty shared folder; at the end none of the user's commands and tasks is left."""
    made = Login(bench, python)
    made.shared.mkdir(mode=0o750)
    try:
        yield made
    finally:
        for child in made.children:
            child.kill()
            child.wait()
        own = slurm("squeue", f"--user={user()}", "--noheader", "-o", "%F %Z").splitlines()
        ids = {line.split(" ", 1)[0] for line in own if line.endswith(str(made.shared))}
        if ids:
            slurm("scancel", *ids)
            made.wait(lambda: not ids & {task.split("_")[0] for task in made.tasks("RUNNING", "PENDING", "COMPLETING")})
