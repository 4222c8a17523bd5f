"""Stage `prepare`: image-caption pairs with splits, and the benchmark tables of the test and validation splits."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from components.core.pictures.folder import heic_note
from components.core.pictures.rgb import HEIC_FIX
from components.core.settings import Settings, load_settings
from components.core.system.checking import check_settings
from components.core.system.errors import InputError
from components.core.system.progress import track
from components.core.system.project import in_project, start
from components.core.tables import folders
from components.core.tables.files import atomic_folder
from components.core.tables.records import PAIRS, PEOPLE_PARAPHRASES, SEMCLIP_ROWS, SPLITS, UNUSABLE
from components.core.tables.table import Table
from components.core.tables.training_columns import PREPARED
from components.core.tables.work_shard import Shard
from components.core.text import content_words
from components.core.text.languages import words_of
from components.core.tracking import tracked_run
from components.data.checked_pictures import check_now
from components.data.leak_guard import Guard
from components.data.people_captions import paraphrase_rows
from components.data.source import Pair, Unusable
from components.data.sources import find_source

_BLOCK = 1024
_LOST_SHARE = 0.3
"""Share of the words that a noisy caption loses."""
_NAMED_WORDS = 3
"""Number of words in a noisy caption that is a file name."""
TEXTS, PEOPLE = PREPARED


def run(settings: Settings, pairs_folder: Path = folders.PAIRS, evaluation_folder: Path = folders.EVALUATION) -> None:
    """Write `<split>.parquet` for every split, one Parquet file per benchmark table, and `leaks/` next to the pairs.

    Images that cannot be used are listed in `unusable.parquet` next to the pairs.
    """
    guard = Guard.of(settings.prepare)
    source, unusable = find_source(settings.prepare.source), list[Unusable]()
    pairs = track(source.usable(settings, unusable), "prepare", settings.prepare.counts.total, "pair")
    with atomic_folder(pairs_folder) as folder:
        clean = guard.clean(pairs)
        # With `exclude_test_by: rows`, splits may share images.
        separate = clean if settings.prepare.exclude_test_by == "rows" else _in_one_split(clean, unusable)
        kept = _write_splits(separate, folder)
        train = folder / "train.parquet"
        people = _people_rows(train) if source.people else []
        if settings.prepare.train_captions != "all":
            captions = _keep_one_each(train, is_noisy=settings.prepare.train_captions == "noisy")
            people = [(row[0], row[1], captions[row[0]], *row[3:]) for row in people if row[0] in captions]
        _write_rows(PEOPLE_PARAPHRASES, folder / f"{PEOPLE}.parquet", people)
        if unusable:
            UNUSABLE.write(folder / f"{UNUSABLE.name}.parquet", {"reason": [lost.reason for lost in unusable]})
            images = sum(lost.images for lost in unusable)
            if heic := sum(lost.images for lost in unusable if HEIC_FIX in lost.reason):
                print(f"prepare: {heic_note(heic)}")
            left_out = f"{images} images and {sum(not lost.images for lost in unusable)} rows without a usable caption"
            print(f"prepare: {left_out} left out: {pairs_folder / UNUSABLE.name}.parquet has the reasons")
    with atomic_folder(pairs_folder.with_name("leaks")) as folder:
        guard.write(folder)
    if guard.benchmarks is not None:
        print(f"prepare: {guard.counts().summary}")
    with atomic_folder(evaluation_folder) as folder:
        for split, place in (("test", folder), ("val", folder / folders.VALIDATION)):
            for name, (table, rows) in source.evaluation(settings, kept[split]).items():
                table.write(place / f"{name}.parquet", rows)


def run_tracked(settings: Settings) -> None:
    """`run` as an MLflow run, with the number of pairs of each split as metrics."""
    source = settings.prepare.source
    params = settings.prepare.model_dump(mode="json", exclude={"state"}) | {"world": settings.dataset.model_dump()}
    with tracked_run("prepare", source, settings, params, {}) as tracked:
        begun = time.monotonic()
        run(settings)
        counts = {split: PAIRS.count(folders.PAIRS / f"{split}.parquet") for split in SPLITS}
        unusable = folders.PAIRS / f"{UNUSABLE.name}.parquet"
        tracked.log_metrics(counts | {"unusable": UNUSABLE.count(unusable) if unusable.is_file() else 0})
        tracked.log_speed(sum(counts.values()), begun)
        tracked.log_output(folders.PAIRS)


def check(settings: Settings, shard: Shard) -> None:
    """Check a shard of the source's pictures, and store the results in `prepare.state`; write no tables."""
    source = find_source(settings.prepare.source)
    if source.parts is None:
        raise InputError(
            f"--shard: the pictures of source '{settings.prepare.source}' cannot be split: run prepare without --shard"
        )
    parts = source.parts(settings.prepare)[shard.number :: shard.of]
    print(f"prepare shard {shard}: made {check_now(parts, settings.prepare)}")


