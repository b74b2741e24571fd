"""Show published tables of measures: systems by datasets first, with ``--wide`` every table and finding."""

from __future__ import annotations

from collections.abc import Iterator

from harness.analysis.published_measures import LOST, Contradiction, MeasuresPaper, MeasureTable, PublishedMeasures
from harness.analysis.table import Table
from harness.errors import counted
from harness.estimate import best_of
from harness.report.document import MISSING, Escape, Grid, ReportDocument, Section, joined_by_and
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


def first_screen(paper: PublishedMeasures, escape: Escape) -> Section:
    """Return systems by the columns with a short header, the printed gains, and where the rest is."""
    about, first = paper.about, paper.about.tables[0]
    gains = paper.printed_gains()
    printed = {
        (table.number, line[table.key], name): cell.figure
        for table in about.tables
        for line in paper.lines[table.number]
        for name, cell in table.cells(line).items()
    }
    short = [(table, name, column.short) for table in about.tables for name, column in table.columns.items()]
    shown = [(table.number, name, header) for table, name, header in short if header]
    cells = []
    for line in paper.lines[first.number]:
        system = line[first.key]
        figures = [printed.get((number, system, name), MISSING) for number, name, _ in shown]
        cells.append((escape(system), *figures, *([escape(line[first.gain])] if first.gain else [])))
    headers = ("system", *(header for _, _, header in shown), *(["gain %"] if first.gain else []))
    grid = Grid("", headers, (False, *[True] * (len(headers) - 1)), tuple(cells))
    best = best_of(gains, gains.get)
    names = joined_by_and(list(map(escape, best)))
    after = [f"No system gains more over its FirstP than {names}: {gains[best[0]]:g} %."] if best else []
    by_measure: dict[str, list[str]] = {}
    for table, name, header in short:
        measure = table.columns[name].measure
        by_measure.setdefault(measure, []).extend([header] if header not in ("", measure) else [])
    notes = [
        f"published, not measured here: {escape(about.licence)}, {escape(about.url)}",
        *filter(None, ["; ".join(f"{measure}: {', '.join(named)}" for measure, named in by_measure.items() if named)]),
        *map(escape, about.left_out[:1]),
        _contradictions(about),
    ]
    return Section(
        lead=(escape(f"{about.cited}, as published"),), grids=(grid,), after=tuple(after), notes=tuple(notes)
    )


def _contradictions(about: MeasuresPaper) -> str:
    """Return how many contradictions are known, and where they are listed."""
    known = [f"{counted(len(about.findings), 'finding')} on its code"] if about.findings else []
    known += [f"{len(about.errata)} {'erratum' if len(about.errata) == 1 else 'errata'}"] if about.errata else []
    return f"{', '.join((*known, 'all tables'))}: --wide or harness explain SYSTEM"


def _sections(paper: PublishedMeasures, escape: Escape) -> Iterator[Section]:
    about = paper.about
    yield Section(lead=tuple(map(escape, about.citation_lines())))
    for table in about.tables:
        yield _table(paper, table, escape)
    if about.figure3 is not None:
        yield Section(
            title="Published: Figure 3, run time",
            lead=("The figure prints no number. All that the text says:",),
            notes=tuple(map(escape, (*about.figure3.statements, about.figure3.remark))),
        )
    for title, kind, listed in (
        ("Where the code differs from the text", "finding", about.findings),
        ("Errata", "erratum", about.errata),
    ):
        if listed:
            yield Section(title=title, notes=tuple(escape(f"{kind} {each}{_where(each)}") for each in listed))
    if about.left_out:
        yield Section(title="Left out", notes=tuple(map(escape, about.left_out)))


def _where(each: Contradiction) -> str:
    """Return the rows of a contradiction, in brackets."""
    numbers = [number for number in each.tables if number[:1].isdigit()]
    tables = f"Table{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}: " if numbers else ""
    return f" ({tables}{', '.join(each.systems)})" if each.systems else " (text)"


def _table(paper: PublishedMeasures, table: MeasureTable, escape: Escape) -> Section:
    """Return a table as printed, with the baseline of its gains, and the names of findings and errata."""
    names = table.header[1:]
    headers = [f"{column.header} {column.measure}" for column in table.columns.values()]
    headers += [*map(str, table.facts.values()), *(["gain %"] if table.gain else [])]
    lines = paper.lines[table.number]
    gained = [
        bool(table.gain and line[table.gain]) or any(cell.gain for cell in table.cells(line).values()) for line in lines
    ]
    known = [
        ", ".join(each.name for _, each in paper.contradictions(table.number, line[table.key])) if table.columns else ""
        for line in lines
    ]
    cells = [
        (
            escape(line[table.key]),
            *(escape(line[name]) or MISSING for name in names),
            *([escape(paper.baseline(table, line[table.key]) or "") if has else ""] if any(gained) else []),
            *([escape(contradicted)] if any(known) else []),
        )
        for line, has, contradicted in zip(lines, gained, known, strict=True)
    ]
    more = [*(["over"] if any(gained) else []), *(["contradictions"] if any(known) else [])]
    right = [name not in table.facts or all(line[name][:1] in "+-0123456789" for line in lines) for name in names]
    numeric = (False, *right, *[False] * len(more))
    grid = Grid("", (table.key.replace("_", " "), *headers, *more), numeric, tuple(cells))
    notes = [f"From: {table.source}"] if table.source else []
    notes += [f"{mark}: {meaning}" for mark, meaning in table.marks.items()]
    if any(LOST in line.values() for line in lines):
        notes.append(f"{LOST}: printed, but not legible in the copy that these figures are from")
    title = escape(f"{table.name}: {table.title}")
    return Section(title=title, grids=(grid,), notes=tuple(map(escape, notes)))
