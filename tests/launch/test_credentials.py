"""Credentials of a running service: hidden in all that its client leaves, however it is written there."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.launch.credentials import PASSWORD, TOKEN, USER, Credentials

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="*\0"), min_size=8, max_size=40)


@pytest.mark.slow
@given(TEXT, TEXT, TEXT)
def test_a_value_is_hidden_in_every_form(secret: str, before: str, after: str) -> None:
    held = Credentials({TOKEN: secret})
    coded = base64.b64encode(secret.encode()).decode()
    for form in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], quote(secret), coded):
        shown = held.hide(f"{before}{form}{after}")
        assert form not in shown and "***" in shown


@pytest.mark.slow
@given(TEXT, st.integers(6, 40))
def test_a_value_that_was_cut_is_hidden(secret: str, length: int) -> None:
    assert Credentials({TOKEN: secret}).hide(f"cut: {secret[:length]}") == "cut: ***"


@pytest.mark.parametrize("user", ["elastic", "sa"])
def test_a_user_is_hidden_as_a_word(user: str) -> None:
    held = Credentials({USER: user, PASSWORD: "changeme"})
    assert held.hide(f"{user} {user}search '{user}'") == f"*** {user}search '***'"
    assert held.hide(base64.b64encode(f"{user}:changeme".encode()).decode()) == "***"


def test_lines_of_json_stay_lines_of_json(tmp_path: Path) -> None:
    secret = 'a"b\\c\nd-token'
    lines = [{"query_id": "1", "latency_ns": 123456, "hits": [[secret, 1.5]]}, {"trial": 0, "text": "plain"}]
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + f"half a line {secret}", encoding="utf-8")
    (tmp_path / "link").symlink_to(path)
    Credentials({TOKEN: secret, PASSWORD: "123456"}).hide_files(tmp_path)
    first, second, *rest = path.read_text("utf-8").splitlines()
    assert json.loads(first) == {"query_id": "1", "latency_ns": 123456, "hits": [["***", 1.5]]}
    assert json.loads(second) == lines[1] and "123456" not in "".join(rest)


def test_bytes_that_are_no_text_stay() -> None:
    assert Credentials({TOKEN: "secret-token"}).hide_bytes(b"\xff secret-token \xfe") == b"\xff *** \xfe"


def test_what_cannot_be_hidden_is_refused() -> None:
    with pytest.raises(UsageError, match=f"{TOKEN} has 3 characters"):
        Credentials.of_environment({TOKEN: "abc"})
    assert Credentials.of_environment({TOKEN: "", "OTHER": "x"}).given == ()
    assert repr(Credentials.of_environment({TOKEN: "secret-token"})) == f"Credentials({TOKEN})"
