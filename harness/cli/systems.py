"""`harness systems`, `pin`, `images`, `doctor`, `conformance`, `calibrate`: systems, their images, this machine."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

import click

from harness import config, filesystem
from harness.cli.launchers import (
    LauncherChoice,
    builder_option,
    launcher_choice,
    launcher_option,
    launcher_options,
    run_options,
    start_builder,
    usable,
)
from harness.cli.lines import say
from harness.cli.locations import writable
from harness.cli.options import (
    FOLDER,
    cache_option,
    check_needs,
    models_option,
    platform_option,
    results_option,
    retry_option,
)
from harness.cli.output import FORMATS, Destination, columns, destination_options, show_errors, show_paragraphs, write
from harness.commands import command, quoted
from harness.errors import FileError, HarnessError, ImageError, UsageError
from harness.experiments import null_row
from harness.experiments.calibration import run as calibration
from harness.experiments.conformance import examine
from harness.jobs.pinning import pin_alone
from harness.launch import connection, launchers
from harness.launch import doctor as host
from harness.launch.checks import Check, Level
from harness.launch.connection import engine_errors
from harness.launch.docker import DockerLauncher
from harness.launch.images import catalog, driver_code, pins, side_by_side
from harness.launch.images.builder import Image, ImageBuilder
from harness.launch.images.engine_build import BuildLimits
from harness.launch.images.export import FORMS, export
from harness.launch.images.systems import System
from harness.pricing import instances
from harness.progress import Progress
from harness.report.checks import checks_document
from harness.report.document import ReportDocument
from harness.report.systems import system_paragraphs, systems_document, systems_section


@click.command()
@click.argument("system", required=False)
@destination_options(*FORMATS)
def systems(system: str | None, destination: Destination) -> None:
    """List the systems, or show SYSTEM: parameters, weights, licences, where it runs.

    The list marks substitutes and systems that a run pins at first use; csv and json are complete.  Exit code 2 if a
    system's file is invalid; the others are listed.
    """
    wrong: dict[str, FileError] = {}
    declared = [*catalog.systems(wrong=wrong).values()] if system is None else [catalog.system(system)]
    if system is not None and destination.form == "md":
        show_paragraphs(system_paragraphs(declared[0]))
    else:
        destination.show_report(
            systems_document(declared), lambda escape, width: (systems_section(declared, escape, width),)
        )
    show_errors(wrong.values())
    sys.exit(FileError.exit_code if wrong else 0)


@click.command()
@click.argument("system")
@click.option(  # HARNESS_MODELS does not count: a user who set it may still mean the hub
    "--models",
    type=FOLDER,
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
    say(f"{path}: {sum(len(asset.sha256) for asset in pinned)} files pinned")


@click.command()
@click.option("--quick", is_flag=True, help="Only check: run no job, and list no launchers.")
@launcher_option
@destination_options(*FORMATS, wide=True)
def doctor(quick: bool, launcher: str, destination: Destination) -> None:
    """Check whether this machine is fit for measurements, and how far its figures can be trusted.

    Failures and warnings come first, with remedies, then the launchers that work here.  Then harness measures the null
    system for some seconds, by --launcher or else by process: what harness adds to a query, how steady the machine is,
    and which differences the machine itself may cause.  Results are not kept, and no service is asked.

    Exit code 1 if a check fails.
    """
    checks = list(host.examine(launchers.load(launcher)))
    if quick:
        _show_checks(checks, destination)
    listed = list(usable())
    works = {check.what for check in listed if check.level is not Level.FAIL}
    measured, failed = null_row.measure([name for name in dict.fromkeys((launcher, "process")) if name in works])
    checks += failed
    _show_checks(checks, destination, null_row.doctor_document(checks, listed, measured))


def _show_checks(
    checks: Sequence[Check], destination: Destination, document: ReportDocument | None = None, *, then: str = ""
) -> NoReturn:
    """Show checks, in a document of more than them if given, and what to do then; exit with code 1 if one failed."""
    destination.show_report(document or checks_document(checks, then=then))
    sys.exit(1 if _failed(checks) else 0)


def _failed(checks: Sequence[Check]) -> bool:
    return any(check.level is Level.FAIL for check in checks)


@click.command()
@click.argument("system")
@click.option("--profile", default="cpu1-mem1", help="Hardware profile to check under.")
@platform_option("Check the image for this platform, emulated if it is not the Docker engine's.")
@launcher_options
@destination_options(*FORMATS, wide=True)
def conformance(
    system: str, profile: str, platform: str | None, destination: Destination, choice: LauncherChoice
) -> None:
    """Check SYSTEM against the container contract with a corpus of 28 documents.

    Exit code 1 if a check fails.
    """
    declared, envelope = catalog.system(system), instances.hardware_profile(profile)
    with choice.open(platform=platform) as launcher:
        launcher.check()
        cannot = launcher.cannot(envelope)
        if cannot:
            raise UsageError(f"{cannot}; choose another --profile")
        if reason := launcher.cannot_run(declared):
            raise UsageError(f"{system}: {reason}; use --launcher docker")
        declared = pin_alone(declared, launcher)
        launcher.sweep()  # first remove containers of dead runs, which may still write to their folders
        with filesystem.temporary_folder("conformance") as folder:
            checks = list(examine(launcher, declared, envelope, folder))
    if _failed(checks):
        then = f"next: correct what failed, then check again: {command('conformance', system)}"
    else:
        finds = f"{quoted('viable', system)} finds the smallest memory that works"
        then = f"next: {finds}; a suite that names the system measures it beside others: harness run SUITE"
    _show_checks(checks, destination, then=then)


@click.command()
@results_option
@click.option("--only", metavar="GLOB,...", help="Only cases whose name (or group) matches.")
@retry_option(1, "Measure a case again whose times are off, at most N times; the table says so.")
@destination_options(*FORMATS, wide=True)
@launcher_option
@cache_option
@launcher_choice
def calibrate(
    results: Path | str, only: str | None, retry_noisy: int, destination: Destination, choice: LauncherChoice
) -> None:
    """Measure injected values, and show the reported ones that are off; all with --wide.

    Takes about three minutes.  Exit code 1 if an error is larger than the documented tolerance.
    """
    started = time.monotonic()
    with writable(results, choice.cache) as location, choice.open() as launcher:
        options = replace(run_options(Path(), location.folder, None, True, choice.cache), publisher=location.publisher)
        verdicts = calibration.calibrate(options, launcher, only, retry_noisy)
    destination.show_report(calibration.calibration_document(verdicts, time.monotonic() - started))
    sys.exit(0 if all(verdict.ok for verdict in verdicts) else 1)


@click.command()
@click.argument("systems", nargs=-1)
@click.option("--engine", "engines", multiple=True, metavar="NAME", help="An engine's image too, without weights.")
@click.option("--gpus", is_flag=True, help="Images for hardware profiles with GPUs, of engines that have them.")
@click.option(
    "--export",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help=f"Write each image as a file of DIR, and {filesystem.CHECKSUMS} for `sha256sum -c`.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMS)),
    default="oci",
    help=f"Of --export. {' '.join(f'{name}: for {readers}.' for name, readers in FORMS.items())}",
)
@builder_option
@platform_option("Images for this platform (arm64: Graviton), emulated if it is not the Docker engine's.")
@cache_option
@models_option
def images(
    systems: tuple[str, ...],
    engines: tuple[str, ...],
    gpus: bool,
    folder: Path | None,
    form: str,
    builder: str,
    platform: str | None,
    cache: Path,
    models: Path | None,
) -> None:
    """Build the images of SYSTEMS (default: each engine's, without weights), and print their sizes.

    `harness run` builds missing images itself; this command builds them in advance.  With --export it writes them as
    files for machines without an engine or a network.  Exit code 1 if a build fails.
    """
    check_needs(form="folder")
    start_builder(builder)
    wrong: dict[str, FileError] = {}
    named = bool(systems or engines)
    declared, errors = _pinned(systems, DockerLauncher(cache, models))
    chosen: list[tuple[System, bool]] = []
    if declared or engines or not named:
        chosen = catalog.images_to_build(declared, engines, 1 if gpus else 0, wrong)
    errors += () if named else wrong.values()
    with engine_errors():
        client = connection.connect(120)
    rows: list[tuple[str, ...]] = []
    cache = config.absolute_folder(cache)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)

    def make(
        system: System, whole_engine: bool, stopped: threading.Event, progress: Progress
    ) -> tuple[Image, float, str]:
        limits = BuildLimits(stopped=stopped)
        # A SIF image needs the present driver, which can read the limits of an allocation.
        alike = driver_code.is_current if folder and form == "sif" else driver_code.measures_alike
        builder = ImageBuilder(client, cache, models, platform, limits, progress, alike)
        started = time.monotonic()
        try:
            image = builder.ensure_engine(system) if whole_engine else builder.ensure(system)
            file = str(export(client, cache, image, folder.absolute(), form)) if folder else ""
        except FileError as error:  # the others are built
            raise ImageError(str(error)) from error
        return image, time.monotonic() - started, file

    names = [f"the engine {system.engine_image}" if whole else system.image for system, whole in chosen]
    makers = {name: partial(make, *each) for name, each in zip(names, chosen, strict=True)}
    with closing(client):
        for name, made in side_by_side.make(makers):
            if isinstance(made, ImageError):
                errors.append(made)
                continue
            image, took_s, file = made
            size, digest = f"{image.size_bytes / 1e6:,.0f} MB", image.digest.removeprefix("sha256:")[:12]
            row = (name, image.platform, size, f"{took_s:.1f} s", digest, image.reference)
            rows.append((*row, file) if folder else row)
    rows.sort(key=lambda row: names.index(row[0]))
    if folder is not None:
        filesystem.write_checksums(folder)
    columns(("image of", "platform", "size", "took", "digest", "tag", *(("file",) if folder else ())), rows)
    show_errors(errors)
    sys.exit(1 if errors else 0)


def _pinned(systems: tuple[str, ...], launcher: DockerLauncher) -> tuple[list[System], list[HarnessError]]:
    """Return the pinned systems, and an error for each system that cannot be pinned."""
    pinned: list[System] = []
    errors: list[HarnessError] = []
    for system in catalog.named(systems).values():
        try:
            pinned.append(pin_alone(system, launcher))
        except ImageError as error:
            errors.append(ImageError(f"{system.name}: {error}"))
    return pinned, errors
