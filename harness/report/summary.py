"""The answer of a table for people: few columns, one sentence on cost and quality, at most five lines below.

Columns that are the same in all rows are part of the heading.  Everything else is one flag away (``--wide``) and whole
in CSV and JSON.
"""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness import estimate
from harness.analysis import axes, causes, notes
from harness.analysis.axes import ComparisonGroup
from harness.analysis.table import Cause, Finding, Row, Table, Validity
from harness.driver.records import Outcome
from harness.errors import UnknownName, counted
from harness.report import row_figures
from harness.report.columns import Kind
from harness.report.currency import USD, Currency
from harness.report.document import (
    MISSING,
    MOST_LINES,
    Escape,
    Grid,
    Section,
    digits,
    few_lines,
    joined_by_and,
    left_out_records,
    number,
    stand_ins,
    system_name,
)
from harness.report.figures import FIRST, Figure, FirstScreen, Place
from harness.report.groups import rival_names
from harness.report.hardware import explain_marks, hardware, machine, priced_on, size
from harness.report.row_figures import BUILD, COST, LATENCY, doubt_mark
from harness.report.sentences import Compare, answers, reranking
from harness.report.writers import fits
from harness.results.schema import NULL_SYSTEMS, by_size

# Tones of a line, for a terminal that shows colours.
GOOD, DOUBTFUL, BAD = "good", "doubtful", "bad"
_DETAIL = 60
_PAPER = (
    "Latency: the mean over all timed queries, with its 95 % interval for other such queries in fresh processes. A cost"
    " follows from it, or from the throughput, and the machine's price per hour. Every other column and note: --wide"
)
_LEAST_QUERIES = (estimate.LATENCY_MIN_QUERIES, estimate.INTERVAL_MIN_QUERIES)

_FAILED = {
    Outcome.OOM: "out of memory at {memory}",
    Outcome.TIMEOUT: "timed out",
    Outcome.CRASH: "crashed",
    Outcome.BAD_OUTPUT: "bad output",
    Outcome.ENVELOPE_MISMATCH: "limits were not enforced",
    Outcome.NOT_APPLICABLE: "not applicable",
    Outcome.INTERRUPTED: "interrupted",
}
_IN_BUILD = "index build: "  # in the detail of a job whose index was never built
_ON_GPU = "CUDA"  # in the detail where a GPU's memory ran out, as PyTorch and cuBLAS name it


@dataclass(frozen=True)
class SummaryView:
    """Options of a summary.

    ``measures``: those shown, the first decides (empty: the table's first alone).  ``columns``: names as in
    :func:`all_columns` (empty: those that differ).  ``sort``: the column to sort by, smallest first but for measures
    and throughput.  ``currency``: what queries cost.  ``pointers``: lines that say where everything else is; ``rest``:
    where further notes are.
    """

    measures: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    sort: str = ""
    currency: Currency = USD
    pointers: tuple[str, ...] = ()
    rest: str = "--wide"


def summary_section(
    table: Table,
    compare: Compare,
    escape: Escape,
    view: SummaryView = SummaryView(),
    width: int | None = None,
) -> Section:
    """Return the answer: heading, grid or matrices, sentence, doubts and pointers.

    ``width``: of the terminal; columns that decide least are left out until the grid fits.

    Raises:
        UnknownName: the view names a measure or a column that does not exist.
    """
    if not table.rows:
        return Section(lead=("No stored results.",))
    measures = view.measures or table.measures[:1]
    columns = _chosen(table, measures, escape, view)
    rows = _sorted(table, measures, view)
    datasets = sorted({row.dataset for row in rows}, key=by_size)
    if len(datasets) > 1 and not view.columns:
        heading, grids = _matrices(rows, datasets, measures, escape, view.currency)
        shown = _short([column for column in columns if column.alias in (*measures, LATENCY, view.currency.column)])
        pointers = view.pointers
    else:
        chosen = bool(view.columns)
        heading, grids, shown = _grid(
            rows, columns, escape, lambda grid: chosen or fits(grid, width), view.currency, keep=chosen
        )
        pointers = _pointers(columns, shown, view)
    lead = ", ".join(part for part in (*heading, *_common(rows, table, escape, view.currency)) if part)
    first = measures[0] if measures else ""
    sentence_lines = (*answers(table, compare, first, escape, view.currency), *reranking(table, first, escape))
    sentence_lines += () if view.currency is USD else tuple(map(escape, notes.of_carbon(rows)))
    built = build_doubts(rows, escape) if BUILD in view.columns else []
    # Notes that begin with a measure say why it is missing.
    told = (*(f"{name}: " for name in table.measures), *notes.FOREMOST)
    first_lines = map(escape, (*left_out_records(table), *(note for note in table.notes if note.startswith(told))))
    lines = (*first_lines, *built, *doubts(rows, escape, shown))
    few = few_lines(lines, *pointers, most=MOST_LINES - len(sentence_lines), rest=view.rest)
    return Section(lead=(lead,), grids=grids, after=sentence_lines, notes=few)


