"""Settings of `validate`: what each table of answers must fulfil."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveInt

from components.core.settings.block import Block


class Limits(Block):
    """What a row of a synthesised table must fulfil, and what share of its rows must; null is no limit."""

    min_words: PositiveInt = 3
    max_words: PositiveInt = 30
    min_characters: int = Field(0, ge=0)
    """Characters of a difference."""
    min_similarity: float = Field(0.3, ge=-1, le=1)
    max_similarity: float | None = Field(None, ge=-1, le=1)
    measure_similarity: bool = True
    """Measure how close texts are in meaning; false leaves both limits above out, and MiniLM's milliseconds a text."""
    min_new_words: int = Field(2, ge=0)
    """Content words that the source does not have, of x'' and of rewrites."""
    min_overlap: float = Field(0.0, ge=0, le=1)
    """Share of a hard negative's content words that the caption has."""
    min_score: float | None = Field(None, ge=0, le=1)
    """What the judge of differences must give one; null keeps all scores."""
    language: Literal["en"] | None = "en"
    """Reject texts that are surely in another language; null takes any."""
    keep_numbers: bool = True
    """Want the source's numbers, in digits or words, in paraphrases and rewrites."""
    keep_names: bool = True
    """Want the source's capitalised names in paraphrases and rewrites."""
    reject_injections: bool = True
    """Reject rows whose caption or text tries to instruct a language model."""
    filters: Literal["paper"] | bool = True
    """Reject answers by what is measured of them. `paper` rejects only by what the table's paper or its released code
    rejects by; false by nothing (PC-CLIP's table 14). Both still measure all, and still reject answers that are too
    long for the encoder or give evaluation away."""
    judged: bool = True
    """Take what the judge let pass or wrote anew, of a table whose answers have a judge; false takes the candidates."""
    min_accepted_share: float = Field(0.0, ge=0, le=1)
    max_echo_share: float = Field(1.0, ge=0, le=1)
    max_leak_share: float = Field(1.0, ge=0, le=1)


class Checked(Limits):
    """A synthesised table: the folder it is written to, and the limits that differ from those of every table."""

    folder: str = Field(pattern=r"^data/(validated|untrained)(/[A-Za-z0-9_-]+)*$")
    """Where its rows are written: methods name it, or one above it, in `reads`. No method reads `data/untrained`."""


class Validate(Limits):
    """The limits of every table; `tables` names the tables, and has what differs for some."""

    check_facts: bool
    """Check sizes, objects, relation and colour against the scene (embedded world only)."""
    shard_rows: PositiveInt = 50_000
    """Rows that are held in memory at once; no result depends on it."""
    tables: dict[str, Checked] = Field(default_factory=dict)

    def limits(self, table: str) -> Limits:
        """The limits of one table."""
        found = self.tables.get(table)
        own = found.model_dump(exclude_unset=True, exclude={"folder"}) if found else {}
        return Limits.model_validate(self.model_dump(include=set(Limits.model_fields)) | own)

    def file(self, table: str) -> Path:
        """Where a table's accepted rows are written."""
        return Path(self.tables[table].folder, f"{table}.parquet")
