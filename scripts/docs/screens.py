"""Draw the screens of ``docs/guides/screens.md``: what a terminal shows of real commands, as tmux has it, as SVG.

Run ``python -m scripts.docs.screens [NAME...]`` after a change of what commands print; it needs tmux, and an engine for
the demo.  It writes ``docs/assets/screen-*.svg``.  A screen of a run that is going on is taken so many seconds after
its start.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from harness.config import data_root

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "assets"
MOST_BYTES = 60_000
WIDTH, HEIGHT = 100, 30
_MOST_S = 1800
_SVG = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


@dataclass(frozen=True)
class Scene:
    """A command and the screens of it: their names by the seconds after its start, and the one at its end."""

    command: str
    during: Mapping[int, str] = field(default_factory=dict)
    end: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of its screens."""
        return (*self.during.values(), self.end)


# A suite that cannot work on the machine: it lacks a folder and CPUs.
SUITE = """
systems = ["bm25", "minilm"]
datasets = ["./my-data", "./their-data"]
profiles = ["cpu1-mem1", "server"]

[hardware.server]
cpus = 64
memory = "512GiB"
"""
SCENES = (
    Scene("harness doctor", end="doctor"),
    Scene("harness run my-suite.toml", end="missing"),
    Scene("harness run bm25 --dataset ./my-data --cpus 1 --memory 1GiB", end="run"),
    Scene("harness demo", during={30: "demo-30", 120: "demo-120"}, end="demo-end"),
)


def main(names: list[str]) -> int:
    """Write the screens of these names, or all; return 1 if one is too large."""
    if shutil.which("tmux") is None:
        sys.exit("the screens are read from tmux: install it, then run this again")
    large = False
    folder = Path(tempfile.gettempdir()) / "search"  # messages name it
    folder.mkdir()
    try:
        write_my_data(folder / "my-data")
        (folder / "my-suite.toml").write_text(SUITE, encoding="utf-8")
        for scene in SCENES:
            if names and not set(names) & set(scene.names):
                continue
            for name, screen in screens(scene, folder):
                path = PICTURES / f"screen-{name}.svg"
                path.write_text(as_svg(screen, scene.command, f"screen-{name}"), encoding="utf-8")
                large |= path.stat().st_size > MOST_BYTES
                print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")
    finally:
        shutil.rmtree(folder)
    return 1 if large else 0


def write_my_data(folder: Path) -> None:
    """Write a collection as a person has one, in BEIR's files: SciFact's queries, with a fifth of its documents."""
    source = data_root() / "datasets" / "scifact"
    (folder / "qrels").mkdir(parents=True)
    shutil.copy(source / "queries.jsonl", folder)
    judged = [line.split() for line in (source / "qrels.trec").read_text(encoding="utf-8").splitlines()]
    lines = ["query-id\tcorpus-id\tscore", *(f"{query}\t{document}\t{grade}" for query, _, document, grade in judged)]
    (folder / "qrels" / "test.tsv").write_text("\n".join([*lines, ""]), encoding="utf-8")
    answers = {document for _, _, document, _ in judged}
    with (
        gzip.open(source / "corpus.jsonl.gz", "rt", encoding="utf-8") as corpus,
        (folder / "corpus.jsonl").open("w", encoding="utf-8") as kept,
    ):
        for number, line in enumerate(corpus):
            if number % 5 == 0 or json.loads(line)["_id"] in answers:
                kept.write(line)


def screens(scene: Scene, folder: Path) -> Iterator[tuple[str, str]]:
    """Run a command on a terminal; yield its screens with colours, by name."""
    with _terminal(scene, folder) as ended:
        started = time.monotonic()
        for second, name in sorted(scene.during.items()):
            while time.monotonic() - started < second and not ended.exists():
                time.sleep(0.1)
            if ended.exists():
                print(f"{scene.command} ended before {second} s, so there is no {name}", file=sys.stderr)
            else:
                yield name, _tmux(scene, "capture-pane", "-p", "-e", "-t", "screen")
        while not ended.exists():
            if time.monotonic() - started > _MOST_S:
                sys.exit(f"{scene.command} took more than {_MOST_S} s")
            time.sleep(0.2)
        if scene.end:
            time.sleep(0.5)
            yield scene.end, _tmux(scene, "capture-pane", "-p", "-e", "-t", "screen")


@contextmanager
def _terminal(scene: Scene, folder: Path) -> Iterator[Path]:
    """Begin a command on a terminal; provide the file that exists once the command has ended."""
    ended = folder / "ended"
    ended.unlink(missing_ok=True)
    cache = shlex.quote(str(folder / "cache"))  # nothing is there yet
    script = "\n".join(
        [
            f'harness() {{ HARNESS_CACHE={cache} {shlex.quote(sys.executable)} -m harness "$@"; }}',
            f"printf '$ %s\\n' {shlex.quote(scene.command)}",
            scene.command,
            f"touch {shlex.quote(str(ended))}",
            "sleep 3600",
        ]
    )
    size = ("-x", str(WIDTH), "-y", str(HEIGHT))
    _tmux(scene, "new-session", "-d", "-s", "screen", *size, "-c", str(folder), "bash", "-c", script)
    try:
        yield ended
    finally:
        _tmux(scene, "kill-server")


def _tmux(scene: Scene, *words: str) -> str:
    # A server of its own for each: one that is being killed still answers.
    command = ["tmux", "-L", f"harness-{scene.end}", "-f", "/dev/null", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def as_svg(screen: str, title: str, name: str) -> str:
    """Return a screen as SVG, as high as its text, with the reader's fonts: a picture in a page may load none."""
    lines = screen.rstrip("\n ").splitlines()
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    # Together: tmux does not repeat a colour that goes on in the next line.
    console.print(Text.from_ansi("\n".join(lines)), soft_wrap=True)
    return console.export_svg(title=title, theme=DIMMED_MONOKAI, code_format=_SVG, unique_id=name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