def paper_section(table: Table, escape: Escape, fitting: Callable[[Grid], bool]) -> Section:
    """Return the one table that a paper prints: the first screen's columns, every measure, a caption and few notes.

    ``fitting``: tells whether a table fits the page; columns that decide least are left out until it does.
    """
    if not table.rows:
        return Section(lead=("No stored results.",))
    view = SummaryView(measures=table.measures)
    columns = _chosen(table, table.measures, escape, view)
    rows = _sorted(table, table.measures, view)
    heading, (grid,), shown = _grid(rows, columns, escape, fitting, view.currency)
    caption = ", ".join(part for part in (*heading, *_common(rows, table, escape, view.currency)) if part)
    lines = (escape(_PAPER), *map(escape, left_out_records(table)), *doubts(rows, escape, shown))
    return Section(grids=(replace(grid, caption=caption),), notes=few_lines(lines, rest=view.rest))


def _pointers(columns: Sequence[Figure], shown: Sequence[Figure], view: SummaryView) -> tuple[str, ...]:
    """Return the view's pointers; the first one names the columns that the terminal has no room for."""
    kept = {column.alias: column for column in shown}
    hidden = [column.short_header for column in columns if column.alias not in kept]
    if any(column.alias == LATENCY and column.screen != kept[LATENCY].screen for column in columns):
        hidden.append("the interval of the latency")
    if not hidden:
        return view.pointers
    first, *others = view.pointers or (view.rest,)
    return f"no room for {joined_by_and(hidden)}   {first}", *others


def all_columns(table: Table, measures: Sequence[str], escape: Escape) -> tuple[Figure, ...]:
    """Return every column that a summary may show, in its order; a measure's column has its name."""
    figures = row_figures.all_figures(table, measures)
    return (*_name_columns(escape), *(each for each in figures if Place.ON_REQUEST in each.places))


def _name_columns(escape: Escape) -> Iterator[Figure]:
    def text(
        name: str,
        cell: Callable[[Row], str],
        read: Callable[[Row], float | str | None],
        heading: Callable[[str], str] | None = str,
        **more: Any,
    ) -> Figure:
        screen = FirstScreen(more.get("label", name), cell, heading)
        meaning = f"{name} of the row, and the value to sort by"
        return Figure(name=name, meaning=meaning, read=read, kind=Kind.TEXT, screen=screen, places=FIRST, **more)

    def plain(name: str, heading: Callable[[str], str] = str) -> Figure:
        return text(name, lambda row: escape(getattr(row, name) or ""), lambda row: getattr(row, name) or "", heading)

    def size_of(row: Row) -> float:
        return row.gpus * 2.0**60 + row.cpus * 2.0**50 + row.memory_bytes

    def priced(row: Row) -> str | None:
        return None if row.usd_per_million.value is None else machine(row) or None

    yield plain("dataset")
    yield text("system", lambda row: system_name(row, escape), lambda row: row.system, None)
    yield text("hardware", lambda row: escape(hardware(row)), size_of, lambda cell: f"on {cell}")
    yield text(
        "machine",
        lambda row: escape(machine(row)),
        priced,
        lambda cell: cell and f"priced on {cell}",
        label="priced on",
        optional=True,
    )
    yield plain("scenario", lambda cell: "" if cell == escape("single_stream") else f"scenario {cell}")
    yield plain("suite", lambda _: "")
    yield plain("origin", lambda _: "")


