"""Readers of benchmark tables: names of classes, classes two at a time, and queries.

The input is a table of stage `prepare`, or `.tsv` files of `cliptune evaluate` with one row of texts per line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path

from components.captions.prompting.inputs.readers import Accepts, Ask, accepted, paired
from components.captions.prompting.request import InputRow
from components.core.system.errors import InputError
from components.core.tables.files import content_hash
from components.core.tables.records import CAPTION_QUERIES, LABELS

_TABLE = ".parquet"


def read_classes(path: Path, accepts: Accepts, ask: Ask) -> Iterator[InputRow]:
    """The distinct class names of a `LABELS` table or of lines, sorted, as input `class_name`.

    A class's id is its name's hash.
    """
    if path.suffix == _TABLE:
        names = {name for block in LABELS.blocks(path, ["label"]) for name in block.column("label").to_pylist()}
    else:
        names = {name for (name,) in _rows(path, 1)}
    classes = (InputRow(content_hash(name), 0, {"class_name": name}) for name in sorted(names))
    yield from islice(accepted(classes, accepts, ask.skipped), ask.limit)


def read_class_pairs(path: Path, accepts: Accepts, ask: Ask) -> Iterator[InputRow]:
    """Two classes at a time, as `class_name` and `other_class_name`.

    Lines name the pairs, each used once. From a `LABELS` table pairs are drawn, see `paired`.
    """
    if path.suffix == _TABLE:
        yield from paired(list(read_classes(path, accepts, ask)), ask.pairs, ask.seed)
        return
    for name, pairs in groupby(sorted(set(_rows(path, 2))), key=itemgetter(0)):
        sources = (
            InputRow(content_hash(name), 0, {"class_name": name, "other_class_name": other}, content_hash(other))
            for _, other in pairs
        )
        for sample, source in enumerate(accepted(sources, accepts, ask.skipped)):
            yield InputRow(source.id, sample, source.inputs, source.other_id)


def read_queries(path: Path, accepts: Accepts, ask: Ask) -> Iterator[InputRow]:
    """The first plain texts of a `CAPTION_QUERIES` table, or the first lines, each once, as input `query`.

    Several texts of an image are its samples; a line's id is its text's hash.
    """
    if path.suffix == _TABLE:
        found = _queries(path)
    else:
        found = (InputRow(content_hash(text), 0, {"query": text}) for (text,) in dict.fromkeys(_rows(path, 1)))
    return islice(accepted(found, accepts, ask.skipped), ask.limit)


def _rows(path: Path, width: int) -> Iterator[tuple[str, ...]]:
    """The lines of the file, or of all `.tsv` files below the folder in the order of their names, as `width` texts."""
    files = sorted(path.rglob("*.tsv")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path} has no .tsv file: run `cliptune evaluate` on the benchmark that needs it")
    for file in files:
        try:
            lines = file.read_text("utf-8").removesuffix("\n").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{file} is missing or damaged ({error}): run `cliptune evaluate --overwrite`") from None
        for number, line in enumerate(lines, 1):
            row = tuple(text.strip() for text in line.split("\t"))
            if len(row) != width or not all(row):
                raise InputError(f"{file}: line {number} does not have {width} texts separated by tabs: fix it")
            yield row


def _queries(path: Path) -> Iterator[InputRow]:
    samples: Counter[str] = Counter()
    for block in CAPTION_QUERIES.blocks(path):
        for row in block.to_pylist():
            if row["register"] == "plain":
                yield InputRow(row["image_id"], samples[row["image_id"]], {"query": row["text"]})
                samples[row["image_id"]] += 1
