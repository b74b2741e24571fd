"""Dated prices of language models' tokens, and what the tokens of a million queries cost."""

from __future__ import annotations

import datetime
import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from harness.analysis import row_pricing
from harness.analysis.table import Row
from harness.errors import FileError, UsageError
from harness.pricing import token_prices
from tests.support import sample_records

DAY = datetime.date
HEAD = 'date = {date}\nsource = "a list"\nlicence = "MIT"\n'
MODEL = '[models."m"]\nin = {cost_in}\nout = {cost_out}\npage = "p"\n'


def add(root: Path, date: str, cost_in: float = 1.0, cost_out: float = 2.0, *, text: str = "") -> Path:
    """Add a snapshot of one model; ``text`` instead of its content."""
    folder = root / "tokens"
    folder.mkdir(exist_ok=True)
    path = folder / f"{date}.toml"
    path.write_text(text or HEAD.format(date=date) + MODEL.format(cost_in=cost_in, cost_out=cost_out))
    listed = sorted(folder.glob("*.toml"))
    sums = "".join(f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in listed)
    (folder / "SHA256SUMS").write_text(sums)
    return path


def row(model: str | None, **counts: float) -> Row:
    return replace(sample_records.row(), token_model=model, counts=counts)


def test_a_million_queries_cost_what_is_calculated_by_hand_to_the_cent() -> None:
    # 3,123 prompt tokens at 0.15 and 80 completion tokens at 0.60 US$ a million: 0.00046845 + 0.000048 US$ a query.
    shipped = token_prices.FILES.newest(DAY(2026, 11, 9))
    price, usd = row_pricing.tokens(row("gpt-4o-mini", prompt_tokens=3123, completion_tokens=80), shipped)
    assert usd.value == pytest.approx(516.45, abs=0.005)
    assert price is not None
    assert (price.usd_per_million_in, price.usd_per_million_out, price.batch_discount) == (0.15, 0.6, 0.5)
    assert price.date == "2026-11-09" and "third-party" in price.source


def test_every_shipped_price_names_its_page_and_its_licence() -> None:
    shipped = token_prices.FILES.read()
    assert [str(each.as_of) for each in shipped] == ["2026-03-13", "2026-11-09"]
    assert all(each.licence == "MIT" and "third-party" in each.source for each in shipped)
    assert all(price.page.startswith("https://") for each in shipped for price in each.models.values())


def test_a_system_without_a_price_model_has_no_token_cost_and_needs_no_reason() -> None:
    price, usd = row_pricing.tokens(row(None, prompt_tokens=10, completion_tokens=1), token_prices.FILES.newest())
    assert (price, usd.value, usd.reason) == (None, None, None)


def test_missing_tokens_and_unknown_models_are_reasons_not_zero() -> None:
    shipped = token_prices.FILES.newest()
    assert row_pricing.tokens(row("gpt-4o-mini", pairs=20), shipped)[1].value is None
    assert row_pricing.tokens(row("gpt-4o-mini", prompt_tokens=-5, completion_tokens=1), shipped)[1].value is None
    unknown = row_pricing.tokens(row("gpt-4o-mimi", prompt_tokens=1, completion_tokens=1), shipped)[1]
    assert unknown.value is None and "Did you mean 'gpt-4o-mini'" in str(unknown.reason)
    assert row_pricing.tokens(row("m", prompt_tokens=1, completion_tokens=1), None)[1].reason


def test_snapshot_is_the_newest_up_to_the_date_and_the_other_one_is_another(tmp_path: Path) -> None:
    assert token_prices.FILES.newest(root=tmp_path) is None
    add(tmp_path, "2025-01-01")
    add(tmp_path, "2025-06-01", 0.5)
    newest, older = token_prices.FILES.newest(root=tmp_path), token_prices.FILES.newest(DAY(2025, 5, 31), tmp_path)
    assert newest is not None and older is not None
    assert (newest.models["m"].usd_in, older.models["m"].usd_in) == (0.5, 1.0)
    assert token_prices.FILES.other(newest, root=tmp_path) == older
    assert token_prices.FILES.other(older, root=tmp_path) == newest
    assert token_prices.FILES.other(newest, DAY(2024, 1, 1), tmp_path) is None
    with pytest.raises(
        UsageError, match=r"tokens have no prices from 2024-12-31 or before; choose one of these dates: 2025"
    ):
        token_prices.FILES.newest(DAY(2024, 12, 31), tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD.format(date="2025-01-02") + MODEL.format(cost_in=1, cost_out=1), "date is '2025-01-02'"),
        (HEAD.format(date="2025-01-01") + MODEL.format(cost_in=-1, cost_out=1), "models.m.in"),
        (HEAD.format(date="2025-01-01") + '[models.m]\nin = 1\npage = "p"\n', "models.m.out"),
        (HEAD.format(date="2025-01-01") + MODEL.format(cost_in=1, cost_out=1) + "inn = 1\n", "inn"),
    ],
)
def test_a_wrong_file_names_itself_and_the_key(tmp_path: Path, text: str, message: str) -> None:
    path = add(tmp_path, "2025-01-01", text=text)
    with pytest.raises(FileError) as caught:
        token_prices.FILES.newest(root=tmp_path)
    assert str(caught.value).startswith(str(path)) and message in str(caught.value)


def test_an_edited_file_is_refused(tmp_path: Path) -> None:
    path = add(tmp_path, "2025-01-01")
    path.write_text(path.read_text().replace("in = 1.0", "in = 0.1"))
    with pytest.raises(FileError, match="its checksum differs from"):
        token_prices.FILES.newest(root=tmp_path)
