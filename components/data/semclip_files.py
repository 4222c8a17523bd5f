"""SemCLIP's published files: rows of an image, a caption, its paraphrase and its negation, and their released split.

The released code (src/dataset.py) shuffles the rows by seed 42; the last tenth tests, the tenth before it validates. It
splits rows, not images: of SugarCrepe++'s test rows most show an image that also trains. `prepare.keep_out: images`,
the default, therefore keeps all rows of a tested image out of training; `rows` is the released way, in which the pairs
to test and to validate with here, which the pipeline scores, are those whose image does not train.

Assumed, as the files carry no description: a row's three texts are about its image, in the columns that the released
code reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.core.errors import InputError
from components.core.settings import Settings
from components.data.listed_images import look_at
from components.data.source import EvaluationTables, Pair, Source, caption_queries
from components.test_sets.draws import released_splits, released_test_rows

_TEXTS = ("caption", "paraphrased", "negation")


@dataclass(frozen=True)
class SemclipFile:
    """One of the two files.

    Attributes:
        csv: its name in `prepare.folder`.
        rows: how many it is published with.
        tested: how many of them test, by the paper's own count where that is another than the released rule gives.
        images: folder of the images, below `prepare.folder`.
        known_as: folder in which the images' publisher keeps them; what the leak guard knows their names by.
        read: its rows, in its order; refuses what is damaged.
        image: the name of a row's image file.
    """

    csv: str
    rows: int
    tested: int
    images: str
    known_as: str
    read: Callable[[Path], list[dict[str, Any]]]
    image: Callable[[Mapping[str, Any]], str]


def source_of(file: Callable[[], SemclipFile], csv: str) -> Source:
    """The source of one file.

    Args:
        file: imports what reads it, which brings torch along, and so only once it is needed.
        csv: its name.
    """
    return Source(
        pairs=lambda settings: _pairs(settings, file()),
        evaluation=_evaluation,
        file=csv,
        how="get it from the authors of SemCLIP",
    )


def _pairs(settings: Settings, file: SemclipFile) -> Iterator[Pair]:
    """The pairs of all splits; `prepare.counts` says how many of each at most."""
    folder = settings.prepare.folder
    if folder is None:
        raise InputError(f"params.yaml: prepare.folder is missing: name the folder of {file.csv} there")
    rows = _rows(folder / file.csv, file)
    counts = settings.prepare.counts.model_dump()
    for split, shared in _splits(rows, file, settings.prepare.keep_out).items():
        rows_of = shared[: counts[split]]
        paths = [folder / file.images / file.image(row) for row in rows_of]
        if missing := next((path for path in paths if not path.is_file()), None):
            raise InputError(f"{missing} is missing: put all images that {file.csv} names there")
        for row, seen in zip(rows_of, look_at(paths, settings.prepare), strict=True):
            caption, paraphrase, negation = (row[column].strip() for column in _TEXTS)
            known = f"{file.known_as}/{seen.name}"
            yield Pair(split, seen, caption, name=known, paraphrase=paraphrase, negation=negation)


def _rows(path: Path, file: SemclipFile) -> list[dict[str, Any]]:
    """All rows.

    Raises:
        InputError: the file is missing or damaged, has another number of rows than published, so that the released
            split would be another, a row has more fields than columns, or names an image outside its folder.
    """
    if not path.is_file():
        raise InputError(f"{path} is missing: get it from the authors of SemCLIP")
    rows = file.read(path.parent)
    if len(rows) != file.rows and len(released_test_rows(len(rows))) != file.tested:
        raise InputError(
            f"{path} has {len(rows):,} of {file.rows:,} rows, so its last tenth by seed 42 is not the published test: "
            "fetch all of it"
        )
    for number, row in enumerate(rows):
        if None in row:
            raise InputError(f"{path}: row {number} (counted from 0) has more fields than columns: fetch it again")
        if Path(file.image(row)).name != file.image(row):
            raise InputError(f"{path}: row {number} names the image {file.image(row)!r:.80}, which is no file name")
    return rows


def _splits(rows: Sequence[dict[str, Any]], file: SemclipFile, keep_out: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of each split, no image in two; rows without one of the texts are left out."""
    numbers = released_splits(len(rows))
    first, *others = ("train", "val", "test") if keep_out == "rows" else ("test", "val", "train")
    found: dict[str, list[dict[str, Any]]] = {}
    taken: set[str] = set()
    for split in (first, *others):
        own = [rows[number] for number in numbers[split].tolist()]
        found[split] = [row for row in own if file.image(row) not in taken]
        taken |= {file.image(row) for row in own}
    full = {
        split: [row for row in own if all(row[column].strip() for column in _TEXTS)] for split, own in found.items()
    }
    if left_out := sum(map(len, found.values())) - sum(map(len, full.values())):
        print(f"{file.csv}: {left_out:,} rows left out that lack a caption, a paraphrase or a negation")
    for split, own in full.items():
        if not own:
            raise InputError(f"{file.csv}: every image of split {split} is in another: set prepare.keep_out to images")
    return {split: full[split] for split in ("test", "val", "train")}


def _evaluation(_settings: Settings, test: list[Pair]) -> EvaluationTables:
    """The caption of each test image as a query."""
    return caption_queries((pair.image_id, pair.caption) for pair in test)
