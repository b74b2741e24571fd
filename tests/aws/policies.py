"""What a policy allows, as far as ours go: actions, resources with stars, and whether a header is there."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any


def allows(policy: Mapping[str, Any], action: str, resource: str, **context: str) -> bool:
    """Whether any statement allows it.

    Args:
        policy: the document.
        action: e.g. ``s3:PutObject``.
        resource: its ARN.
        context: condition keys with their values, ``:`` and ``-`` as ``_``.
    """

    def holds(statement: Mapping[str, Any]) -> bool:
        for operator, wanted in statement.get("Condition", {}).items():
            for key, value in wanted.items():
                given = context.get(key.replace(":", "_").replace("-", "_"))
                if operator == "Null":
                    held = (given is None) == (value == "true")
                elif operator == "StringEquals":
                    held = given in ([value] if isinstance(value, str) else value)
                else:
                    raise AssertionError(f"{operator} is not known here")
                if not held:
                    return False
        return True

    return any(
        action in statement["Action"]
        and any(fnmatchcase(resource, each) for each in _list(statement["Resource"]))
        and holds(statement)
        for statement in policy["Statement"]
    )


def _list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
