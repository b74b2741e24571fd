"""Packages that the bare installation leaves out, and the command that adds each to this installation."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import NamedTuple

from harness.errors import UsageError


class Extra(NamedTuple):
    """The extra that installs a package, the package's name at PyPI, and what needs it."""

    name: str
    distribution: str
    use: str


# By the name that is imported.
EXTRAS = {
    "boto3": Extra("aws", "boto3", "EC2, AWS Batch and S3"),
    "ijson": Extra("aws", "ijson", "AWS's price lists"),
    "ir_datasets": Extra("datasets", "ir-datasets", "collections of ir_datasets"),
    "matplotlib": Extra("plots", "matplotlib", "pictures"),
    "nltk": Extra("datasets", "nltk", "answers in passages (R@2kt)"),
    "pandas": Extra("notebooks", "pandas", "data frames, Parquet and SQLite"),
    "tokenizers": Extra("datasets", "tokenizers", "token counts of passages"),
}


def require(package: str) -> None:
    """Check that an optional package is installed, before it is imported.

    Raises:
        UsageError: it is not; the text has the command that installs it.
    """
    if text := missing(package):
        raise UsageError(text)


def missing(package: str) -> str:
    """Return what needs an optional package, and the command that installs it; empty if it is installed."""
    if _installed(package):
        return ""
    extra = EXTRAS[package]
    return f"{extra.use} need {extra.distribution}: {_command(extra)}"


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _command(extra: Extra) -> str:
    """Return the command that adds an extra, by the program that made this environment."""
    environment = Path(sys.prefix)
    if (environment / "pipx_metadata.json").is_file():
        return f"pipx inject ir-harness {extra.distribution}"
    # uv replaces the environment, so the command names the extras that it has already.
    names = {extra.name} | {known.name for package, known in EXTRAS.items() if _installed(package)}
    named = f"'ir-harness[{','.join(sorted(names))}]'"
    if (environment / "uv-receipt.toml").is_file():
        return f"uv tool install {named}"
    if environment.parent.name.startswith("archive-v"):  # the cache of uv, which holds environments of one command
        return " ".join(("uvx --from", named, "harness"))
    return f"pip install 'ir-harness[{extra.name}]'"
