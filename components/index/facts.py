"""`index.json` lists the files of an index and its measured recall. Other files are not part of the index.

Files have numbers instead of names, so an edited `index.json` cannot point outside the index's folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, StringConstraints

from components.core.system.discovery import choose
from components.core.system.errors import InputError
from components.core.tables.files import content_hash
from components.core.tables.record_files import read_record, write_record

FACTS = "index.json"
VECTORS, ROWS, STRUCTURES = "vectors", "rows", "search"
"""Folders of an index: a `.npy` and an `.arrow` file for each segment, and the lists of approximate search."""
EXACT, IVF_PQ, AUTO = "exact", "ivf_pq", "auto"
KINDS = (EXACT, IVF_PQ)
"""Kinds of search: every vector is compared, or FAISS lists give candidates (`components.index.search`)."""
PREPARATION: Final = 2
BUILD_AGAIN = "build the index again"

_Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
ColumnKind = Literal["string", "int64", "double", "bool"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Segment(_Frozen):
    """Rows that were added together; their files never change."""

    rows: PositiveInt
    vectors_sha256: _Sha256
    rows_sha256: _Sha256


class Structure(_Frozen):
    """The file of approximate search; the numbers of its versions increase."""

    number: NonNegativeInt
    bytes: PositiveInt
    sha256: _Sha256


class Recall(_Frozen):
    """The share of the ten best images of exact search that an encoder's text queries return.

    `rows` are those of the index at that time; `effort` is the number of lists probed.
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
        preparation: how pictures become a tower's input: 1, as they are stored; `PREPARATION`, upright.
        encoder: name of an encoder with the image tower, for messages.
        effort: the largest that a measured encoder needs; 0 for exact search.
        recalls: one for each encoder that was measured on these rows.
    """

    format: Literal[1] = 1
    preparation: Literal[1, 2] = 1
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
        return sum(segment.rows for segment in self.segments)


def vectors_file(folder: Path, segment: int) -> Path:
    """Unit vectors of a segment, `[rows, dim]`."""
    return folder / VECTORS / f"{segment:06d}.npy"


def rows_file(folder: Path, segment: int) -> Path:
    """Captions, files and further columns of a segment's images."""
    return folder / ROWS / f"{segment:06d}.arrow"


def structure_file(folder: Path, number: int) -> Path:
    """The lists of approximate search."""
    return folder / STRUCTURES / f"{number:06d}.bin"


def files_of(folder: Path, facts: Facts) -> list[Path]:
    """Every file of an index except `index.json`."""
    numbers = range(len(facts.segments))
    found = [path for number in numbers for path in (vectors_file(folder, number), rows_file(folder, number))]
    return found if facts.structure is None else [*found, structure_file(folder, facts.structure.number)]


def _hash(facts: Facts) -> str:
    # Earlier versions wrote no `preparation`.
    left_out = {"preparation"} if facts.preparation == 1 else None
    return content_hash(facts.model_copy(update={"sha256": ""}).model_dump_json(exclude=left_out))


def write_facts(folder: Path, facts: Facts) -> Facts:
    """Write `index.json` atomically, with its hash; only this changes an index."""
    sealed = facts.model_copy(update={"sha256": _hash(facts)})
    write_record(folder / FACTS, sealed)
    return sealed


def read_facts(folder: Path) -> Facts:
    """Read `index.json`; the files that it lists need not exist."""
    path = folder / FACTS
    refuse_link(path)
    facts = read_record(Facts, path, "make one with `cliptune index build`", BUILD_AGAIN)
    if facts.sha256 != _hash(facts):
        raise InputError(f"{path} was edited or damaged (its sha256 does not match): {BUILD_AGAIN}")
    return facts


def refuse_link(path: Path) -> None:
    """Raise `InputError` where a file of an index, or its folder in the index, is a symbolic link."""
    for checked in (path, path.parent) if path.parent.name in {VECTORS, ROWS, STRUCTURES} else (path,):
        if checked.is_symlink():
            raise InputError(f"{checked} is a link: put the file itself there, or {BUILD_AGAIN}")


def choose_kind(name: str, rows: int) -> str:
    """`name`, or for `auto` the kind for so many rows."""
    if name == AUTO:
        return EXACT if rows <= 1_000_000 else IVF_PQ
    return choose(list(KINDS), name, "--kind")