def _is_text(column: Figure) -> bool:
    return column.kind is Kind.TEXT


def _chosen(table: Table, measures: Sequence[str], escape: Escape, view: SummaryView) -> tuple[Figure, ...]:
    columns = {column.alias: column for column in all_columns(table, measures, escape)}
    for name in (*view.columns, *([view.sort] if view.sort else [])):
        if name not in columns:
            raise UnknownName("column", name, tuple(columns), "harness report --format csv has all others")
    if view.columns:
        wanted = dict.fromkeys(("system", *view.columns))
        return tuple(columns[name] for name in wanted)
    # Types and prices say nothing of another currency.
    left_out = () if view.currency is USD else (COST, "machine", "token_price")
    return tuple(
        column
        for column in columns.values()
        if (Place.FIRST in column.places or column.alias == view.currency.column)
        and column.alias not in left_out
        and any(map(column.applies, table.rows))
        and not (column.optional and all(column.value(row) is None for row in table.rows))
    )


def _sorted(table: Table, measures: Sequence[str], view: SummaryView) -> tuple[Row, ...]:
    """Sort rows by dataset and hardware, or by the chosen column; rows without a value are last."""
    rows = table.rows
    by_name = {column.alias: column for column in all_columns(table, measures, str)}
    if not view.sort:
        names = ("dataset", "scenario", "hardware")
        return tuple(sorted(rows, key=lambda row: tuple(by_name[name].value(row) for name in names)))
    chosen = by_name[view.sort]
    known = [row for row in rows if chosen.value(row) is not None]
    known.sort(key=lambda row: chosen.value(row) or 0, reverse=chosen.higher)
    return (*known, *(row for row in rows if chosen.value(row) is None))


def _grid(
    rows: Sequence[Row],
    columns: Sequence[Figure],
    escape: Escape,
    fitting: Callable[[Grid], bool],
    currency: Currency,
    *,
    keep: bool = False,
) -> tuple[list[str], tuple[Grid, ...], Sequence[Figure]]:
    """Return the parts of the heading, one grid with a row for each row, and its columns."""
    for shown in _narrower(columns):
        heading, grid = _one_grid(rows, shown, escape, currency, keep=keep)
        if fitting(grid):
            break
    return heading, (grid,), shown


def _narrower(columns: Sequence[Figure]) -> Iterator[Sequence[Figure]]:
    """Yield the columns, then fewer and fewer of them, then without the interval of the latency."""
    for turn in range(1 + max((column.screen.dropped for column in columns), default=0)):
        left = [column for column in columns if not 0 < column.screen.dropped <= turn]
        yield left
    yield _short(left)


def _short(columns: Sequence[Figure]) -> Sequence[Figure]:
    """Return the columns with the latency without its interval."""
    screen = FirstScreen("latency ms", _mean_cell)
    return [replace(each, screen=screen) if each.alias == LATENCY else each for each in columns]


def _mean_cell(row: Row) -> str:
    return number(row.latency.mean_s.value, 1e3)


def _one_grid(
    rows: Sequence[Row], columns: Sequence[Figure], escape: Escape, currency: Currency, *, keep: bool
) -> tuple[list[str], Grid]:
    measured = [row for row in rows if row.outcome is Outcome.OK]
    heading, shown = [], []
    for column in columns:
        # A value is the same in all rows only if failed ones, which have none, do not count.
        values = {column.on_screen(row) for row in (rows if _is_text(column) else measured)}
        alone = len(values) == 1 and (len(rows) > 1 or _is_text(column))
        if alone and not keep and column.screen.heading is not None:
            heading.append(column.screen.heading(values.pop()))
        else:
            shown.append(column)
    keys = sum(map(_is_text, shown))
    shown.sort(key=_is_text, reverse=True)
    remarks = _remarks(rows, escape, currency if currency.column in {column.alias for column in columns} else None)
    cells = [(*_cells(row, shown, keys, escape), remark) for row, (remark, _) in zip(rows, remarks, strict=True)]
    grid = Grid(
        "",
        (*(column.short_header for column in shown), ""),
        (*(not _is_text(column) for column in shown), False),
        tuple(cells),
        keys,
        tuple(tone for _, tone in remarks),
    )
    return heading, grid