def _in_one_split(pairs: Iterable[Pair], unusable: list[Unusable]) -> Iterator[Pair]:
    """The pairs, without those of an image (by content) that an earlier pair has in another split."""
    split_of: dict[bytes, str] = {}
    for pair in pairs:
        first = split_of.setdefault(bytes.fromhex(pair.image_id), pair.split)
        if first == pair.split:
            yield pair
        else:
            place = pair.name or f"with the caption '{pair.caption[:60]}'"
            unusable.append(Unusable(f"image {place} of split {pair.split} is also in split {first}"))


def _write_splits(pairs: Iterable[Pair], folder: Path) -> dict[str, list[Pair]]:
    """Write all splits block by block; the test and validation pairs are held in memory and returned.

    A training pair may be repeated with other published texts: it is written once, with a row of texts for each.
    """
    waiting: dict[str, list[Pair]] = {split: [] for split in SPLITS}
    seen: set[bytes] = set()
    samples: Counter[bytes] = Counter()
    texts: list[tuple[object, ...]] = []
    kept: dict[str, list[Pair]] = {"test": [], "val": []}
    with ExitStack() as files:
        append = {split: files.enter_context(PAIRS.writer(folder / f"{split}.parquet")) for split in SPLITS}
        for pair in pairs:
            key = bytes.fromhex(pair.id)
            repeated = key in seen
            seen.add(key)
            if pair.split == "train" and pair.paraphrase and pair.negation:
                texts.append((pair.id, samples[key], pair.caption, pair.paraphrase, pair.negation))
                samples[key] += 1
            if repeated and pair.paraphrase:
                continue
            if pair.split in kept:
                kept[pair.split].append(pair)
            block = waiting[pair.split]
            block.append(pair)
            if len(block) == _BLOCK:
                append[pair.split](_table(block))
                block.clear()
        for split, block in waiting.items():
            append[split](_table(block))
    _write_rows(SEMCLIP_ROWS, folder / f"{TEXTS}.parquet", texts)
    return kept


def _people_rows(train: Path) -> list[tuple[str, int, str, str, str]]:
    """Rows of `people_paraphrases`: captions of an image by several people are paraphrases of each other."""
    columns = PAIRS.read(train, ["id", "image_id", "caption"]).to_pandas()
    images_of = (image for _, image in columns.groupby("image_id", sort=False))
    people = (paraphrase_rows(image["id"].tolist(), image["caption"].tolist()) for image in images_of)
    return list(chain.from_iterable(people))


def _keep_one_each(train: Path, *, is_noisy: bool) -> dict[str, str]:
    """Keep the first pair of every training picture, made noisy on demand; returns the captions by the pairs' ids.

    Captions by several people train a base that knows many wordings of each picture, which few real data sets have.
    """
    first: dict[str, dict[str, Any]] = {}
    for row in PAIRS.read(train).to_pylist():
        first.setdefault(row["image_id"], row)
    if is_noisy:
        for image, row in first.items():
            row["caption"] = _noisy(row["caption"], image)
    rows = list(first.values())
    PAIRS.write(train, pa.Table.from_pylist(rows, schema=PAIRS.schema))
    return {row["id"]: row["caption"] for row in rows}


def _noisy(caption: str, image_id: str) -> str:
    """The caption in lower case without some words, or, for one picture in three, as a file name.

    The picture's id decides, so that a caption is always the same.

    >>> _noisy("A brown dog is running through the tall grass .", "picture 7")
    'a dog is running the tall grass'
    >>> _noisy("A brown dog is running through the tall grass .", "picture 4")
    'brown-dog-running_3555.jpg'
    """
    draw, words = random.Random(f"noise {image_id}"), words_of(caption)
    if draw.random() < 1 / 3:
        content = content_words(caption)
        named = [word for word in words if word in content][:_NAMED_WORDS] or words
        return f"{'-'.join(named)}_{draw.randrange(10_000):04}.jpg"
    kept = [word for word in words if draw.random() >= _LOST_SHARE]
    return " ".join(kept or words)


def _write_rows(table: Table, path: Path, rows: Sequence[tuple[object, ...]]) -> None:
    """Write the rows; no file without rows."""
    if rows:
        table.write(path, dict(zip(table.schema.names, map(list, zip(*rows, strict=True)), strict=True)))


def _table(pairs: list[Pair]) -> pa.Table:
    return pa.Table.from_pylist([pair.row() for pair in pairs], schema=PAIRS.schema)


@in_project
def main(
    shard: Annotated[
        str | None,
        typer.Option(
            help="Only check this shard of the pictures, such as 0/4, and store the results in prepare.state."
        ),
    ] = None,
) -> None:
    """Write image-caption pairs with splits, and the tables of the benchmarks.

    Examples: python -m components.data.prepare; ... --shard 0/4
    """
    settings = load_settings()
    check_settings(settings)
    if shard is None:
        run_tracked(settings)
    else:
        check(settings, Shard.parse(shard))


if __name__ == "__main__":
    start(main)
