"""`harness embed`: vectors of texts, computed once."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from harness import config
from harness.analysis.stored_runs import read_stored_runs
from harness.cli.launchers import LauncherChoice, launcher_options
from harness.cli.lines import say
from harness.cli.locations import readable
from harness.cli.options import PATH, only_option, record_options, results_option
from harness.cli.output import output_option
from harness.errors import UsageError
from harness.evaluation import embeddings
from harness.jobs import encode
from harness.jobs.encode import TextSelection
from harness.jobs.pinning import pin_alone
from harness.launch.images import catalog
from harness.pricing import instances
from harness.untrusted import one_line


@click.command()
@click.argument("system")
@click.argument("dataset", required=False)
@click.option("--role", type=click.Choice(["document", "query"]), help="Role.  [default: document; --texts: query]")
@click.option("--texts", type=PATH, help="Encode these queries (JSON lines, or id<TAB>text) instead of DATASET's.")
@click.option("--all", "everything", is_flag=True, help="All documents, not only those that stored runs need.")
@click.option("--depth", type=click.IntRange(1), default=10, help="Hits of each stored query, and as many unjudged.")
@click.option("--profile", help="Hardware profile.  [default: as index builds: all CPUs, half of the memory]")
@output_option("Write the vectors to this file.  [default: RESULTS/embeddings/...]")
@results_option
@only_option
@launcher_options
@record_options("selection", TextSelection)
def embed(
    system: str,
    selection: TextSelection,
    results: Path | str,
    only: str | None,
    profile: str | None,
    output: Path | None,
    choice: LauncherChoice,
) -> None:
    """Encode texts with SYSTEM, a dense one with an exact index, and store the vectors in a file.

    Keeps the vectors of DATASET's documents that stored runs retrieved, and of all judged ones; a later call adds
    missing vectors.  The encoder runs in a container as for an index build; if that index is cached, it does not run.
    With --role query: the queries of DATASET or of --texts.
    """
    declared, cache = catalog.system(system), config.absolute_folder(choice.cache)
    encode.check_exact_index(declared)
    if isinstance(results, str) and output is None:
        raise UsageError(f"{results}: vectors are kept on this disk; name a file with -o")
    envelope = instances.hardware_profile(profile) if profile else None
    into = (lambda _: output) if output else partial(embeddings.embeddings_path, Path(results))
    texts = selection.read(cache, lambda: read_stored_runs(readable(results, cache), only))

    with choice.open() as launcher:
        declared = pin_alone(declared, launcher, None if isinstance(results, str) else results)
        made = encode.encode(declared, texts, into, launcher, cache, envelope)
    size = f"{len(made.content.ids):,} {texts.role} vectors of {made.content.vectors.shape[1]} dimensions"
    say(one_line(f"{made.path}: {size} by {system}, {made.added:,} of them new"))
