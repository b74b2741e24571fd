"""Pages about messages, modules and evidence say what the code and the navigation say."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import yaml

from scripts.docs.generate import EVIDENCE

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def texts() -> str:
    """Return the constant texts of harness, one a line."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "harness").rglob("*.py"))
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return "\n".join(node.value for node in nodes if isinstance(node.value, str))


def test_every_message_of_the_troubleshooting_page_is_in_the_code() -> None:
    page = (DOCS / "guides" / "troubleshooting.md").read_text(encoding="utf-8")
    messages = re.findall(r"^\| `(.+?)` \|", page, re.M)
    known = texts()
    assert len(messages) >= 20
    assert [message for message in messages if message not in known] == []


def test_every_module_of_the_architecture_page_exists() -> None:
    page = (DOCS / "reference" / "architecture.md").read_text(encoding="utf-8")
    modules = re.findall(r"`(harness/\S+?)`", page)
    assert len(modules) > 20 and [name for name in modules if not (ROOT / name).is_file()] == []


def test_evidence_is_the_last_part_and_out_of_the_search() -> None:
    last = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"][-1]
    pages = [name for entry in last["Evidence"] for name in entry.values()]
    hidden = [path for path in DOCS.rglob("*.md") if path.read_text(encoding="utf-8").startswith(EVIDENCE)]
    assert len(pages) == 7 and {DOCS / name for name in pages} == set(hidden)
