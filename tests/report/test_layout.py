from dataclasses import replace

from harness.analysis.table import Table
from harness.report import render


def test_a_changed_checkout_is_said(table: Table) -> None:
    first = table.rows[2]
    changed = replace(first, machine=replace(first.machine, harness_commit="0123456789abcdef-dirty"))
    assert "harness 0.1.0 (0123456789ab with changes)" in render(replace(table, rows=(changed,)), "md")
    assert "harness 0.1.0 (0123456789ab)" in render(replace(table, rows=(first,)), "md")
