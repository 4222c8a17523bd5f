"""Sources of a folder whose images are listed in a file; these sources differ only in the format of that file.

Images are identified by content. A test or validation image makes one pair, with its first caption; the other captions
of a test image are queries too. A training image makes a pair with each of its captions.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from math import fsum
from operator import attrgetter
from pathlib import Path

from more_itertools import chunked, map_reduce

from components.core.pictures.folder import PICTURE_BOUND, check_picture_file, read_picture
from components.core.settings import Counts, Prepare, Settings
from components.core.system.errors import InputError
from components.core.system.user_files import Bound, RefusedError, is_file
from components.core.tables.files import content_hash
from components.core.tables.records import PARAPHRASE_QUERIES
from components.data.caption_lines import CaptionLine
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


@dataclass(frozen=True)
class Listing:
    """The captions of a folder's images, and the rows of the file that are left out."""

    file: Path
    folder: Path
    lines: list[CaptionLine]
    unusable: list[Unusable] = field(default_factory=list)
    most: Bound = PICTURE_BOUND

    def check_image(self, name: str) -> None:
        """Raise `RefusedError` if an image may not be opened, such as a link to a file outside the folder."""
        check_picture_file(self.folder / name, self.folder, self.most)

    def read_image(self, name: str) -> bytes:
        """The encoded bytes of an image; raises as `check_image`."""
        return read_picture(self.folder / name, self.folder, self.most)

    def by_image(self, samples: Mapping[str, Sample]) -> dict[str, list[CaptionLine]]:
        """Image id -> its lines, in the file's order; lines of images without a sample are dropped."""
        grouped: dict[str, list[CaptionLine]] = defaultdict(list)
        for line in self.lines:
            if line.image in samples:
                grouped[samples[line.image].image_id].append(line)
        return grouped


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
    last: list[tuple[Settings, Listing]] = []

    def bounded(settings: Prepare) -> Listing:
        return replace(read(settings), most=settings.picture_bound)

    def pairs(settings: Settings) -> Iterator[Pair | Unusable]:
        last[:] = [(settings, bounded(settings.prepare))]
        return _pairs(settings, last[0][1])

    def evaluation(settings: Settings, test: list[Pair]) -> EvaluationTables:
        # The run that made the pairs has read the listing already.
        listing = last[0][1] if last and last[0][0] is settings else bounded(settings.prepare)
        return _evaluation(test, listing, settings.prepare, people)

    return Source(
        pairs=pairs,
        evaluation=evaluation,
        describe=lambda settings: _describe(bounded(settings)),
        find=find,
        file=file,
        how=how,
        people=people,
        watched=lambda folder: folder if several(folder) else folder / (find(folder) or file),
        parts=lambda settings: _chunks(bounded(settings)),
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
    chunks = [
        PictureChunk(_stamp(Path(), map(str, block)), partial(_read_files, block), len(block))
        for block in chunked(dict.fromkeys(files), _CHUNK)
    ]
    samples: dict[str, Sample] = {}
    for sample in checked(chunks, settings):
        if isinstance(sample, Unusable):
            raise InputError(sample.reason)
        samples[sample.file] = sample
    return [samples[str(file)] for file in files]


def _read_files(files: Sequence[Path]) -> Iterator[Sample]:
    for path in files:
        yield Sample.of(read_picture(path, None), str(path), str(path), name=path.name)


def _checked_images(listing: Listing, settings: Prepare) -> tuple[dict[str, Sample], list[Unusable]]:
    """The usable images of a listing, by name, and the others."""
    chunks = _chunks(listing)
    total = sum(chunk.pictures for chunk in chunks)
    samples: dict[str, Sample] = {}
    unusable: list[Unusable] = []
    for sample in checked(chunks, settings):
        if isinstance(sample, Unusable):
            unusable.append(sample)
        else:
            samples[sample.name] = sample
    return samples, [replace(lost, of=total) for lost in heic_together(unusable)]


def _chunks(listing: Listing) -> list[PictureChunk]:
    """Every image of the listing once, in chunks."""
    places = _places(listing)
    # Other processes do not need the lines.
    images = replace(listing, lines=[], unusable=[])
    return [
        PictureChunk(
            f"{_stamp(listing.folder, (name for name, _ in block))} {listing.most.bytes}",
            partial(_read_images, images, block),
            len(block),
        )
        for block in chunked(places.items(), _CHUNK)
    ]


def _places(listing: Listing) -> dict[str, str]:
    """Image -> place of its first line."""
    places: dict[str, str] = {}
    for line in listing.lines:
        places.setdefault(line.image, line.place)
    return places


def _read_images(listing: Listing, places: list[tuple[str, str]]) -> Iterator[Sample | Unusable]:
    for name, place in places:
        path = listing.folder / name
        try:
            yield Sample.of(listing.read_image(name), str(path), str(path), name=name)
        except RefusedError as error:
            yield _refused(listing, name, place, error)


def _stamp(folder: Path, names: Iterable[str]) -> str:
    """A hash of the files' names as spelled, sizes and change times; users cannot reset change times."""
    return content_hash(str(folder), *(f"{name} {_state(folder / name)}" for name in names))


def _state(file: Path) -> str:
    try:
        stat = file.stat()
    except (OSError, ValueError):
        return "missing"
    return f"{stat.st_size} {stat.st_ctime_ns}"


def _refused(listing: Listing, name: str, place: str, error: RefusedError) -> Unusable:
    return Unusable(f"{listing.file}: {place} names {name or 'no image'}, which {error.why}")


def _describe(listing: Listing) -> Described:
    places = _places(listing)
    refused = dict[str, Unusable]()
    for name, place in places.items():
        try:
            listing.check_image(name)
        except RefusedError as error:
            refused[name] = _refused(listing, name, place, error)
    names = {listing.folder / name: name for name in places if name not in refused}
    first, tally = first_copies(list(names)), CaptionTally()
    for line in listing.lines:
        if path := first.get(listing.folder / line.image):
            tally.add(path, line.split, line.item, [line.caption])
    return tally.described(
        pictures=[(str(path), partial(listing.read_image, name)) for path, name in names.items()],
        unusable=[*heic_together(list(refused.values())), *listing.unusable],
        paraphrases=sum(bool(line.paraphrase) for line in listing.lines),
        copies=sum(path != of for path, of in first.items()),
    )


def _pairs(settings: Settings, listing: Listing) -> Iterator[Pair | Unusable]:
    yield from listing.unusable
    samples, unusable = _checked_images(listing, settings.prepare)
    yield from unusable
    splits = share(listing, samples, settings.prepare.counts, settings.dataset.seed)
    for split in ("test", "val"):
        yield from _captioned(split, [lines[:1] for lines in splits[split]], listing, samples)
    most = settings.prepare.counts.train
    yield from islice(_captioned("train", splits["train"], listing, samples), most)
    if (more := sum(map(len, splits["train"])) - most) > 0:
        print(f"{listing.file}: {more:,} training captions left out: prepare.counts.train is {most}")


def _captioned(
    split: str, images: list[list[CaptionLine]], listing: Listing, samples: Mapping[str, Sample]
) -> Iterator[Pair]:
    """A pair for each line; `name` is the path from the folder's name on, which may show the publisher."""
    for lines in images:
        for line in lines:
            name = f"{listing.folder.name}/{line.image}"
            yield Pair(
                split, samples[lines[0].image], line.caption, name=name, weight=line.weight, item=line.item or None
            )


def _evaluation(test: list[Pair], listing: Listing, settings: Prepare, people: bool) -> EvaluationTables:
    """All captions of the test images as queries, and their human paraphrases."""
    lines_of = listing.by_image(_checked_images(listing, settings)[0])
    lines = [(pair.image_id, line) for pair in test for line in lines_of[pair.image_id]]
    tables = caption_queries((image, line.caption) for image, line in lines)
    if people:
        captions = {image: list(dict.fromkeys(line.caption for line in lines_of[image])) for image in dict(lines)}
        return tables | evaluation_tables(captions)
    rows = [(image, line.caption, line.paraphrase, "all", "image") for image, line in lines if line.paraphrase]
    return tables | {"paraphrase_queries": filled(PARAPHRASE_QUERIES, rows)} if rows else tables


def share(
    listing: Listing, samples: Mapping[str, Sample], counts: Counts, seed: int
) -> dict[str, list[list[CaptionLine]]]:
    """Split -> lines by image, of the images that have a sample.

    No image, and no item, is in two splits; `test` and `val` count images, `train` counts lines.

    Published splits are kept: images are drawn from their own split. Without a published validation split, validation
    images are drawn from the training images in `drawing_order`. A line that repeats a caption of an image is dropped,
    and its weight is added to the first such line; the heaviest line of an image comes first. Images that cannot be
    used may be missing from the `counts`.
    """
    grouped = listing.by_image(samples).values()
    images = [_distinct(image) for image in grouped]
    if repeated := sum(map(len, grouped)) - sum(map(len, images)):
        print(f"{listing.file}: {repeated} lines left out that repeat the image and the caption of another line")
    pools = _without_items_of_others(listing.file, _pools(listing.file, images))
    for pool in pools.values():
        random.Random(f"folder-{seed}").shuffle(pool)
    if len(pools) < len(HELD_OUT_FIRST):
        # After a shuffle, one more image would change which images are drawn, and training images would be tested.
        pools["train"].sort(key=lambda image: drawn_at(seed, samples[image[0].image].image_id, image[0].item))
    splits: dict[str, list[list[CaptionLine]]] = {}
    unusable = [line.image for line in listing.lines if line.image not in samples]
    for split, wanted in (("test", counts.test), ("val", counts.val)):
        pool = pools.get(split, pools["train"])
        if not pool or len(pool) + len(set(unusable)) < wanted:
            break
        splits[split] = pool[:wanted]
        # The last product may have more images than its split has room for.
        cut = pool[wanted - 1][0].item if pool else ""
        rest = [image for image in pool[wanted:] if not cut or image[0].item != cut]
        if several := len(pool[wanted:]) - len(rest):
            print(f"{listing.file}: {several:,} images left out whose product is in {split}, which has no room for all")
        pool[:] = rest
    else:
        splits["train"] = pools["train"]
        if sum(map(len, splits["train"])) + len(unusable) >= counts.train:
            return splits
    raise InputError(_too_few(listing, images, counts, published=len(pools) > 1))


def _distinct(image: Iterable[CaptionLine]) -> list[CaptionLine]:
    lines = map_reduce(image, attrgetter("caption"), reducefunc=_merged).values()
    return sorted(lines, key=lambda line: -(line.weight or 0))


def _merged(lines: list[CaptionLine]) -> CaptionLine:
    """One line for all of an image and caption: the sum of their weights, in the first split of `HELD_OUT_FIRST`."""
    weights = [line.weight for line in lines if line.weight is not None]
    return replace(lines[0], split=_first_split(lines), weight=fsum(weights) if weights else None)


def _first_split(lines: Iterable[CaptionLine]) -> str:
    splits = {line.split for line in lines}
    return next((split for split in HELD_OUT_FIRST if split in splits), "")


def _pools(file: Path, images: Iterable[list[CaptionLine]]) -> dict[str, list[list[CaptionLine]]]:
    """Images by published split; all under `train` if none is published."""
    pools: dict[str, list[list[CaptionLine]]] = {"train": []}
    moved = 0
    for lines in images:
        moved += len({line.split for line in lines if line.split}) > 1
        pools.setdefault(_first_split(lines) or "train", []).append(lines)
    if moved:
        print(f"{file}: {moved} images are published in two splits and stay in the first of test, val and train")
    return pools


def _without_items_of_others(
    file: Path, pools: dict[str, list[list[CaptionLine]]]
) -> dict[str, list[list[CaptionLine]]]:
    """The pools without images of a product that another pool tests or validates."""
    taken: dict[str, str] = {}
    kept: dict[str, list[list[CaptionLine]]] = {}
    for split in sorted(pools, key=HELD_OUT_FIRST.index):
        for image in pools[split] if split != "train" else ():
            taken.setdefault(image[0].item, split)
        kept[split] = [image for image in pools[split] if not image[0].item or taken.get(image[0].item, split) == split]
    if left_out := sum(map(len, pools.values())) - sum(map(len, kept.values())):
        print(f"{file}: {left_out:,} images left out whose product is published in test or val too")
    return {split: kept[split] for split in pools}


def _too_few(listing: Listing, images: list[list[CaptionLine]], counts: Counts, *, published: bool) -> str:
    wanted = f"prepare.counts requires {counts.test} test images, {counts.val} validation images and {counts.train}"
    if published:
        have = Counter(line.split for image in images for line in image)
        lines = ", ".join(f"{have[split]} in {split}" for split in HELD_OUT_FIRST)
        return f"{listing.file} has {len(images)} images, lines: {lines}; {wanted} training lines: lower them"
    rest = sum(map(len, images[counts.test + counts.val :]))
    return (
        f"{listing.file} has {len(listing.lines)} lines of {len(images)} images; {wanted} lines of the other images, "
        f"which have {rest}: lower them"
    )
