"""Where the stages write, relative to the project's folder."""

from __future__ import annotations

from pathlib import Path

PAIRS = Path("data/pairs")
VALIDATED = Path("data/validated")
QUARANTINE = Path("data/quarantine")
EVALUATION = Path("data/evaluation")
EMBEDDINGS = Path("data/embeddings")
BASE = Path("models/base")

VALIDATION = "validation"
"""Below `EVALUATION`: the same tables of the validation split, which choices are made by and no result is of."""

SUMMARY = "summary.json"
"""What stage `validate` concluded of a table: `data/quarantine/<table>/summary.json`."""
