"""`index.json`: what an index is made of and was measured to find. A file that it does not name is no part of it.

Files have numbers and no names, so that an edited `index.json` can point to nothing outside of the index's folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, StringConstraints

from components.core.errors import InputError
from components.core.files import content_hash
from components.core.record_files import read_record, write_record

FACTS = "index.json"
VECTORS, ROWS, STRUCTURES = "vectors", "rows", "search"
"""Folders of an index: a `.npy` and an `.arrow` file for each segment, and what a kind of search writes."""
BUILD_AGAIN = "build the index again"

_Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
ColumnKind = Literal["string", "int64", "double", "bool"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Segment(_Frozen):
    """Rows that were added together; its files never change."""

    rows: PositiveInt
    vectors_sha256: _Sha256
    rows_sha256: _Sha256


class Structure(_Frozen):
    """The file that an approximate kind searches; the one before it has a lower number."""

    number: NonNegativeInt
    bytes: PositiveInt
    sha256: _Sha256


class Recall(_Frozen):
    """How many of the ten best images of exact search an encoder's text queries find.

    Attributes:
        encoder: its name.
        encoder_sha256: what tells it from others of the name.
        kind: how was searched.
        rows: of the index at that time.
        queries: texts that were asked.
        effort: how far was searched: usearch's expansion, faiss's probes.
        recall_at_10: mean over the queries.
    """

    encoder: str
    encoder_sha256: str
    kind: str
    rows: PositiveInt
    queries: PositiveInt
    effort: PositiveInt
    recall_at_10: Annotated[float, Field(ge=0, le=1)]


class Facts(_Frozen):
    """An index as a whole.

    Attributes:
        kind: the file of `components/index/kinds` that searches it.
        dim: numbers of a vector.
        image_tower_sha256: the tower that made the vectors.
        encoder: whose tower that was, for messages.
        columns: further columns of the rows.
        segments: in the order of their numbers, from 0 on.
        structure: None for a kind that needs none.
        effort: the largest that a measured encoder needs; 0 for exact search.
        recalls: one for each encoder that was measured on these rows.
        sha256: of all the above.
    """

    format: Literal[1] = 1
    kind: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
    dim: Annotated[int, Field(ge=1, le=1 << 16)]
    image_tower_sha256: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    encoder: str
    columns: dict[str, ColumnKind] = {}
    segments: tuple[Segment, ...]
    structure: Structure | None = None
    effort: NonNegativeInt = 0
    recalls: tuple[Recall, ...] = ()
    sha256: str = ""

    @property
    def rows(self) -> int:
        """Images of the index."""
        return sum(segment.rows for segment in self.segments)


def vectors_file(folder: Path, segment: int) -> Path:
    """Unit vectors of a segment, `[rows, dim]`."""
    return folder / VECTORS / f"{segment:06d}.npy"


def rows_file(folder: Path, segment: int) -> Path:
    """What is known of a segment's images."""
    return folder / ROWS / f"{segment:06d}.arrow"


def structure_file(folder: Path, number: int) -> Path:
    """What an approximate kind searches."""
    return folder / STRUCTURES / f"{number:06d}.bin"


def files_of(folder: Path, facts: Facts) -> list[Path]:
    """Every file of an index beside `index.json`."""
    numbers = range(len(facts.segments))
    found = [path for number in numbers for path in (vectors_file(folder, number), rows_file(folder, number))]
    return found if facts.structure is None else [*found, structure_file(folder, facts.structure.number)]


def _hash(facts: Facts) -> str:
    return content_hash(facts.model_copy(update={"sha256": ""}).model_dump_json())


def write_facts(folder: Path, facts: Facts) -> Facts:
    """Write `index.json`, whole or not at all: from here on the index is what it says."""
    sealed = facts.model_copy(update={"sha256": _hash(facts)})
    write_record(folder / FACTS, sealed)
    return sealed


def read_facts(folder: Path) -> Facts:
    """What `index.json` says, whose files need not be there.

    Raises:
        InputError: there is no index, or `index.json` is damaged or was edited.
    """
    path = folder / FACTS
    refuse_link(path)
    facts = read_record(Facts, path, "make one with `cliptune index build`", BUILD_AGAIN)
    if facts.sha256 != _hash(facts):
        raise InputError(f"{path} was edited or damaged (its sha256 is of another content): {BUILD_AGAIN}")
    return facts


def refuse_link(path: Path) -> None:
    """Raise `InputError` where a file of an index, or its folder in the index, is a link to somewhere else."""
    for one in (path, path.parent) if path.parent.name in {VECTORS, ROWS, STRUCTURES} else (path,):
        if one.is_symlink():
            raise InputError(f"{one} is a link: put the file itself there, or {BUILD_AGAIN}")
