"""CloudFormation templates as files that people can read and deploy, and the parts of them that harness fills in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    _SafeLoader = yaml.SafeLoader
else:
    # Where PyYAML has its parser in C, that takes a seventh of the time.
    _SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_VARIABLE = re.compile(r"\$\{([^!}][^}]*)\}")


def read(name: str) -> str:
    """Return the text of ``account``, ``administrator`` or ``suite``."""
    return (resources.files(__name__) / f"{name}.yaml").read_text(encoding="utf-8")


def load(name: str) -> dict[str, Any]:
    """Parse a template; a short form such as ``!Ref x`` becomes the long form ``{"Ref": "x"}``."""
    return parsed(read(name))


def parsed(text: str) -> dict[str, Any]:
    """Parse the text of a template."""
    return dict(_Loader(text).get_single_data())


def write(document: Mapping[str, Any]) -> str:
    """Return the text of a template."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120)


def filled(value: Any, variables: Mapping[str, Any]) -> Any:
    """Replace the references to these variables in a part of a template, as CloudFormation would; keep the others.

    A variable may be the name of a parameter, a pseudo parameter, a resource's attribute (``Group.GroupId``), or a
    condition, whose value is a boolean.
    """
    match value:
        case {"Ref": str(name)} if name in variables:
            return variables[name]
        case {"Fn::GetAtt": [str(name), str(attribute)]} if f"{name}.{attribute}" in variables:
            return variables[f"{name}.{attribute}"]
        case {"Fn::If": [str(name), yes, no]} if name in variables:
            return filled(yes if variables[name] else no, variables)
        case {"Fn::Sub": str(text)}:
            text = _VARIABLE.sub(lambda found: str(variables.get(found[1], found[0])), text)
            return {"Fn::Sub": text} if _VARIABLE.search(text) else text.replace("${!", "${")
        case dict():
            return {key: filled(part, variables) for key, part in value.items()}
        case list():
            parts = (filled(part, variables) for part in value)
            return [part for part in parts if part != {"Ref": "AWS::NoValue"}]
    return value


class _Dumper(yaml.SafeDumper):
    """Repeats equal parts: CloudFormation refuses aliases."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


class _Loader(_SafeLoader):
    """Reads CloudFormation's short forms."""


def _long_form(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    value = loader.construct_sequence(node, deep=True) if isinstance(node, yaml.SequenceNode) else node.value
    if suffix == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _long_form)
