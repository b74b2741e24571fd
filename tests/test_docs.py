"""The pages agree with the code."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from checkpoints import debiasing, long_documents, small
from harness.analysis.table import Cause, Table
from harness.cli import main
from harness.jobs import suite, suite_protocol, suite_scenarios
from harness.launch.images import catalog, driver_code
from harness.launch.images.asset import Asset
from harness.launch.images.systems import EngineFile, SystemFile
from harness.pricing import instances
from harness.report import summary
from harness.untrusted import split_list
from scripts.docs import generate

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(generate.PAGES))
def test_generated_pages_are_fresh(name: str) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == generate.PAGES[name](), "run `make docs`"


def test_every_command_has_help_and_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, command in generate.commands_of(main):
        assert command.help, name
        assert " " in name or f"harness {name}" in readme, name


def test_every_suite_key_is_described() -> None:
    for model in (
        suite.Suite,
        suite_protocol.SuiteProtocol,
        suite.SizeSweep,
        suite_scenarios.Offline,
        suite_scenarios.Server,
        suite_scenarios.Mixed,
        suite.Restriction,
        suite.Expectation,
        SystemFile,
        EngineFile,
        Asset,
    ):
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"


@pytest.fixture(scope="module")
def shipped() -> set[str]:
    """The names of all systems that ship, and of those that are trained on the spot."""
    trained = {*small.NAMES.values(), *long_documents.NAMES.values()}
    trained |= {system for kind in debiasing.KINDS for system in kind.systems}
    return {*catalog.systems(), *trained}


@pytest.mark.parametrize("path", sorted((ROOT / "suites").glob("*.toml")), ids=lambda path: path.name)
def test_shipped_suites_name_existing_parts(path: Path, shipped: set[str]) -> None:
    declared = suite.load(path)
    named = {point.system if (point := declared.variants.get(name)) else name for name in declared.systems}
    assert named <= shipped
    assert set(declared.profiles) <= set(instances.hardware_profiles())


def test_every_verdict_cause_is_on_the_results_page() -> None:
    page = (ROOT / "docs" / "reference" / "results.md").read_text(encoding="utf-8")
    assert [cause.value for cause in Cause if f"`{cause.value}`" not in page] == []


def test_links_between_pages_resolve() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith(("http:", "https:")):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_columns_that_pages_ask_for_exist() -> None:
    known = {column.alias for column in summary.all_columns(Table((), ("nDCG@10",)), (), str)}
    pages = (ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md"))
    asked = [re.findall(r"--columns (?:'([^']+)'|([^\s`]+))", page.read_text(encoding="utf-8")) for page in pages]
    named = {name for texts in asked for text in texts for name in split_list("".join(text))} - {"NAME", "..."}
    assert "parameters" in named and named <= known


def test_counts_of_the_papers_are_those_of_their_tables() -> None:
    page = (ROOT / "docs" / "reference" / "papers.md").read_text(encoding="utf-8")
    for part in page.split("\n## ")[1:]:
        states = [line.rsplit("|", 2)[1].strip() for line in re.findall(r"^\| \d+ \|.*$", part, re.M)]
        counts = ", ".join(f"{states.count(state)} {state}" for state in ("right", "in part", "missing"))
        assert f"\n\n{len(states)} things: {counts}.\n" in part, f"{part.splitlines()[0]}: {len(states)}, {counts}"


def test_scenarios_page_shows_the_tested_suite() -> None:
    page = (ROOT / "docs" / "method" / "scenarios.md").read_text(encoding="utf-8")
    assert f"```toml\n{(ROOT / 'suites' / 'scenarios.toml').read_text(encoding='utf-8')}```\n" in page


def test_code_inside_images_imports_only_the_standard_library() -> None:
    for name, content in driver_code.files().items():
        for node in ast.walk(ast.parse(content if isinstance(content, bytes) else content.read_bytes())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for module in modules:
                inside = module == "harness" or any(
                    module == prefix or module.startswith(prefix + ".")
                    for prefix in (
                        "harness.driver",
                        "harness.driver.records",
                        "harness.driver.cgroup",
                        "harness.driver.procfs",
                    )
                )
                assert inside or module.partition(".")[0] in sys.stdlib_module_names, f"{name}: {module}"


def test_lock_names_no_index() -> None:
    for lock in (ROOT / "requirements.lock", *(ROOT / "images").rglob("requirements*.lock")):
        assert "://" not in lock.read_text(encoding="utf-8"), lock


def test_version_is_the_same_everywhere() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" in declared["project"]["dynamic"] and "version" not in declared["project"]


@pytest.mark.slow
def test_cost_page_shows_the_printed_example() -> None:
    page = " ".join((ROOT / "docs" / "method" / "cost.md").read_text(encoding="utf-8").split())
    (command,) = [
        line[2:] for line in (ROOT / "docs" / "method" / "cost.md").read_text().splitlines() if line.startswith("$ ")
    ]
    folder = str(ROOT / "results" / "published" / "santhanam2023")
    done = CliRunner().invoke(main, [part if "/" not in part else folder for part in command.split()[1:]])
    said = done.stdout.splitlines()[2:6]
    assert all(line.startswith("- ") and line in page for line in said)


def test_each_page_has_one_title_and_whole_code_blocks() -> None:
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        text, fences = re.subn(r"^ *```.*?^ *```\s*?$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
        assert "```" not in text, f"{path}: a code block is not closed"
        assert len(re.findall(r"^# ", text, re.M)) == 1, f"{path}: {fences} blocks taken out, not one title left"


def test_each_promise_on_strangers_files_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "method" / "security.md").read_text(encoding="utf-8")
    promises = re.findall(r"^\| (?!promise|---).* \| (.*) \|$", page, flags=re.MULTILINE)
    assert len(promises) > 20
    for names in promises:
        tests = re.findall(r"`([^`]*)`", names)
        assert tests, names
        for name in tests:
            assert (ROOT / name).exists() or list((ROOT / "tests").rglob(name)), name
