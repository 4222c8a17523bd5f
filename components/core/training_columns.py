"""Which validated table has which columns, and which file of a folder is which table.

What methods declare as columns, and what `reads` in params.yaml covers, is compared by these names.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from components.core.column_names import NEIGHBOUR
from components.core.errors import InputError
from components.core.records import (
    ABSENCES,
    DIFFERENCES,
    HARD_NEGATIVES,
    NEGATED_TERMS,
    NEGATIONS,
    PARAPHRASES,
    REWRITES,
    SEMCLIP_PARAPHRASES,
    SEMCLIP_ROWS,
    UNITS,
)
from components.core.table import Table

IMAGES = {"image": "id", "other_image": "other_id"}
"""Image columns and the column of pair ids that they come from."""

HOLDERS: dict[str, tuple[Table, tuple[str, ...]]] = {
    "paraphrases": (PARAPHRASES, ("paraphrase_1", "paraphrase_2")),
    "rewrites": (REWRITES, ("rewrite",)),
    "semclip_paraphrases": (SEMCLIP_PARAPHRASES, ("semclip_paraphrase",)),
    "negations": (NEGATIONS, ("negation",)),
    "semclip_rows": (SEMCLIP_ROWS, ("published_paraphrase", "published_negation")),
    "negated_terms": (NEGATED_TERMS, ("negated_term",)),
    "hard_negatives": (HARD_NEGATIVES, ("hard_negative",)),
    "absences": (ABSENCES, ("absence",)),
    "units": (UNITS, ("unit", "unit_foil")),
    "differences": (DIFFERENCES, ("difference", "other_caption", "other_id")),
}
"""Name -> the table and the columns that only it has."""

PREPARED = ("semclip_rows", "people_paraphrases")
"""The tables that stage `prepare` writes beside the pairs, where its source brings them; the others are validated."""

ALIKE = {"differences": ("differences_cub",), "paraphrases": ("people_paraphrases",)}
"""Tables of the same columns that a method reads in a table's place, where its entry `reads` their file."""


def holders_of(wanted: Collection[str]) -> list[str]:
    """The tables that hold some of the `wanted` columns, which may be images' or neighbours'.

    Raises:
        InputError: no table has one of them.
    """
    bare = {name.removeprefix(NEIGHBOUR) for name in wanted}
    needed = {IMAGES.get(name, name) for name in bare}
    known = {"id", "caption", *(column for _, columns in HOLDERS.values() for column in columns)}
    for unknown in sorted(needed - known):
        raise InputError(
            f"no training table has the column '{unknown}': known are {', '.join(sorted({*known, *IMAGES} - {'id'}))}; "
            "a new one is declared in HOLDERS of components/core/training_columns.py"
        )
    return [name for name, (_, only) in HOLDERS.items() if needed & set(only)]


def table_file(folder: Path, name: str) -> Path:
    """Where table `name` lies at or below `folder`; where it would lie if it is missing.

    `folder` may also be the file itself, or that of a table that is `ALIKE`.

    Raises:
        InputError: it lies there twice.
    """
    if folder.name in {f"{one}.parquet" for one in (name, *ALIKE.get(name, ()))}:
        return folder
    found = sorted(folder.rglob(f"{name}.parquet"))
    if len(found) > 1:
        raise InputError(f"{found[0]} and {found[1]} are the same table: remove the one that dvc.yaml does not name")
    return found[0] if found else folder / f"{name}.parquet"
