"""`harness embed`: vectors of texts, made once."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from harness import datasets
from harness.analysis.stored_runs import read_stored_runs
from harness.cli.launchers import chosen_launcher, launcher_option
from harness.cli.locations import absolute, readable
from harness.cli.options import cache_option, models_option, only_option, results_option
from harness.errors import UsageError
from harness.evaluation import embeddings, judged_runs
from harness.evaluation.embeddings import Embeddings
from harness.jobs import encode
from harness.jobs.encode import TextSet
from harness.launch.images import catalog
from harness.pricing import instances
from harness.untrusted import one_line


@click.command()
@click.argument("system")
@click.argument("dataset", required=False)
@click.option(
    "--role",
    type=click.Choice(["document", "query"]),
    help="Role of the texts.  [default: document; with --texts: query]",
)
@click.option(
    "--texts",
    type=click.Path(path_type=Path),
    help="Encode these queries (JSON lines with _id and text, or id<TAB>text) instead of DATASET's.",
)
@click.option("--all", "everything", is_flag=True, help="All documents, not only those that stored runs need.")
@click.option(
    "--depth",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Hits of each query of the stored runs, and as many unjudged ones.",
)
@click.option(
    "--profile", help="Hardware profile to encode in.  [default: as index builds: all CPUs, half of the memory]"
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write the vectors to this file.  [default: RESULTS/embeddings/...]",
)
@results_option
@only_option
@launcher_option
@cache_option
@models_option
def embed(
    system: str,
    dataset: str | None,
    role: str | None,
    texts: Path | None,
    everything: bool,
    depth: int,
    profile: str | None,
    output: Path | None,
    results: Path | str,
    only: str | None,
    launcher: str,
    cache: Path,
    models: Path | None,
) -> None:
    """Encode texts with SYSTEM, a dense one with an exact index, and store the vectors in a file.

    Of DATASET's documents those are kept that the stored runs retrieved, and all that are judged; asked again after
    other runs, it adds what is missing.  The encoder runs in a container as for an index build, and not at all where
    that index is in the cache.  With --role query: DATASET's queries, or those of --texts.
    """
    declared, folder = catalog.system(system), absolute(cache)
    encode.check_exact_index(declared)
    if isinstance(results, str) and output is None:
        raise UsageError(f"{results}: vectors are kept on this disk; name a file with -o")
    envelope = instances.hardware_profile(profile) if profile else None
    role = _role(role, dataset, texts)
    selected = _texts(dataset, texts, role, (results, only, None if everything else depth), folder)

    def path_of(made: Embeddings) -> Path:
        return output or embeddings.embeddings_path(Path(results), made)

    with closing(chosen_launcher(launcher, folder, models)) as chosen:
        made = encode.encode(declared, selected, path_of, chosen, folder, envelope)
    size = f"{len(made.content.ids):,} {role} vectors of {made.content.vectors.shape[1]} dimensions"
    click.echo(one_line(f"{made.path}: {size} by {system}, {made.added:,} of them new"))


def _role(role: str | None, dataset: str | None, texts: Path | None) -> str:
    if (dataset is None) == (texts is None):
        raise UsageError("name a DATASET or a file with --texts, one of the two")
    return role or ("document" if texts is None else "query")


def _texts(
    dataset: str | None, texts: Path | None, role: str, runs: tuple[Path | str, str | None, int | None], cache: Path
) -> TextSet:
    """Return the texts to encode: of documents those that the runs retrieved, or all without a depth."""
    if texts is not None:
        return encode.TextSet(texts.name, encode.texts_of(judged_runs.read_queries(texts), cache), role, None)
    assert dataset is not None
    loaded = datasets.load(datasets.find(dataset, Path.cwd()), cache)
    if role == encode.QUERY:
        queries = {query.query_id: query.text for query in loaded.queries}
        name = f"the queries of {loaded.name}"
        return encode.TextSet(name, encode.texts_of(queries, cache), role, None)
    results, only, depth = runs
    if depth is None:
        return encode.TextSet(loaded.name, loaded.corpus, role, None)
    folder = readable(results, cache)
    assert folder is not None
    ids = encode.needed(read_stored_runs(folder, only), depth, loaded.corpus, loaded.name)
    return encode.TextSet(loaded.name, loaded.corpus, role, ids)
