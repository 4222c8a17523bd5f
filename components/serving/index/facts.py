"""`index.json`: what an index is; the folder's other files hold its rows, see `components.serving.index.stored`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from components.core.system.discovery import choose
from components.core.system.errors import InputError
from components.core.tables import formats
from components.core.tables.record_files import read_record, write_record

FACTS = "index.json"
EXACT, LANCE, AUTO = "exact", "lance", "auto"
KINDS = (EXACT, LANCE)
"""Every vector is compared with a query, or a table of LanceDB is searched, approximately where it is large."""
BUILD_AGAIN = "build the index again"
MOST_EXACT = 1_000_000
"""Kind `auto` is `exact` up to so many images."""


class Facts(BaseModel):
    """An index as a whole.

    Attributes:
        encoder: name of an encoder with the image tower, for messages.
        rows: of kind `exact`; the table of kind `lance` counts its own.
    """

    model_config = ConfigDict(frozen=True)

    format: int = formats.INDEX
    kind: str
    dim: Annotated[int, Field(ge=1, le=1 << 16)]
    image_tower_sha256: Annotated[str, Field(min_length=1, max_length=128)]
    encoder: str
    rows: PositiveInt | None = None


def write_facts(folder: Path, facts: Facts) -> None:
    """Write `index.json`."""
    write_record(folder / FACTS, facts)


def read_facts(folder: Path) -> Facts:
    """Read `index.json`; raises `InputError` if it is missing, damaged or of another format."""
    facts = read_record(Facts, folder / FACTS, "make one with `cliptune index build`", BUILD_AGAIN, formats.INDEX)
    if facts.format < formats.INDEX:
        raise InputError(
            f"{folder} has format {facts.format}, this version reads {formats.INDEX}: build it again, "
            f"`cliptune index build <new folder> --from <its pictures> --encoder {facts.encoder}`"
        )
    return facts


def choose_kind(name: str, rows: int | None) -> str:
    """`name`, or for `auto` the kind for so many rows; raises `InputError` if its package is missing."""
    kind = choose(list(KINDS), name, "--kind") if name != AUTO else LANCE if (rows or 0) > MOST_EXACT else EXACT
    if kind == LANCE and find_spec("lancedb") is None:
        raise InputError("kind 'lance' needs the package: pip install lancedb, or give --kind exact")
    return kind
