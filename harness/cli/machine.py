"""Commands that say what can be measured here."""

from __future__ import annotations

import sys

import click

from harness.console import columns, one_line_errors


@click.command()
@one_line_errors
def systems() -> None:
    """List the systems that can be measured."""
    from harness import catalog

    found = catalog.systems().values()
    columns(("system", "engine", "what it is"), [(each.name, each.engine, each.description) for each in found])


@click.command()
@one_line_errors
def doctor() -> None:
    """Look whether this machine is fit to measure on: each line ok, warn or fail, with the remedy."""
    from harness.doctor import Level, examine

    findings = list(examine())
    for finding in findings:
        remedy = f"; {finding.remedy}" if finding.remedy else ""
        click.echo(f"{finding.level.value:<5} {finding.what}: {finding.fact}{remedy}")
    sys.exit(1 if any(finding.level is Level.FAIL for finding in findings) else 0)


COMMANDS = (systems, doctor)
