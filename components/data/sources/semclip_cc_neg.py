"""SemCLIP's rows of CC-Neg, in the folder of benchmark `cc_neg_semclip`, and the reader of both of SemCLIP's files.

The released code (src/dataset.py) splits rows, not images: most test rows of SugarCrepe++ show an image that also
trains. `prepare.exclude_test_by: images`, the default, keeps all rows of a test image out of training. `rows` is the
released split without the test and validation rows whose image trains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.data.listed_images import checked_files, image_folder
from components.data.source import Pair, Source, pairs_as_queries
from components.data.test_sets.files import TestSetFiles, released_splits, released_test_rows
from components.data.test_sets.readers import cc_neg

_TEXTS = ("caption", "paraphrased", "negation")


@dataclass(frozen=True)
class SemclipFile:
    """One of the two files.

    Attributes:
        tested: number of test rows, by the paper's count if the released rule gives another.
        known_as: folder of the images at their publisher, by which the leak guard identifies their names.
    """

    csv: str
    rows: int
    tested: int
    images: str
    known_as: str
    read: Callable[[Path], list[dict[str, Any]]]
    image: Callable[[Mapping[str, Any]], str]


def source_of(file: SemclipFile) -> Source:
    """The source of one file."""
    return Source(
        pairs=lambda settings: _pairs(settings, file),
        evaluation=pairs_as_queries,
        file=file.csv,
        how="get it from the authors of SemCLIP",
    )


def _pairs(settings: Settings, file: SemclipFile) -> Iterator[Pair]:
    """The pairs of all splits, at most `prepare.counts` of each."""
    folder = image_folder(settings.prepare)
    rows = _rows(folder / file.csv, file)
    counts = settings.prepare.counts.model_dump()
    for split, shared in _splits(rows, file, settings.prepare.exclude_test_by).items():
        rows_of = shared[: counts[split]]
        paths = [folder / file.images / file.image(row) for row in rows_of]
        samples = checked_files(paths, settings.prepare, f"put all images that {file.csv} names there")
        for row, sample in zip(rows_of, samples, strict=True):
            caption, paraphrase, negation = (row[column].strip() for column in _TEXTS)
            name = f"{file.known_as}/{file.image(row)}"
            yield Pair(split, sample, caption, name=name, paraphrase=paraphrase, negation=negation)


def _rows(path: Path, file: SemclipFile) -> list[dict[str, Any]]:
    """All rows."""
    if not path.is_file():
        raise InputError(f"{path} is missing: get it from the authors of SemCLIP")
    rows = file.read(path.parent)
    if len(rows) != file.rows and len(released_test_rows(len(rows))) != file.tested:
        raise InputError(
            f"{path} has {len(rows):,} of {file.rows:,} rows, so its last tenth by seed 42 is not the published test: "
            "download all of it"
        )
    for number, row in enumerate(rows):
        if None in row:
            raise InputError(f"{path}: row {number} (counted from 0) has more fields than columns: download it again")
        if Path(file.image(row)).name != file.image(row):
            raise InputError(f"{path}: row {number} names the image {file.image(row)!r:.80}, which is not a file name")
    return rows


def _splits(rows: Sequence[dict[str, Any]], file: SemclipFile, keep_out: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of each split, no image in two; rows without one of the texts are left out."""
    numbers = released_splits(len(rows))
    first, *others = ("train", "val", "test") if keep_out == "rows" else ("test", "val", "train")
    separate: dict[str, list[dict[str, Any]]] = {}
    taken: set[str] = set()
    for split in (first, *others):
        released = [rows[number] for number in numbers[split].tolist()]
        separate[split] = [row for row in released if file.image(row) not in taken]
        taken |= {file.image(row) for row in released}
    full = {
        split: [row for row in kept if all(row[column].strip() for column in _TEXTS)]
        for split, kept in separate.items()
    }
    if left_out := sum(map(len, separate.values())) - sum(map(len, full.values())):
        print(f"{file.csv}: {left_out:,} rows left out that lack a caption, a paraphrase or a negation")
    for split, kept in full.items():
        if not kept:
            raise InputError(
                f"{file.csv}: every image of split {split} is in another: set prepare.exclude_test_by to images"
            )
    return {split: full[split] for split in ("test", "val", "train")}


SOURCE = source_of(
    SemclipFile(
        csv=cc_neg.CSV,
        rows=cc_neg.ROWS,
        tested=cc_neg.HELD_OUT,
        images=cc_neg.IMAGES,
        known_as=cc_neg.IMAGES.rpartition("/")[2],
        read=lambda folder: cc_neg.semclip_rows(TestSetFiles(folder))[0],
        image=cc_neg.semclip_picture_name,
    )
)
