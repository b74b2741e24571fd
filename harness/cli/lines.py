"""Lines that commands print."""

from __future__ import annotations

import click

from harness.untrusted import escaped


def say(text: str, *, err: bool = False) -> None:
    """Print a line; characters that would control the terminal become escapes."""
    click.echo(escaped(text), err=err)
