"""Stored results for other programs: one file of a table, or a file of metadata for each job."""

from __future__ import annotations

from harness.exporting.ir_metadata import Actor
from harness.exporting.ir_metadata import write as ir_metadata
from harness.exporting.tables import csv, parquet, sqlite

__all__ = ["FORMATS", "Actor", "csv", "ir_metadata", "parquet", "sqlite"]

FORMATS = ("parquet", "sqlite", "csv", "ir_metadata")
