"""The output folders of the stages, relative to the project's folder."""

from __future__ import annotations

from pathlib import Path

PAIRS = Path("data/pairs")
VALIDATED = Path("data/validated")
QUARANTINE = Path("data/quarantine")
EVALUATION = Path("data/evaluation")
TEST_SET = Path("data/test_set")
EMBEDDINGS = Path("data/embeddings")
BASE = Path("models/base")

VALIDATION = "validation"
"""Folder in `EVALUATION` with the same tables of the validation split, for choices but never for results."""

SUMMARY = "summary.json"
"""The summary of a table by stage `validate`: `data/quarantine/<table>/summary.json`."""
