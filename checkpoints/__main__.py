"""``python -m checkpoints small --out DIR``: the checkpoints of the suite ``small``."""

from __future__ import annotations

import signal
import sys
from contextlib import closing
from pathlib import Path

import click
from rich.console import Console

from harness.cli.options import cache_option, one_line_errors


@click.group()
def main() -> None:
    """Make small checkpoints that stand in for published ones."""
    # As with Ctrl-C: the container is removed, what is finished stays.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))


@main.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("build/small"), show_default=True)
@cache_option
@one_line_errors()
def small(out: Path, cache: Path) -> None:
    """Train the checkpoints of suites/small.toml; what is there already is kept."""
    import docker

    from checkpoints import small as suite
    from harness.launch.docker_errors import engine_errors
    from harness.progress import show_progress, task

    with engine_errors():
        client = docker.from_env(timeout=600)
    with show_progress(Console(stderr=True)), closing(client), task("training small checkpoints") as watcher:
        written = suite.make(
            client,
            out.absolute(),
            cache=cache.expanduser().absolute(),
            heard=lambda what, done, of: watcher(done, of, what),
        )
    for path in written:
        click.echo(path)


if __name__ == "__main__":
    main()
