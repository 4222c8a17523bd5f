"""The columns of each training table, and the file of each table in a folder."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from components.core.system.errors import InputError
from components.core.tables import NEIGHBOUR, records
from components.core.tables.table import Table

IMAGES = {"image": "id", "other_image": "other_id"}
"""Image column -> the column of pair ids from which it is read."""

HOLDERS: dict[str, tuple[Table, tuple[str, ...]]] = {
    "paraphrases": (records.PARAPHRASES, ("paraphrase_1", "paraphrase_2")),
    "rewrites": (records.REWRITES, ("rewrite",)),
    "semclip_paraphrases": (records.SEMCLIP_PARAPHRASES, ("semclip_paraphrase",)),
    "negations": (records.NEGATIONS, ("negation",)),
    "semclip_rows": (records.SEMCLIP_ROWS, ("published_paraphrase", "published_negation")),
    "negated_terms": (records.NEGATED_TERMS, ("negated_term",)),
    "hard_negatives": (records.HARD_NEGATIVES, ("hard_negative",)),
    "absences": (records.ABSENCES, ("absence",)),
    "units": (records.UNITS, ("unit", "unit_foil")),
    "differences": (records.DIFFERENCES, ("difference", "other_caption", "other_id")),
}
"""Name -> the table and its own columns."""

PREPARED = ("semclip_rows", "people_paraphrases")
"""The tables that stage `prepare` writes for some sources; all others are validated."""

ALIKE = {"differences": ("differences_cub",), "paraphrases": ("people_paraphrases",)}
"""Tables of the same columns that a method reads instead of a table if the entry's `train_data` names their file."""


def holders_of(wanted: Collection[str]) -> list[str]:
    """The tables with some of the `wanted` columns, including columns of images and neighbours."""
    bare = {name.removeprefix(NEIGHBOUR) for name in wanted}
    needed = {IMAGES.get(name, name) for name in bare}
    names = {"id", "caption", *(column for _, columns in HOLDERS.values() for column in columns)}
    for unknown in sorted(needed - names):
        raise InputError(
            f"no training table has the column '{unknown}': known are {', '.join(sorted({*names, *IMAGES} - {'id'}))}; "
            "a new one is declared in HOLDERS of components/core/tables/training_columns.py"
        )
    return [name for name, (_, only) in HOLDERS.items() if needed & set(only)]


def table_file(folder: Path, name: str) -> Path:
    """The file of table `name` in or below `folder`; the default file if it is missing.

    `folder` may also be the file itself, or the file of a table that is `ALIKE`.
    """
    if folder.name in {f"{table}.parquet" for table in (name, *ALIKE.get(name, ()))}:
        return folder
    files = sorted(folder.rglob(f"{name}.parquet"))
    if len(files) > 1:
        raise InputError(f"{files[0]} and {files[1]} are the same table: remove the one that dvc.yaml does not name")
    return files[0] if files else folder / f"{name}.parquet"
