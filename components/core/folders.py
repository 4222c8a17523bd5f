"""Where the stages write, relative to the project's folder."""

from __future__ import annotations

from pathlib import Path

PAIRS = Path("data/pairs")
EVALUATION = Path("data/evaluation")
EMBEDDINGS = Path("data/embeddings")
BASE = Path("models/base")
