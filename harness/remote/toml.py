"""Plain values -> TOML.  The standard library reads it and writes none; a box needs one suite file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def dumps(values: Mapping[str, Any]) -> str:
    """A table's keys, one a line; tables within are written inline.  What is ``None`` is left out.

    Raises:
        TypeError: a value is nothing that TOML has.
    """
    return "".join(f"{_quoted(key)} = {_value(value)}\n" for key, value in values.items() if value is not None)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(each) for each in value)}]"
    if isinstance(value, Mapping):
        inside = (f"{_quoted(key)} = {_value(each)}" for key, each in value.items() if each is not None)
        return f"{{{', '.join(inside)}}}"
    raise TypeError(f"{type(value).__name__} is nothing that TOML has")


def _quoted(text: str) -> str:
    # JSON's escapes are TOML's, but for a control character that JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
