"""Show published tables of measures: systems by datasets first, with ``--wide`` every table and finding."""

from __future__ import annotations

from collections.abc import Iterator

from harness.analysis.published_measures import SYSTEM, MeasuresPaper, MeasureTable, PublishedMeasures
from harness.analysis.table import Table
from harness.report.document import MISSING, Escape, Grid, ReportDocument, Section
from harness.report.main_table import table_document


def measures_document(paper: PublishedMeasures, table: Table) -> ReportDocument:
    """Return the document of a paper's measures; CSV and JSON have the rows of its table, one for each measure."""
    rows = table_document(table)
    return ReportDocument(
        sections=lambda escape: _sections(paper, escape),
        lines=rows.lines,
        content=rows.content,
        answer=lambda escape: (first_screen(paper, escape),),
    )


def citation_lines(about: MeasuresPaper) -> tuple[str, str]:
    """Return the citation, and the licence with its source."""
    return about.citation(), f"Licence of the figures: {about.licence} ({about.licence_remark})"


def first_screen(paper: PublishedMeasures, escape: Escape) -> Section:
    """Return systems by the columns with a short header, the printed gains, and where the rest is."""
    about, first = paper.about, paper.about.tables[0]
    gains = paper.printed_gains()
    short = [(table, name, column.short) for table in about.tables for name, column in table.columns.items()]
    shown = [(table.number, name, header) for table, name, header in short if header]
    by_line = {(number, line[SYSTEM]): line for number, lines in paper.lines.items() for line in lines}
    cells = []
    for line in paper.lines[first.number]:
        system = line[SYSTEM]
        figures = [by_line.get((number, system), {}).get(name) or MISSING for number, name, _ in shown]
        cells.append((escape(system), *figures, escape(line[first.gain]) if first.gain else ""))
    headers = ("system", *(header for _, _, header in shown), "gain %" if first.gain else "")
    grid = Grid("", headers, (False, *[True] * (len(headers) - 1)), tuple(cells))
    best = max(gains, key=lambda name: gains[name], default=None)
    after = [] if best is None else [f"No system gains more over its FirstP than {escape(best)}: {gains[best]:g} %."]
    by_measure: dict[str, list[str]] = {}
    for table, name, header in short:
        by_measure.setdefault(table.columns[name].measure, []).extend([header] if header else [])
    notes = [
        f"published, not measured here: {escape(about.licence)}, {escape(about.url)}",
        "; ".join(f"{measure}: {', '.join(named)}" for measure, named in by_measure.items() if named),
        *map(escape, about.left_out[:1]),
        f"its code differs from its text: {len(about.findings)} findings, --wide or harness explain SYSTEM",
    ]
    lead = f"{about.authors[0].last_word} et al. {about.year}, as published"
    return Section(lead=(escape(lead),), grids=(grid,), after=tuple(after), notes=tuple(notes))


def _sections(paper: PublishedMeasures, escape: Escape) -> Iterator[Section]:
    about = paper.about
    yield Section(lead=tuple(map(escape, citation_lines(about))))
    for table in about.tables:
        yield _table(paper, table, escape)
    if about.figure3 is not None:
        yield Section(
            title="Figure 3: run time",
            lead=(escape("The figure prints no number. All that the text says:"),),
            notes=tuple(map(escape, (*about.figure3.statements, about.figure3.remark))),
        )
    listed = [f"{finding} (rows: {', '.join(finding.systems)})" for finding in about.findings]
    yield Section(title="Where the code differs from the text", notes=tuple(map(escape, listed)))
    yield Section(title="Left out", notes=tuple(map(escape, about.left_out)))


def _table(paper: PublishedMeasures, table: MeasureTable, escape: Escape) -> Section:
    """Return a table as printed, with the FirstP that gains are over, and the names of findings."""
    names = [*table.columns, *([table.gain] if table.gain else [])]
    headers = [f"{column.header} {column.measure}" for column in table.columns.values()]
    headers += ["gain %", "over"] if table.gain else []
    cells = []
    for line in paper.lines[table.number]:
        over = [escape(paper.about.firstp.get(line[SYSTEM], MISSING))] if table.gain else []
        found = ", ".join(finding.name for finding in paper.findings(table.number, line[SYSTEM]))
        cells.append((escape(line[SYSTEM]), *(escape(line[name]) or MISSING for name in names), *over, escape(found)))
    numeric = (False, *[True] * len(names), *([False] if table.gain else []), False)
    grid = Grid("", ("system", *headers, "findings"), numeric, tuple(cells))
    return Section(title=escape(f"Table {table.number}: {table.title}"), grids=(grid,))
