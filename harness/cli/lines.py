"""Lines that commands print."""

from __future__ import annotations

import click

from harness.progress import Screen, folded
from harness.untrusted import escaped


def say(text: str, *, err: bool = False) -> None:
    """Print a line, folded on a terminal; characters that would control the terminal become escapes."""
    click.echo(folded(escaped(text), Screen(stderr=err)), err=err)