def _cells(row: Row, columns: Sequence[Figure], keys: int, escape: Escape) -> tuple[str, ...]:
    """Return a row's cells; a failed row says why in its first cell with a figure, and the others are empty."""
    if row.outcome is Outcome.OK:
        return tuple(column.on_screen(row) for column in columns)
    names = tuple(column.on_screen(row) for column in columns[:keys])
    figures = len(columns) - keys
    return (*names, escape(failure(row)), *[""] * (figures - 1)) if figures else names


def failure(row: Row) -> str:
    """Return why a row has no figures, in a few words."""
    if row.outcome is Outcome.OOM and _IN_BUILD in (row.detail or ""):
        if _ON_GPU in (row.detail or ""):
            return "index build out of GPU memory: lower batch_size, or take a larger GPU"
        return "index build out of memory: raise build_profile"
    if row.outcome is Outcome.OOM and _ON_GPU in (row.detail or ""):
        return "out of GPU memory: end other processes there, or take a larger GPU"
    text = _FAILED[row.outcome].format(memory=size(row.memory_limit_bytes))
    if row.outcome is Outcome.OOM or not row.detail:
        return text
    first = str(row.detail)
    cut = first if len(first) <= _DETAIL else first[:_DETAIL].rsplit(" ", 1)[0] + " ..."
    return f"{text}: {cut}"


def tone(row: Row, *, good: bool) -> str:
    """Return the tone of a row's line; a row without doubt may be good."""
    if row.outcome is not Outcome.OK or row.validity is Validity.INVALID:
        return BAD
    return DOUBTFUL if row.validity.doubt else GOOD if good else ""


def _remarks(rows: Sequence[Row], escape: Escape, currency: Currency | None) -> list[tuple[str, str]]:
    """Return each row's remark and tone: with a currency, cheapest of the rows that it may be compared with; doubts.

    Where a dataset has several groups of such rows, the remark names the group: ``cheapest (process)``.
    """
    groups: dict[ComparisonGroup, list[Row]] = defaultdict(list)
    for row in rows:
        if currency is not None and currency.amount(row) is not None:
            groups[axes.comparison_group(row)].append(row)
    best: set[int] = set()
    for held in groups.values():
        if currency is not None and len(held) > 1:
            best.update(map(id, currency.least([row for row in held if row.validity is not Validity.INVALID])))
    rivals, remarks = rival_names(rows), []
    for row in rows:
        group, good = rivals.get(axes.comparison_group(row)), id(row) in best
        word = f"{currency.word} ({group.text})" if currency and group else currency.word if currency else ""
        words = ", ".join(filter(None, (escape(word) if good else "", row.validity.doubt)))
        remarks.append((words, tone(row, good=good)))
    return remarks


