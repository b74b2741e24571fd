"""Packages that the bare installation leaves out, and the extra of ``ir-harness`` that installs each."""

from __future__ import annotations

import importlib.util
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
    if importlib.util.find_spec(package) is not None:
        return ""
    extra = EXTRAS[package]
    return f"{extra.use} need {extra.distribution}: pip install 'ir-harness[{extra.name}]'"
