"""`harness recall`: how many of the exact search's first documents approximate systems find."""

from __future__ import annotations

import click

from harness.analysis import published
from harness.analysis import recall as overlaps
from harness.cli.locations import mirrored
from harness.cli.options import cache_option, results_argument
from harness.cli.output import FORMATS, Destination, destination_options
from harness.cli.stored_results import StoredResults, stored_measures_option, stored_results
from harness.errors import UsageError
from harness.report.recall import answer, recall_document
from harness.results import reader, suite_record


@click.command()
@mirrored("results")
@results_argument
@click.option(
    "--of",
    "exact",
    metavar="EXACT",
    help="Compare all other systems with this one.  [default: with the system that [exact] of the suite names]",
)
@stored_measures_option("As ir_measures writes them; the change of the first is shown.")
@destination_options(*FORMATS, wide=True)
@cache_option
@stored_results
def recall(stored: StoredResults, exact: str | None, destination: Destination) -> None:
    """Show the share of the exact top 10 and top 100 that approximate systems find.  Runs nothing.

    Separates the loss of the search from the quality of the model.  RESULTS (a folder; default: results) hold both
    ranked lists, with the same queries, documents, model and k.  Needs no judgements.
    """
    if published.is_in(stored.results):
        raise UsageError(f"{stored.results}: a paper's figures have no ranked lists; name measured results")
    read, declared = stored.read(), suite_record.read_pairs(stored.results, "exact")
    found = overlaps.compare_with_exact(reader.read_jobs(stored.results), declared, exact, read.table, read.per_query)
    if destination.form == "md" and not destination.wide:
        destination.show_answer(lambda escape, width: (answer(found, escape, width),))
    else:
        destination.show_report(recall_document(found))
