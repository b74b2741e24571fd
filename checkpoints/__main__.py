"""``python -m checkpoints``: small checkpoints that stand in for published ones, and conversions of published ones."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from harness.cli.options import cache_option, one_line_errors

# Those of checkpoints.small, which takes long to import.
KINDS = ("dpr", "splade", "colbert", "cross-encoder")


@click.group()
def main() -> None:
    """Make small checkpoints that stand in for published ones, or convert published ones."""
    # As with Ctrl-C: the container is removed, what is finished stays.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))


@main.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("build/small"), show_default=True)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Train this kind; all if not given.")
@cache_option
@one_line_errors()
def small(out: Path, kinds: tuple[str, ...], cache: Path) -> None:
    """Train checkpoints that stand in for published ones; what is there already is kept."""
    from checkpoints import small as suite

    with _training("training small checkpoints") as (client, heard):
        written = suite.make(
            client,
            out.absolute(),
            cache=cache.expanduser().absolute(),
            heard=heard,
            kinds=[kind for kind in suite.KINDS if not kinds or kind.name in kinds],
        )
    for path in written:
        click.echo(path)


_dataset_argument = click.argument("dataset", type=click.Path(path_type=Path, exists=True, file_okay=False))
_out_option = click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True)


@main.command()
@_dataset_argument
@_out_option
@cache_option
@one_line_errors()
def long_documents(dataset: Path, out: Path, cache: Path) -> None:
    """Train rerankers of long documents, and write the systems that order the candidates of DATASET with them."""
    from checkpoints import long_documents as suite

    _train_for(dataset, suite.make, "training rerankers of long documents", out, cache)


@main.command()
@_dataset_argument
@_out_option
@cache_option
@one_line_errors()
def debiasing(dataset: Path, out: Path, cache: Path) -> None:
    """Train one reranker on original and one on shuffled documents, to order the candidates of DATASET."""
    from checkpoints import debiasing as suite

    _train_for(dataset, suite.make, "training rerankers on two kinds of documents", out, cache)


@main.command()
@click.argument("parameters", type=click.Path(path_type=Path, exists=True))
@click.argument("models", type=click.Path(path_type=Path, file_okay=False))
@click.option("--name", required=True, help="Folder of the checkpoint, as a system's file names it: dureader-ce.")
@click.option("--config", type=click.Path(path_type=Path), required=True, help="The model's ernie_config.json.")
@click.option("--vocab", type=click.Path(path_type=Path), required=True, help="The model's vocab.txt.")
@one_line_errors()
def convert_rocketqa(parameters: Path, models: Path, name: str, config: Path, vocab: Path) -> None:
    """Convert RocketQA's PARAMETERS (Paddle's folder, or .npz) to a checkpoint below MODELS, for --models."""
    from checkpoints import rocketqa

    for path in rocketqa.convert(parameters, config, vocab, models, name):
        click.echo(path)


def _train_for(dataset: Path, make: Callable[..., list[Path]], title: str, out: Path, cache: Path) -> None:
    with _training(title) as (client, heard):
        written = make(client, out.absolute(), dataset, cache=cache.expanduser().absolute(), heard=heard)
    for path in written:
        click.echo(path)


@contextmanager
def _training(title: str) -> Iterator[tuple[Any, Callable[[str, int, int], None]]]:
    """Give a client of the Docker engine, and what shows the steps of a training."""
    import docker

    from harness.launch.connection import engine_errors
    from harness.progress import show_progress, task

    with engine_errors():
        client = docker.from_env(timeout=600)
    with show_progress(Console(stderr=True)), closing(client), task(title) as watcher:
        yield client, lambda what, done, of: watcher(done, of, what)


if __name__ == "__main__":
    main()
