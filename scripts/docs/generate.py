"""Write the pages of docs/ that follow from the code: result schema, suite reference, commands, columns.

``python -m scripts.docs.generate`` writes them; a test fails when they are stale.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from harness import cli
from harness.analysis.table import OTHER
from harness.jobs.suite import CellGroup, Ec2Settings, Expectation, Offline, Restriction, Server, Suite, SuiteProtocol
from harness.launch.images.systems import Asset, EngineFile, NotFor, SystemFile
from harness.pricing.instances import HardwareProfile
from harness.report import columns, row_figures
from harness.report.columns import ColumnMeaning
from harness.results import reader
from harness.results.schema import SCHEMA_VERSION
from scripts.docs import architecture, captions, frechet_page, published_page

# Evidence is read from a link, not found by a search: its tables have every word.
NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
DOCS = Path(__file__).resolve().parents[2] / "docs"


def pages() -> dict[str, str]:
    """File name -> text of every generated page."""
    return {
        f"reference/schema/result.v{SCHEMA_VERSION}.schema.json": result_schema(),
        "reference/suite.md": suite_reference(),
        "reference/system.md": system_reference(),
        "reference/commands.md": commands(),
        "reference/columns.md": columns_page(),
        "reference/published.md": NOT_SEARCHED + published_page.page(),
        "reference/frechet-scifact.md": NOT_SEARCHED + frechet_page.page(),
        "reference/dependencies.md": architecture.dependencies(),
        "../CONTRIBUTING.md": architecture.contributing(),
        **{name: captions.with_captions(DOCS / name) for name in ("../README.md", "index.md", "guides/pictures.md")},
    }


def result_schema() -> str:
    """Return the JSON Schema of ``result.json``."""
    schema = reader.result_adapter().json_schema(mode="serialization")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = f"harness result, schema version {SCHEMA_VERSION}"
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def suite_reference() -> str:
    """Describe every key of a suite file."""
    return (
        "# Suite reference\n\nGenerated from `harness/jobs/suite.py` by `make docs`.\n\n"
        "A suite is a TOML file; `name` is the file's name unless it is set. Examples: `suites/quickstart.toml`, and"
        " `suites/scenarios.toml` with its [page](../method/scenarios.md), and `suites/santhanam2023-msmarco.toml`"
        " and `suites/minimum-hardware.toml`, which are not whole products.\n"
        + _section("Top level", Suite)
        + _section("`[protocol]`", SuiteProtocol)
        + _section("`[offline]`", Offline)
        + _section("`[server]`", Server)
        + _section("`[[group]]`", CellGroup)
        + _section("`[hardware.NAME]`", HardwareProfile)
        + _section("`[[restrict]]`", Restriction)
        + _section("`[[expect]]`", Expectation)
        + _section("`[ec2]`", Ec2Settings)
    )


def system_reference() -> str:
    """Describe every key of the files that declare engines and systems."""
    return (
        "# System reference\n\nGenerated from `harness/launch/images/systems.py` by `make docs`.\n"
        + _section("`images/<engine>/engine.toml`", EngineFile)
        + _section("`[[not_for]]` in `engine.toml`", NotFor)
        + _section("`images/<engine>/systems/<system>.toml`", SystemFile)
        + _section("`[[assets]]` in both", Asset)
    )


def commands() -> str:
    """Return the help of every command."""
    text = (
        "# Commands\n\nGenerated from `harness/cli/` by `make docs`.\n\n"
        "Exit codes: 0 done, 1 something failed and is stored, 2 usage, 130 stopped.\n"
    )
    width, shows_default = 100, cli.main.context_settings["show_default"]
    for name, command in sorted(commands_of(cli.main)):
        context = click.Context(
            command,
            info_name=f"harness {name}",
            max_content_width=width,
            terminal_width=width,
            show_default=shows_default,
        )
        text += f"\n## harness {name}\n\n```text\n{command.get_help(context)}\n```\n"
    return text


def commands_of(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield every command of a group, and their commands, with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield before + name, command
        if isinstance(command, click.Group):
            yield from commands_of(command, f"{before}{name} ")


def columns_page() -> str:
    """Describe every column of the tables for programs: CSV, data frames, Parquet, SQLite."""
    rows = row_figures.all_columns(["<measure>"], ["<stage>", OTHER])
    stages = (columns.stage_column("stage_<stage>_s"), columns.count_column("count_<count>"))
    return (
        "# Columns\n\nGenerated from `harness/report/row_figures.py` and `columns.py` by `make docs`.\n\n"
        "Any cell may be missing: empty in CSV, `<NA>` or `NaT` in frames, `NULL` in SQLite; never 0. How figures are"
        " made: [results.md](results.md), [cost.md](../method/cost.md). How to get them:"
        " [exchange.md](../guides/exchange.md).\n"
        + _columns(
            "Rows",
            "`harness report --format csv`, `harness.load`, `harness export`. One row for each cell. `<measure>` stands"
            " for each measure, `<stage>` for each stage that an adapter names; `origin` is there for merged results,"
            " columns of work, of a first stage and of tokens for systems that have them.",
            rows,
        )
        + _columns(
            "Jobs",
            "The table `jobs` of `harness export --format sqlite`. One row for each stored job.",
            columns.JOBS,
        )
        + _columns(
            "Samples",
            "`harness.load_samples`, and the table `samples` of SQLite. One row for each query of each trial.",
            (*columns.SAMPLES, *stages),
        )
    )


def _columns(title: str, text: str, listed: Sequence[ColumnMeaning]) -> str:
    lines = [f"\n## {title}\n\n{text}\n\n| column | unit | holds | meaning |\n|---|---|---|---|\n"]
    lines += [f"| `{each.name}` | {each.unit} | {each.kind.value} | {each.meaning} |\n" for each in listed]
    return "".join(lines)


def _section(title: str, model: type[BaseModel]) -> str:
    rows = [f"\n## {title}\n\n| key | type | default | meaning |\n|---|---|---|---|\n"]
    for name, field in model.model_fields.items():
        default = _default(field)
        rows.append(f"| `{name}` | {_type(field.annotation)} | {default} | {field.description or ''} |\n")
    return "".join(rows)


def _default(field: FieldInfo) -> str:
    """Return the default, or the words next to the field if it is computed."""
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "default" in extra:
        return str(extra["default"])
    return "required" if field.is_required() else _value(field.default)


def _value(value: Any) -> str:
    if isinstance(value, BaseModel):
        return "see below"
    if isinstance(value, tuple):
        return "none" if not value else "`" + json.dumps(list(value)) + "`"
    return "none" if value in (None, {}) else f"`{json.dumps(value)}`"


def _type(annotation: Any) -> str:
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        plain = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}
        return {**plain, "ForeignText": "text"}.get(annotation.__name__, f"`{annotation.__name__}`")
    arguments = getattr(annotation, "__args__", ())
    if "Literal" in str(annotation) and all(isinstance(argument, str | int) for argument in arguments):
        return " or ".join(f"`{json.dumps(argument)}`" for argument in arguments)
    inner = [_type(argument) for argument in arguments if argument not in (type(None), ...)]
    if str(annotation).startswith("dict["):
        return "table"
    if "tuple" in str(annotation):
        return f"list of {inner[0]}"
    return " or ".join(dict.fromkeys(inner))


def main() -> None:
    """Write all pages."""
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
