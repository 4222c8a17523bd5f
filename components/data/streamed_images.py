"""Pairs of images that lie with their captions in archives or tables, read in their order.

Images of a published split stay in it. Where none is published to test or to validate with, its images are the first
of those to train on. Of an image to test or to validate with, the first caption makes the pair; the other captions of
a test image are queries too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from components.core.errors import InputError
from components.core.files import image_id
from components.core.settings import Prepare, Settings
from components.data.listed_images import checked_picture
from components.data.listing import checked_caption
from components.data.source import Described, EvaluationTables, Pair, Source, caption_queries

TRAIN = "train"


@dataclass(frozen=True)
class Sample:
    """One image with its captions.

    Attributes:
        place: where it is, such as `data/train-00000.parquet: row 12`.
        image: its encoded bytes.
        captions: at least one.
        name: of its file, where it had one.
    """

    place: str
    image: bytes
    captions: tuple[str, ...]
    name: str = ""


Splits = Mapping[str, Callable[[], Iterator[Sample]]]
"""Published split -> opens its samples; all samples under `train` where none is published."""


def streamed_source(
    read: Callable[[Prepare], Splits],
    describe: Callable[[Prepare], Described],
    find: Callable[..., str | None],
    file: str,
    how: str,
) -> Source:
    """A source of the samples that `read` gives; for the other arguments see `Source`."""
    return Source(
        pairs=lambda settings: _pairs(settings, read(settings.prepare)),
        evaluation=lambda settings, test: _evaluation(test, read(settings.prepare)),
        describe=describe,
        find=find,
        file=file,
        how=how,
    )


def _pairs(settings: Settings, splits: Splits) -> Iterator[Pair]:
    prepare, held_out = settings.prepare, set[str]()
    streams = {split: opened() for split, opened in splits.items()}
    for split, wanted in (("test", prepare.counts.test), ("val", prepare.counts.val)):
        fresh = (one for one in streams.get(split, streams[TRAIN]) if image_id(one.image) not in held_out)
        for count in range(wanted):
            sample = next(fresh, None)
            if sample is None:
                raise InputError(
                    f"{prepare.folder} has {count} images to {split} with, prepare.counts.{split} wants {wanted}: "
                    "lower it"
                )
            held_out.add(image_id(sample.image))
            yield from _captioned(split, sample, prepare, 1)
    others = (one for one in streams[TRAIN] if image_id(one.image) not in held_out)
    left = prepare.counts.train
    while left:
        sample = next(others, None)
        if sample is None:
            have = prepare.counts.train - left
            raise InputError(
                f"{prepare.folder} has {have} captions to train on, prepare.counts.train wants {prepare.counts.train}: "
                "lower it"
            )
        for pair in _captioned(TRAIN, sample, prepare, left):
            left -= 1
            yield pair


def _captioned(split: str, sample: Sample, settings: Prepare, most: int) -> Iterator[Pair]:
    raw = checked_picture(sample.image, sample.place)
    for caption in islice(dict.fromkeys(sample.captions), most):
        yield Pair(split, raw, checked_caption(sample.place, caption, settings), name=sample.name)


def _evaluation(test: list[Pair], splits: Splits) -> EvaluationTables:
    """Every caption of the test images as a query."""
    found: dict[str, list[str]] = {pair.image_id: [] for pair in test}
    for sample in splits.get("test", splits[TRAIN])():
        told = found.get(image_id(sample.image))
        if told is not None:
            told += [caption.strip() for caption in sample.captions]
    return caption_queries((image, caption) for image, captions in found.items() for caption in captions if caption)
