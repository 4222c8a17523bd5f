"""Sources of a folder whose images are listed in a file; these sources differ only in the format of that file.

Images are identified by content. A test or validation image makes one pair, with its first caption; the other captions
of a test image are queries too. A training image makes a pair with each of its captions.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from math import fsum
from operator import attrgetter
from pathlib import Path

from more_itertools import chunked, map_reduce

from components.core.pictures.folder import check_picture_file, read_picture
from components.core.settings import Counts, Prepare, Settings
from components.core.system.errors import InputError
from components.core.system.user_files import Bound, RefusedError, is_file
from components.core.tables.files import content_hash
from components.core.tables.records import PARAPHRASE_QUERIES
from components.data.checked_pictures import checked
from components.data.described import CaptionTally, Described, first_copies
from components.data.people_captions import evaluation_tables
from components.data.source import (
    HELD_OUT_FIRST,
    EvaluationTables,
    Pair,
    PictureChunk,
    Sample,
    Source,
    Unusable,
    caption_queries,
    drawn_at,
    filled,
    heic_together,
)

_CHUNK = 512
"""Pictures that are checked together."""

Listing = tuple[Path, list[Pair | Unusable]]
"""The folder of the images, and what `components.data.row_fields.listed_pairs` makes of the rows that list them."""


def listed_source(
    read: Callable[[Prepare], Listing],
    find: Callable[[Path], str | None],
    file: str,
    how: str,
    *,
    people: bool = False,
    several: Callable[[Path], bool] = lambda _folder: False,
) -> Source:
    """A source of the images that `read` lists in `prepare.folder`; for the other arguments see `Source`.

    `several` says whether more than one file of a folder has captions.
    """

    def list_in(folder: Path) -> Path:
        return folder / (find(folder) or file)

    return Source(
        pairs=lambda settings: _pairs(settings, list_in(image_folder(settings.prepare)), *read(settings.prepare)),
        evaluation=lambda _settings, test: _evaluation(test, people),
        describe=lambda settings: _describe(*read(settings), settings.picture_bound),
        find=find,
        file=file,
        how=how,
        people=people,
        watched=lambda folder: folder if several(folder) else list_in(folder),
        parts=lambda settings: _chunks(*read(settings), settings.picture_bound),
        has_fields=True,
    )


def image_folder(settings: Prepare) -> Path:
    """`prepare.folder`."""
    if settings.folder is None:
        raise InputError(f"params.yaml: prepare.source '{settings.source}' needs prepare.folder: set it to the images")
    if not settings.folder.is_dir():
        raise InputError(f"image folder {settings.folder} does not exist: correct prepare.folder in params.yaml")
    return settings.folder


def checked_files(files: Sequence[Path], settings: Prepare, fix: str) -> list[Sample]:
    """The checked pictures of these files, in order; a repeated file is read once."""
    if missing := next((file for file in files if not is_file(file)), None):
        raise InputError(f"{missing} is missing: {fix}")
    images = [Sample(name=str(file)) for file in dict.fromkeys(files)]
    samples: dict[str, Sample] = {}
    for sample in checked(_picture_chunks(None, images, settings.picture_bound), settings):
        if isinstance(sample, Unusable):
            raise InputError(sample.reason)
        samples[sample.file] = sample
    return [samples[str(file)] for file in files]


def _chunks(folder: Path, listed: Iterable[Pair | Unusable], most: Bound) -> list[PictureChunk]:
    """Every image of a listing once, in chunks."""
    return _picture_chunks(folder, _images(listed).values(), most)


def _images(listed: Iterable[Pair | Unusable]) -> dict[str, Sample]:
    """Name of an image -> the image as its first pair has it."""
    images: dict[str, Sample] = {}
    for one in listed:
        if isinstance(one, Pair):
            images.setdefault(one.image.name, one.image)
    return images


def _picture_chunks(folder: Path | None, images: Iterable[Sample], most: Bound) -> list[PictureChunk]:
    """Pictures that are not read yet, in chunks; without a folder, names are paths."""
    return [
        PictureChunk(
            f"{_stamp(folder or Path(), (image.name for image in block))} {most.bytes}",
            partial(_read_images, folder, block, most),
            len(block),
        )
        for block in chunked(images, _CHUNK)
    ]


def _read_images(folder: Path | None, images: Sequence[Sample], most: Bound) -> Iterator[Sample | Unusable]:
    for image in images:
        path = (folder or Path()) / image.name
        try:
            yield Sample.of(read_picture(path, folder, most), str(path), str(path), name=image.name)
        except RefusedError as error:
            yield _refused(image, error)


def _stamp(folder: Path, names: Iterable[str]) -> str:
    """A hash of the files' names as spelled, sizes and change times; users cannot reset change times."""
    return content_hash(str(folder), *(f"{name} {_state(folder / name)}" for name in names))


