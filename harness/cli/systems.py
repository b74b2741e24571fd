"""`harness systems`, `pin`, `doctor`, `conformance`, `calibrate`: systems, this machine, and their checks."""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import replace
from pathlib import Path

import click

from harness import filesystem
from harness.cli.launchers import LauncherChoice, launcher_choice, launcher_option, run_options
from harness.cli.locations import writable
from harness.cli.options import cache_option, models_option, platform_option, results_option, retry_option
from harness.cli.output import columns, output_option, show_errors, write
from harness.errors import FileError, UsageError
from harness.experiments.calibration import run as calibration
from harness.experiments.calibration.run import CaseSelection
from harness.experiments.conformance import examine
from harness.launch import doctor as host
from harness.launch.images import catalog, pins
from harness.pricing import instances

log = logging.getLogger(__name__)


@click.command()
def systems() -> None:
    """List the systems; mark those whose weights are not pinned, or are substitutes.

    Exit code 2 if a system's file is wrong; all others are listed.
    """
    wrong: dict[str, FileError] = {}
    declared = catalog.systems(wrong=wrong).values()
    columns(("system", "engine", "what it is"), [(system.name, system.engine, system.summary) for system in declared])
    show_errors(wrong.values())
    sys.exit(FileError.exit_code if wrong else 0)


@click.command()
@click.argument("system")
@click.option(  # not from HARNESS_MODELS: whoever has that set may still mean the hub
    "--models",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Hash the files of this folder of models instead of asking the hub.",
)
@click.option("--newest", is_flag=True, help="Take the hub's newest commit, even if the file names a revision.")
@click.option("--write", "write_it", is_flag=True, help="Write the pins to the system's file instead of printing them.")
def pin(system: str, models: Path | None, newest: bool, write_it: bool) -> None:
    """Look up the revision and the sha256 of SYSTEM's files: on the model hub, or in the folder of --models."""
    declared = catalog.system(system)
    pinned = pins.look_up(declared, models, newest=newest)
    if not write_it:
        click.echo("\n".join(map(pins.as_toml, pinned)), nl=False)
        return
    path, text = pins.edited(declared, pinned)
    write(path, text)
    click.echo(f"{path}: {sum(len(asset.sha256) for asset in pinned)} files pinned")


@click.command()
def doctor() -> None:
    """Check whether this machine is fit for measurements: each line is ok, warn or fail, with the remedy."""
    findings = list(host.examine())
    for finding in findings:
        remedy = f"; {finding.remedy}" if finding.remedy else ""
        click.echo(f"{finding.level.value:<5} {finding.what}: {finding.fact}{remedy}")
    sys.exit(1 if any(finding.level is host.Level.FAIL for finding in findings) else 0)


@click.command()
@click.argument("system")
@click.option("--profile", default="cpu1-mem1", help="Hardware profile to check under.")
@platform_option("Check the image for this platform, emulated if it is not the Docker engine's.")
@launcher_option
@cache_option
@models_option
@launcher_choice
def conformance(system: str, profile: str, platform: str | None, choice: LauncherChoice) -> None:
    """Check SYSTEM against the container contract with a corpus of twenty documents."""
    declared, envelope = catalog.system(system), instances.hardware_profile(profile)
    failed = 0
    with choice.open(platform) as launcher:
        launcher.check()
        cannot = launcher.cannot(envelope)
        if cannot:
            raise UsageError(f"{cannot}; choose another --profile")
        launcher.sweep()  # first, because containers of dead runs may still write to their folders
        with filesystem.temporary_folder("conformance") as folder:
            for check in examine(launcher, declared, envelope, folder):
                failed += not check.ok
                detail = f": {check.detail}" if check.detail else ""
                click.echo(f"{'ok' if check.ok else 'FAIL':<5} {check.what}{detail}")
    sys.exit(1 if failed else 0)


@click.command()
@results_option
@click.option("--only", metavar="GLOB", help="Only cases whose name (or group) matches.")
@click.option("--repeats", type=click.IntRange(1, 1000), default=1, help="Run all cases that many times.")
@retry_option(1, "Measure a case again whose times are off, at most N times; the table says so.")
@click.option("--format", "form", type=click.Choice(["terminal", "md"]), default="terminal")
@output_option("Write the table to this file as well.")
@launcher_option
@cache_option
@launcher_choice
def calibrate(
    results: Path | str,
    only: str | None,
    repeats: int,
    retry_noisy: int,
    form: str,
    output: Path | None,
    choice: LauncherChoice,
) -> None:
    """Measure injected values, and show how far the reported ones are off.

    Takes about three minutes.  Exit code 1 if an error is larger than the documented tolerance.
    """
    started = time.monotonic()
    with writable(results, choice.cache) as location, choice.open() as launcher:
        options = replace(run_options(Path(), location.folder, None, True, choice.cache), shelf=location.shelf)
        lines = calibration.calibrate(options, CaseSelection(only, repeats, retry_noisy), launcher)
    remark = calibration.summary(lines, time.monotonic() - started)
    click.echo(calibration.render(lines, remark, form), nl=False)
    if output is not None:
        write(output, calibration.render(lines, remark, "md"))
    sys.exit(0 if all(line.ok for line in lines) else 1)
