"""The base class of all blocks of settings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Seed = Annotated[int, Field(ge=0, lt=2**63)]
"""What NumPy and torch both take."""
Device = Literal["auto", "cpu", "cuda"]


class Block(BaseModel):
    """A frozen group of settings that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")
