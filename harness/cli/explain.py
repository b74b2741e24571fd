"""`harness explain`: the origin of a stored number."""

from __future__ import annotations

import click

from harness.analysis.axes import cell_of
from harness.analysis.comparison import called
from harness.analysis.table import Cause
from harness.cli.lines import say
from harness.cli.locations import mirrored
from harness.cli.options import carbon_options, results_option
from harness.cli.output import columns, show_paragraphs
from harness.cli.stored_results import StoredResults, stored_results
from harness.cli.traffic import TrafficOptions, traffic_options
from harness.commands import command
from harness.errors import UsageError, did_you_mean, quoted_name
from harness.pricing.bill import USUAL
from harness.report import explain as texts
from harness.results.schema import glob_of
from harness.untrusted import one_line

# The most rows that one command explains in full.
_MOST = 3


@click.command()
@mirrored("results")
@click.argument("what", required=False, metavar="[RESULT|COLUMN|FINDING]")
@results_option
@traffic_options
@carbon_options
@stored_results
def explain(what: str | None, stored: StoredResults, traffic: TrafficOptions) -> None:
    """Explain a number: its samples, its price, its monthly bill, why it is noisy, and what to do.

    RESULT is a glob over system/dataset/scenario/profile or one of these, a swept system, or the beginning of a job's
    key.  COLUMN is a name from the table or the CSV. FINDING is a reason for doubt, such as placement.  Without
    arguments, lists the stored results and their findings.  The bill is at 3 million queries a month, or at your
    traffic (as in `harness bill`).
    """
    at = traffic.read(USUAL)
    table = stored.priced(stored.read()).table
    if what is None:
        columns(("result", "findings"), [(one_line(called(row)), texts.doubts(row)) for row in table.rows])
        click.echo()
        say("harness explain NAME: one of these, or a column (latency, cost, ...)")
        return
    paragraphs = [*texts.column_paragraphs(what, table)]
    if what in {cause.value for cause in Cause}:
        paragraphs += texts.cause_paragraphs(Cause(what), table.rows)
    if paragraphs:
        show_paragraphs(paragraphs)
        return
    rows = [row for row in table.rows if texts.is_named(row, what)]
    if not rows:
        systems = dict.fromkeys(row.system for row in table.rows)
        hint = did_you_mean(what, (*systems, *texts.names(table))) or "; `harness explain` lists the results"
        raise UsageError(f"no result, column or finding {quoted_name(what)}{hint}")
    for row in rows[:_MOST]:
        say(one_line(called(row)))
        show_paragraphs(texts.row_paragraphs(row, at))
        click.echo()
    for row in rows[_MOST:]:
        say(command("explain", glob_of(cell_of(row))))
