"""A test set as a language model writes it: three queries for each caption."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from components.core.tables.records import WRITTEN_QUERIES
from components.core.tables.written_queries import FILE


def write_test_set(folder: Path, captions: Sequence[tuple[str, str]]) -> None:
    """Write the table of the queries of (image id, caption) pairs."""
    kinds = ("paraphrase", "negation", "swap")
    rows = [(image, caption, f"{kind} of {caption}", kind) for image, caption in captions for kind in kinds]
    columns = dict(zip(("image_id", "caption", "query", "kind"), map(list, zip(*rows, strict=True)), strict=True))
    by = {name: [name] * len(rows) for name in ("model", "prompt", "judge", "judge_prompt")}
    WRITTEN_QUERIES.write(folder / FILE, columns | by)
