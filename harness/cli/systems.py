"""Commands that say what can be measured here."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from harness.cli.options import columns, one_line_errors, write


@click.command()
@one_line_errors
def systems() -> None:
    """List the systems that can be measured; marks those whose weights are not pinned, or stand in for others."""
    from harness.launch.images import catalog

    found = catalog.systems().values()
    columns(("system", "engine", "what it is"), [(each.name, each.engine, each.told) for each in found])


@click.command()
@click.argument("system")
@click.option(  # not from HARNESS_MODELS: whoever has that set may still mean the hub
    "--models",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Hash the files of this folder of models instead of asking the hub.",
)
@click.option("--newest", is_flag=True, help="Take the hub's newest commit, also where the file names a revision.")
@click.option("--write", "write_it", is_flag=True, help="Put the pins into the system's file; without it, print them.")
@one_line_errors
def pin(system: str, models: Path | None, newest: bool, write_it: bool) -> None:
    """Look up the revision and the sha256 of SYSTEM's files: on the model hub, or in the folder of --models."""
    from harness.launch.images import catalog, pins

    declared = catalog.system(system)
    pinned = pins.look_up(declared, models, newest=newest, report=lambda said: click.echo(said, err=True))
    if not write_it:
        click.echo("\n".join(pins.as_toml(each) for each in pinned), nl=False)
        return
    place, text = pins.edited(declared, pinned)
    write(place, text)
    click.echo(f"{place}: {sum(len(each.sha256) for each in pinned)} files pinned")


@click.command()
@one_line_errors
def doctor() -> None:
    """Look whether this machine is fit to measure on: each line ok, warn or fail, with the remedy."""
    from harness.launch.doctor import Level, examine

    findings = list(examine())
    for finding in findings:
        remedy = f"; {finding.remedy}" if finding.remedy else ""
        click.echo(f"{finding.level.value:<5} {finding.what}: {finding.fact}{remedy}")
    sys.exit(1 if any(finding.level is Level.FAIL for finding in findings) else 0)


COMMANDS = (systems, pin, doctor)
