"""The troubleshooting page quotes messages that harness writes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_every_quoted_message_is_in_the_code() -> None:
    page = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text(encoding="utf-8")
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "harness").rglob("*.py"))
    nodes = (node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    known = "\n".join(text for text in nodes if isinstance(text, str))
    cells = re.findall(r"^\| (`.+?`.*?) \|", page, re.M)
    pieces = [
        piece.strip() for cell in cells for quoted in re.findall("`(.+?)`", cell) for piece in quoted.split("...")
    ]
    assert len(cells) >= 20
    assert [piece for piece in pieces if piece and piece not in known] == []