def _state(file: Path) -> str:
    try:
        stat = file.stat()
    except (OSError, ValueError):
        return "missing"
    return f"{stat.st_size} {stat.st_ctime_ns}"


def _refused(image: Sample, error: RefusedError) -> Unusable:
    return Unusable(f"{image.place} names {image.name or 'no image'}, which {error.why}" if image.place else str(error))


def _describe(folder: Path, listed: Sequence[Pair | Unusable], most: Bound) -> Described:
    refused, paths = list[Unusable](), dict[Path, None]()
    for name, image in _images(listed).items():
        try:
            check_picture_file(folder / name, folder, most)
            paths[folder / name] = None
        except RefusedError as error:
            refused.append(_refused(image, error))
    pairs = [one for one in listed if isinstance(one, Pair)]
    first, tally = first_copies(list(paths)), CaptionTally()
    for pair in pairs:
        if path := first.get(folder / pair.image.name):
            tally.add(path, pair.split, pair.item or "", [pair.caption])
    return Described(
        tally.groups,
        tally.texts,
        pictures=[(str(path), partial(read_picture, path, folder, most)) for path in paths],
        unusable=[*heic_together(refused), *(one for one in listed if isinstance(one, Unusable))],
        paraphrases=sum(bool(pair.paraphrase) for pair in pairs),
        copies=sum(path != of for path, of in first.items()),
    )


def _pairs(settings: Settings, file: Path, folder: Path, listed: list[Pair | Unusable]) -> Iterator[Pair | Unusable]:
    yield from (one for one in listed if isinstance(one, Unusable))
    chunks, images = _chunks(folder, listed, settings.prepare.picture_bound), dict[str, Sample]()
    unusable = list[Unusable]()
    for sample in checked(chunks, settings.prepare):
        if isinstance(sample, Unusable):
            unusable.append(sample)
        else:
            images[sample.name] = sample
    total = sum(chunk.pictures for chunk in chunks)
    yield from (replace(lost, of=total) for lost in heic_together(unusable))
    pairs = [one for one in listed if isinstance(one, Pair)]
    unseen = [pair.image.name for pair in pairs if pair.image.name not in images]
    seen = [replace(pair, image=images[pair.image.name]) for pair in pairs if pair.image.name in images]
    grouped = map_reduce(seen, attrgetter("image_id"))
    splits = share(file, list(grouped.values()), unseen, settings.prepare.counts, settings.dataset.seed)
    for split in ("test", "val"):
        for first, *_ in splits[split]:
            queries = tuple((one.caption, one.paraphrase) for one in grouped[first.image_id])
            yield _finished(split, first, first.image, folder, queries)
    most = settings.prepare.counts.train
    train = (_finished("train", pair, of[0].image, folder) for of in splits["train"] for pair in of)
    yield from islice(train, most)
    if (more := sum(map(len, splits["train"])) - most) > 0:
        print(f"{file}: {more:,} training captions left out: prepare.counts.train is {most}")


def _finished(split: str, pair: Pair, image: Sample, folder: Path, queries: tuple[tuple[str, str], ...] = ()) -> Pair:
    """The pair in its split; `name` is the path from the folder's name on, which may show the publisher."""
    name = f"{folder.name}/{pair.image.name}"
    return replace(pair, split=split, image=image, name=name, paraphrase="", queries=queries)


def _evaluation(test: list[Pair], people: bool) -> EvaluationTables:
    """All captions of the test images as queries, and their human paraphrases."""
    tables = caption_queries((pair.image_id, caption) for pair in test for caption, _ in pair.queries)
    if people:
        return tables | evaluation_tables({pair.image_id: list(dict(pair.queries)) for pair in test})
    rows = [
        (pair.image_id, caption, paraphrase, "all", "image")
        for pair in test
        for caption, paraphrase in pair.queries
        if paraphrase
    ]
    return tables | {"paraphrase_queries": filled(PARAPHRASE_QUERIES, rows)} if rows else tables


