"""Mistakes in files are reported in one line with file, key and fix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.config import ConfigModel, read_toml, validate
from harness.errors import FileError

FILE = Path("some.toml")


class Leaf(ConfigModel):
    depth: int
    ratio: float = 1.0


class Tree(ConfigModel):
    title: str
    leaf: Leaf | None = None
    leaves: tuple[Leaf, ...] = ()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"title": "t", "leafs": 1}, "unknown key 'leafs'. Did you mean 'leaf'?"),
        ({"titel": "t"}, "unknown key 'titel'. Did you mean 'title'?"),
        ({"leaf": {"detph": 1}}, "unknown key 'leaf.detph'. Did you mean 'depth'?"),
        ({"title": "t", "zzz": 1}, "unknown key 'zzz'; known keys: leaf, leaves, title"),
        ({"title": "t", "leaf": {"depth": 1, "zzz": 1}}, "unknown key 'leaf.zzz'; known keys: depth, ratio"),
        ({"title": "t", "leaves": [{"depth": 1, "rato": 1}]}, "unknown key 'leaves.0.rato'. Did you mean 'ratio'?"),
        ({}, "key 'title' is missing; add it"),
        ({"title": "t", "leaves": [{}]}, "key 'leaves.0.depth' is missing; add it"),
        ({"title": 3}, "key 'title' is 3; write text in quotes"),
        ({"title": "t", "leaf": {"depth": "deep"}}, "key 'leaf.depth' is \"deep\"; write a whole number"),
        ({"title": "t", "leaves": "x"}, "key 'leaves': expected a list"),
        (
            {"title": "t", "leaf": {"depth": 1, "ratio": float("nan")}},
            "key 'leaf.ratio' is nan or infinite; write a finite number",
        ),
    ],
)
def test_mistake_is_reported_in_one_line(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(FileError) as caught:
        validate(Tree, raw, FILE)
    assert str(caught.value).startswith(f"some.toml: {message}")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_prefix_names_the_table_of_the_key() -> None:
    with pytest.raises(FileError, match=r"^some.toml: unknown key 'cpu1.dept'. Did you mean 'depth'\?$"):
        validate(Leaf, {"dept": 1}, FILE, prefix="cpu1")


def test_valid_record_is_frozen() -> None:
    tree = validate(Tree, {"title": "t", "leaves": [{"depth": 2}]}, FILE)
    assert tree.leaves == (Leaf(depth=2),)
    with pytest.raises(ValueError, match="frozen"):
        tree.title = "other"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = \n", "not valid TOML at line 1, column 5: invalid value; correct it"),
        (b"a = 1\na = 2\n", "not valid TOML at line 2, column 6: cannot overwrite a value; correct it"),
        (b"a = " + b"1" * 5000, "a number has too many digits; correct it"),
    ],
)
def test_invalid_toml_is_reported_with_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_bytes(content)
    with pytest.raises(FileError) as caught:
        read_toml(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_missing_file_and_folder_are_reported(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="this file does not exist; check the path"):
        read_toml(tmp_path / "none.toml")
    with pytest.raises(FileError, match=r"cannot be read: is a folder, no regular file; name a TOML file"):
        read_toml(tmp_path)


def test_read_toml_returns_fresh_content_and_an_own_copy(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("names = [1]")
    read_toml(path)["names"].append(2)
    assert read_toml(path) == {"names": [1]}
    path.write_text("names = [3]")
    assert read_toml(path) == {"names": [3]}


@pytest.mark.parametrize("number", ["100000000000000000000000", "-9223372036854775809", "1e30"])
def test_number_that_no_result_can_hold_is_refused_with_its_key(tmp_path: Path, number: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(f"[[group]]\nvalues = [1, {{ x = {number} }}]\n")
    with pytest.raises(FileError, match=r"key 'group\.values\.x': the number .* beyond 64 bits; correct it"):
        read_toml(path)


@pytest.mark.parametrize(
    "key", ["a" + ".a" * 400_000, '"="' + " . 'a'" * 100_000, "[" + "a." * 100_000 + "a]", "a.b\n" + "a." * 99 + "a"]
)
def test_key_that_would_take_the_parser_minutes_is_refused(tmp_path: Path, key: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(f"x = 1\n{key} = 1\n" if not key.startswith("[") else f"x = 1\n{key}\n" + "y = 1\n")
    with pytest.raises(FileError, match="has a key of a hundred parts; correct it"):
        read_toml(path)


def test_dots_in_texts_and_lists_are_no_keys(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(f'text = "{"a." * 500}"\nnumbers = [{"1.5, " * 500}]\n')
    assert len(read_toml(path)["numbers"]) == 500
