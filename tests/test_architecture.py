"""Rules of CONTRIBUTING.md that a script can check."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from scripts.docs import architecture

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted((ROOT / "harness").rglob("*.py"))
# Words that say nothing about what a thing is; the field has a noun for it.
BANNED = {
    *("asked", "elsewhere", "instead", "kept", "made", "seen", "shown", "standing", "stuff", "there", "told"),
    *("wanted", "worth"),
}
OPENING = re.compile(r"(What|Which|How|Whether|Why|Who|Whose|Where)\b")
LONGEST_MODULE = 600


Trees = tuple[tuple[Path, ast.Module], ...]


@pytest.fixture(scope="module")
def trees() -> Trees:
    """All modules, parsed."""
    return tuple((path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))) for path in MODULES)


@pytest.mark.slow
def test_modules_classes_and_functions_have_names_of_the_field(trees: Trees) -> None:
    names = [(path, path.stem) for path, _ in trees]
    for path, tree in trees:
        names += [
            (path, node.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("__")
        ]
    assert [f"{path}: {name}" for path, name in names if name.strip("_").lower() in BANNED] == []


@pytest.mark.slow
def test_a_class_name_stands_for_one_thing(trees: Trees) -> None:
    places = defaultdict(list)
    for path, tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


@pytest.mark.slow
def test_docstrings_begin_with_a_verb_or_a_noun(trees: Trees) -> None:
    offenders = [
        f"{path}:{getattr(node, 'lineno', 1)}"
        for path, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and OPENING.match(ast.get_docstring(node) or "")
    ]
    assert offenders == []


@pytest.mark.slow
def test_every_child_process_gets_an_environment_of_its_own(trees: Trees) -> None:
    offenders = []
    for path, tree in trees:
        if path.parts[1] == "driver":  # inside an image, whose environment is not ours
            continue
        spread = {ast.unparse(value) for node in ast.walk(tree) if isinstance(node, ast.Dict) for value in node.values}
        offenders += [f"{path}: passes all of os.environ on"] if "os.environ" in spread else []
        for node in ast.walk(tree):
            if not (
                isinstance(node, ast.Call)
                and ast.unparse(node.func).startswith(("subprocess.", "os.spawn", "os.exec", "os.system", "os.popen"))
            ):
                continue
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            # `**more` hands a caller's environment on, which this test reads at the call.
            if not ("env" in given or None in given) or "os.environ" in given.get("env", ""):
                offenders.append(f"{path}:{node.lineno}")
    assert offenders == []


@pytest.mark.slow
def test_no_module_is_too_long() -> None:
    assert [str(path) for path in MODULES if path.read_text(encoding="utf-8").count("\n") > LONGEST_MODULE] == []


@pytest.mark.slow
def test_the_contract_has_at_most_ten_layers_and_names_all_units() -> None:
    layers = architecture.layers()
    assert len(layers) <= 10
    units = {
        path.stem for path in (ROOT / "harness").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert {unit for layer in layers for unit in layer} == units - {"__init__", "__main__"}


@pytest.mark.slow
def test_every_dependency_says_what_it_is_for() -> None:
    rows = re.findall(r"^\| (\S+) \| (.*) \|$", architecture.dependencies(), re.MULTILINE)
    assert len(rows) > 10
    assert [name for name, purpose in rows[1:] if not purpose] == []


@pytest.mark.slow
def test_a_median_has_one_definition() -> None:
    # harness.stats, and statistics.median_low where numpy would be too slow to import, are p50: an observed value.
    other = re.compile(
        r"\b(?:statistics|np)\.(?:nan)?(?:median|percentile)\(|quantile\([^)]*0\.5\b|import .*\bmedian\b"
    )
    offered = re.compile(r"from harness\.stats import .*\bmedian\b")
    driver = ROOT / "harness" / "driver"
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in MODULES
        if driver not in path.parents
        for line in path.read_text(encoding="utf-8").splitlines()
        if other.search(line) and not offered.search(line)
    ]
    # The calibration reads a percentile of queues that it simulates, by nearest rank as well.
    assert [line for line in found if 'method="inverted_cdf"' not in line] == []


# What programs read: hashes, JSON, exports, words of a command, and the form to show.
RAW_TEXT = {
    "harness/commands.py",
    "harness/launch/images/catalog.py",
    "harness/report/export.py",
    "harness/untrusted.py",
}


@pytest.mark.slow
def test_few_modules_read_a_strangers_text_as_it_is(trees: Trees) -> None:
    users = {
        str(path)
        for path, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in ("raw", "_raw")
        and not _is_own(node)
        and ast.unparse(node) != "response.raw"  # bytes of an HTTP answer
    }
    assert users == RAW_TEXT


def _is_own(node: ast.Attribute) -> bool:
    return node.attr == "raw" and isinstance(node.value, ast.Name) and node.value.id == "self"


@pytest.mark.slow
def test_commands_print_lines_by_one_function(trees: Trees) -> None:
    """A message passes through ``say``, which escapes; whole documents are written without a further line end."""
    loose = [
        f"{path}:{node.lineno}"
        for path, tree in trees
        if path.parts[1] == "cli" and path.name != "lines.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("click.echo", "click.secho", "print")
        if node.args and "nl" not in {keyword.arg for keyword in node.keywords}
    ]
    assert loose == []


# Sure signs of compressed prose in docstrings; CONTRIBUTING.md has the rule.
COMPRESSED = re.compile(r"\b(?:whatever|nobody|those of|that of|are of|is of|lies|beside)\b", re.IGNORECASE)
PLAIN = ("cli", "experiments", "evaluation", "datasets", "launch", "pricing", "report")


def test_docstrings_have_no_compressed_phrases(trees: Trees) -> None:
    offenders = [
        f"{path}:{getattr(node, 'lineno', 1)}: {found[0]}"
        for path, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and (found := COMPRESSED.search(re.sub(r"``.+?``", "", ast.get_docstring(node) or "")))
    ]
    assert offenders == []


def test_the_output_of_a_container_is_read_before_it_is_removed() -> None:
    # docker-py removes first; tests/support/container_output.py has the reason and the other way.
    files = [path for folder in ("benchmarks", "harness", "tests") for path in (ROOT / folder).rglob("*.py")]
    lost = re.compile(r"\.containers\.run\(.*\bremove=True")
    assert [
        f"{path}:{node.lineno}"
        for path in files
        if "remove=True" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        # A statement that is nothing but the call reads no output.
        if isinstance(node, ast.stmt) and not hasattr(node, "body") and not isinstance(node, ast.Expr)
        if lost.search(ast.unparse(node))
    ] == []