def share(
    file: Path, grouped: Sequence[list[Pair]], unseen: Sequence[str], counts: Counts, seed: int
) -> dict[str, list[list[Pair]]]:
    """Split -> pairs by image.

    No image, and no item, is in two splits; `test` and `val` count images, `train` counts pairs.

    Published splits are kept: images are drawn from their own split. Without a published validation split, validation
    images are drawn from the training images in `drawing_order`. A pair that repeats a caption of an image is dropped,
    and its weight is added to the first such pair; the heaviest pair of an image comes first. Images that cannot be
    used may be missing from the `counts`.

    Args:
        file: for messages.
        grouped: the pairs of each image, in the order of the file.
        unseen: the image of each line whose image cannot be used.
    """
    images = [_distinct(image) for image in grouped]
    lines = sum(map(len, grouped))
    if repeated := lines - sum(map(len, images)):
        print(f"{file}: {repeated} lines left out that repeat the image and the caption of another line")
    pools = _without_items_of_others(file, _pools(file, images))
    for pool in pools.values():
        random.Random(f"folder-{seed}").shuffle(pool)
    if len(pools) < len(HELD_OUT_FIRST):
        # After a shuffle, one more image would change which images are drawn, and training images would be tested.
        pools["train"].sort(key=lambda image: drawn_at(seed, image[0].image_id, image[0].item or ""))
    splits: dict[str, list[list[Pair]]] = {}
    for split, wanted in (("test", counts.test), ("val", counts.val)):
        pool = pools.get(split, pools["train"])
        if not pool or len(pool) + len(set(unseen)) < wanted:
            break
        splits[split] = pool[:wanted]
        # The last product may have more images than its split has room for.
        cut = pool[wanted - 1][0].item if pool else None
        rest = [image for image in pool[wanted:] if not cut or image[0].item != cut]
        if several := len(pool[wanted:]) - len(rest):
            print(f"{file}: {several:,} images left out whose product is in {split}, which has no room for all")
        pool[:] = rest
    else:
        splits["train"] = pools["train"]
        if sum(map(len, splits["train"])) + len(unseen) >= counts.train:
            return splits
    raise InputError(f"{file} has {_too_few(images, lines + len(unseen), counts, published=len(pools) > 1)}")


def _distinct(image: Iterable[Pair]) -> list[Pair]:
    pairs = map_reduce(image, attrgetter("caption"), reducefunc=_merged).values()
    return sorted(pairs, key=lambda pair: -(pair.weight or 0))


def _merged(pairs: list[Pair]) -> Pair:
    """One pair for all of an image and caption: the sum of their weights, in the first split of `HELD_OUT_FIRST`."""
    weights = [pair.weight for pair in pairs if pair.weight is not None]
    return replace(pairs[0], split=_first_split(pairs), weight=fsum(weights) if weights else None)


def _first_split(pairs: Iterable[Pair]) -> str:
    splits = {pair.split for pair in pairs}
    return next((split for split in HELD_OUT_FIRST if split in splits), "")


def _pools(file: Path, images: Iterable[list[Pair]]) -> dict[str, list[list[Pair]]]:
    """Images by published split; all under `train` if none is published."""
    pools: dict[str, list[list[Pair]]] = {"train": []}
    moved = 0
    for pairs in images:
        moved += len({pair.split for pair in pairs if pair.split}) > 1
        pools.setdefault(_first_split(pairs) or "train", []).append(pairs)
    if moved:
        print(f"{file}: {moved} images are published in two splits and stay in the first of test, val and train")
    return pools


def _without_items_of_others(file: Path, pools: dict[str, list[list[Pair]]]) -> dict[str, list[list[Pair]]]:
    """The pools without images of a product that another pool tests or validates."""
    held_out = [(image[0].item, split) for split in ("val", "test") for image in pools.get(split, ())]
    # Of a product that both have, `test` is the split.
    taken: dict[str | None, str] = {item: split for item, split in held_out if item}
    kept = {
        split: [image for image in pool if taken.get(image[0].item, split) == split] for split, pool in pools.items()
    }
    if left_out := sum(map(len, pools.values())) - sum(map(len, kept.values())):
        print(f"{file}: {left_out:,} images left out whose product is published in test or val too")
    return kept


def _too_few(images: list[list[Pair]], lines: int, counts: Counts, *, published: bool) -> str:
    wanted = f"prepare.counts requires {counts.test} test images, {counts.val} validation images and {counts.train}"
    if published:
        have = Counter(pair.split for pair in chain.from_iterable(images))
        in_splits = ", ".join(f"{have[split]} in {split}" for split in HELD_OUT_FIRST)
        return f"{len(images)} images, lines: {in_splits}; {wanted} training lines: lower them"
    rest = sum(map(len, images[counts.test + counts.val :]))
    return f"{lines} lines of {len(images)} images; {wanted} lines of the other images, which have {rest}: lower them"