def _matrices(
    rows: Sequence[Row], datasets: Sequence[str], measures: Sequence[str], escape: Escape, currency: Currency
) -> tuple[list[str], tuple[Grid, ...]]:
    """Return a matrix of systems and datasets for each measure, the mean latency and the cost.

    On several hardware profiles each cell shows the profile where the system costs least.  Rows that may not be
    compared have lines of their own, which name their suite or launcher.
    """
    several = len({hardware(row) for row in rows}) > 1
    scenarios = len({row.scenario for row in rows}) > 1
    rivals = rival_names(rows)
    apart = "suite" if all(name.suites and not name.facts for name in rivals.values()) else "rows"
    held: dict[tuple[str, ...], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        rival = rivals.get(axes.comparison_group(row))
        more = [*([row.scenario] if scenarios else []), *([rival.text if rival else row.suite] if rivals else [])]
        held[system_name(row, escape), *map(escape, more)][row.dataset].append(row)
    order = sorted(held, key=lambda key: -_mean_value(held[key], measures, currency))

    def grid(title: str, cell: Callable[[Row], str], *, smallest: bool = False) -> Grid:
        names = ["system", *(["scenario"] if scenarios else []), *([apart] if rivals else [])]
        last = ["runs in"] if smallest and several else []
        cells = []
        for key in order:
            of = held[key]
            figures = [cell(_cheapest(of[dataset], currency)) if dataset in of else MISSING for dataset in datasets]
            mine = [row for rows_of in of.values() for row in rows_of]
            cells.append((*key, *figures, *([escape(runs_in(mine))] if last else [])))
        numeric = (*[False] * len(names), *[True] * len(datasets), *[False] * len(last))
        return Grid(title, (*names, *datasets, *last), numeric, tuple(cells), len(names))

    def measured(name: str, row: Row) -> str:
        return _or_outcome(row, digits(row.measured(name), ".3f"))

    cheapest = ", on the hardware where each system costs least" if several else ""
    grids = [
        grid(name, functools.partial(measured, name), smallest=number == 0) for number, name in enumerate(measures)
    ]
    grids.append(
        grid(f"mean latency, ms{cheapest}", lambda row: _or_outcome(row, _mean_cell(row) + doubt_mark(row.validity)))
    )
    if any(currency.amount(row) is not None for row in rows):
        grids.append(grid(f"{currency.header}{cheapest}", lambda row: _or_outcome(row, currency.cell(row))))
    heading = [f"{len(datasets)} datasets", *([] if several else [f"on {escape(hardware(rows[0]))}"])]
    doubted = [validity for validity in Validity if any(row.validity is validity for row in rows)]
    marks = [f"{mark.strip()}: {validity.value}" for validity in doubted if (mark := doubt_mark(validity))]
    return [*heading, *([escape(priced_on(rows))] if currency is USD else []), *map(escape, marks)], tuple(grids)


def _cheapest(rows: Sequence[Row], currency: Currency) -> Row:
    """Return the valid row that costs least, of rows without a cost the fastest, of failed rows the first."""

    def order(row: Row) -> tuple[bool, bool, bool, float]:
        failed, invalid = row.outcome is not Outcome.OK, row.validity is Validity.INVALID
        return failed, invalid, currency.amount(row) is None, currency.order(row)

    return min(rows, key=order)


def _mean_value(by_dataset: Mapping[str, Sequence[Row]], measures: Sequence[str], currency: Currency) -> float:
    """Return a system's mean of the first measure over its datasets; missing ones are last."""
    values = [_cheapest(rows, currency).measured(measures[0]) for rows in by_dataset.values()] if measures else []
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else -math.inf


def _or_outcome(row: Row, cell: str) -> str:
    return cell if row.outcome is Outcome.OK else row.outcome.value


def runs_in(rows: Iterable[Row]) -> str:
    """Return the smallest hardware on which all of a system's rows pass; missing where none does."""
    by_hardware: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_hardware[hardware(row)].append(row)
    passed = [held[0] for held in by_hardware.values() if all(row.outcome is Outcome.OK for row in held)]
    smallest = min(passed, key=lambda row: (row.memory_limit_bytes, row.cpus, row.gpus), default=None)
    return MISSING if smallest is None else hardware(smallest)


def _common(rows: Sequence[Row], table: Table, escape: Escape, currency: Currency) -> list[str]:
    """Return the parts of the heading on queries, machine and prices."""
    measured = [row for row in rows if row.outcome is Outcome.OK]
    sizes = {(row.queries, row.trials) for row in measured if row.queries is not None}
    judged = {row.judged.queries if row.judged.unjudged else None for row in measured}
    parts = []
    if len(sizes) == 1:
        queries, trials = sizes.pop()
        count = judged.pop() if len(judged) == 1 else None
        timed = "" if count is None else " timed"
        parts.append(f"{counted(queries, 'query')}{timed} x {counted(trials or 0, 'trial')}")
        parts += [] if count is None else [f"{count:,} judged"]
    machines = {(row.machine.cpu_model, row.machine.host_cpus) for row in measured if row.machine is not None}
    if len(machines) == 1:
        model, cpus = machines.pop()
        parts.append(f"{escape(model)} with {counted(cpus, 'CPU')}")
    elif machines:
        parts.append(f"{len(machines)} machines")
    if currency is not USD:
        return parts
    if table.price_date:
        term = "" if table.price_term == "on-demand" else f" {table.price_term}"
        parts.append(f"prices {table.price_provider} {table.price_region}{term} {table.price_date}")
    return [*parts, explain_marks(rows, escape)]


def doubts(rows: Sequence[Row], escape: Escape, shown: Sequence[Figure] | None = None) -> list[str]:
    """Return what must not be compared, judgements, data, dashes, stand-ins, and one line for each remedy of a doubt.

    ``shown``: the figures whose dashes need a reason; by default latency, measures and token price.
    """
    first = [*_unfinished(rows), *notes.not_comparable(rows), *notes.of_judgements(rows), *notes.of_data(rows)]
    last = [*notes.of_first_stages(rows), *notes.of_recordings(rows)]
    (first if all(row.isolation.attached for row in rows) else last)[:0] = _without_cost(rows)
    remedies = _by_remedy(rows, lambda row: row.findings, lambda cause: causes.TEXTS[cause].advice)
    lines = (*first, *_dashes(rows, shown), *notes.of_null(rows), *stand_ins(rows), *last, *remedies)
    return [*map(escape, lines)]


def _unfinished(rows: Sequence[Row]) -> Iterator[str]:
    """Yield how many jobs of which rows a newer measurement has, if it is not whole."""
    partly = [row for row in rows if row.measured_again]
    if partly:
        jobs = counted(sum(row.jobs for row in partly), "noisy job")
        yield (
            f"{sum(row.measured_again for row in partly)} of {jobs} were measured again"
            f" ({_named(partly, [row for row in rows if row.outcome is Outcome.OK])}); the earlier measurement is shown"
            " until all are: run the same command, with --retry-noisy, to go on"
        )


def build_doubts(rows: Sequence[Row], escape: Escape) -> list[str]:
    """Return where index builds do not compare, and the causes of doubt in them."""
    again = "Each was measured once: build again with --fresh-index."
    remedies = _by_remedy(rows, lambda row: row.index.findings, lambda _: again, " builds")
    return [*map(escape, (*notes.of_builds(rows), *remedies))]


def _by_remedy(
    rows: Sequence[Row], of: Callable[[Row], Sequence[Finding]], remedy_of: Callable[[Cause], str], what: str = ""
) -> Iterator[str]:
    """Yield validity, rows, cause and remedy of the doubts in measured rows, the worst first.

    A row is named once, with its worst doubt: checks of the machine come first, and explain what follows.  Rows with
    the same remedy share a line, which names their first cause and counts the others.
    """
    measured = [row for row in rows if row.outcome is Outcome.OK]
    held: dict[tuple[Validity, str], list[Row]] = defaultdict(list)
    found: dict[tuple[Validity, str], dict[Cause, None]] = defaultdict(dict)
    for row in measured:
        doubted = [each for each in of(row) if each.validity.doubt]
        doubted.sort(key=lambda each: each.validity is not Validity.INVALID)
        if doubted:
            group = doubted[0].validity, remedy_of(doubted[0].cause)
            held[group].append(row)
            found[group] |= dict.fromkeys(each.cause for each in doubted)
    for group in sorted(held, key=lambda group: (group[0] is not Validity.INVALID, -len(held[group]))):
        first, *others = found[group]
        why = causes.TEXTS[first].short + (f", and {counted(len(others), 'more cause')}" if others else "")
        yield f"{group[0].value}{what}: {_named(held[group], measured)} ({why}). {group[1]}"


def _dashes(rows: Sequence[Row], shown: Sequence[Figure] | None) -> Iterator[str]:
    """Yield why measured rows have dashes, and what would give them numbers: one line for each remedy."""
    measured = [row for row in rows if row.outcome is Outcome.OK]
    names: dict[str, dict[str, None]] = defaultdict(dict)
    lacking: dict[str, dict[int, Row]] = defaultdict(dict)  # by id: comparing rows takes seconds
    for row in measured:
        for name, reason in _missing(row, shown):
            names[reason].setdefault(name)
            lacking[reason][id(row)] = row
    lines: dict[str, list[str]] = defaultdict(list)
    for reason, held in lacking.items():
        who = "" if len(held) == len(measured) else f" of {_named([*held.values()], measured)}"
        remedy = _filled_by(next(iter(held.values())), reason)
        lines[remedy or reason].append(f"no {joined_by_and([*names[reason]])}{who}: {reason}")
    # A damaged file or a missing judgement comes before a sample that is small.
    for remedy, parts in sorted(lines.items(), key=lambda item: item[0] not in lacking):
        yield "; ".join(parts) + ("" if remedy in lacking else f". {remedy[0].upper()}{remedy[1:]}.")


def _missing(row: Row, shown: Sequence[Figure] | None) -> Iterator[tuple[str, str]]:
    """Yield the figures that a row lacks, and the reasons."""
    if shown is None:
        figures = {"latency": row.latency.mean_s, **row.measures, "token price": row.cost.tokens}
    else:
        figures = {each.alias.replace("_", " "): each.estimate(row) for each in shown if not _is_text(each)}
    for name, item in figures.items():
        reason = item.reason or (row.price_note if name == COST else None)
        if item.value is None and reason:
            yield name, reason
    mean = row.latency.mean_s
    has_interval = any(each.alias == LATENCY and each.screen.cell is None for each in shown or ())
    if has_interval and mean.value is not None and mean.low is None and mean.high is None:
        yield "interval of the latency", mean.reason or "not known"


def _filled_by(row: Row, reason: str) -> str:
    """Return what would remove the reason of a missing number; empty: not known."""
    if reason in map(estimate.too_few_processes, range(estimate.MIN_PROCESSES)):
        return causes.MORE_PROCESSES
    least = {estimate.interval_of_too_few(floor, row.queries or 0) for floor in _LEAST_QUERIES}
    few = least | {estimate.percentile_of_too_few(name, row.queries or 0) for name in estimate.MIN_QUERIES}
    return causes.MORE_QUERIES if reason in few else ""


def _without_cost(rows: Sequence[Row]) -> Iterator[str]:
    """Yield why no row has a cost, with the most frequent reason."""
    measured = [row for row in rows if row.outcome is Outcome.OK]
    if measured and all(row.usd_per_million.value is None for row in measured):
        ((reason, _),) = Counter(row.price_note or row.usd_per_million.reason for row in measured).most_common(1)
        if not any(reason == row.latency.mean_s.reason for row in measured):  # said of the latency already
            yield f"no cost: {reason}"


def _named(doubtful: Sequence[Row], rows: Sequence[Row]) -> str:
    """Name some rows: by system, by hardware, or by their number."""
    if len(doubtful) == len(rows) > 1:
        return "all rows"
    several = len({hardware(row) for row in rows}) > 1
    by_hardware: dict[str, list[str]] = defaultdict(list)
    for row in doubtful:
        by_hardware[hardware(row)].append(row.system)
    if len(doubtful) > 4:
        return f"{len(doubtful)} of {len(rows)} rows"
    if not several:
        return ", ".join(dict.fromkeys(row.system for row in doubtful))
    parts = [f"{' and '.join(dict.fromkeys(systems))} on {name}" for name, systems in by_hardware.items()]
    return "; ".join(parts)


def nothing_measured(rows: Sequence[Row]) -> str | None:
    """Return why no system has a figure, if so; harness's own overhead does not answer the question."""
    systems = [row for row in rows if row.system not in NULL_SYSTEMS] or rows
    if any(row.outcome is Outcome.OK for row in systems):
        return None
    ends = Counter(row.outcome.value.replace("_", " ") for row in systems)
    counts = ", ".join(f"{count} {end}" for end, count in ends.items())
    why = f": {systems[0].detail}" if len({row.detail for row in systems}) == 1 and systems[0].detail else ""
    return f"nothing could be measured: {counts}{why}; choose other hardware, or fix the systems"
