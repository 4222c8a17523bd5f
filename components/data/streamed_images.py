"""Pairs of images that lie with their captions in archives or tables, read in their order.

Images of a published split stay in it. Where none is published to test or to validate with, its images are the first
of those to train on. Of an image to test or to validate with, the first caption makes the pair; the other captions of
a test image are queries too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice

from components.core.errors import InputError
from components.core.settings import Prepare, Settings
from components.data.checked_pictures import Part, checked
from components.data.listing import checked_caption
from components.data.source import (
    Described,
    EvaluationTables,
    Pair,
    Seen,
    Source,
    Unusable,
    UnusableError,
    caption_queries,
)

TRAIN = "train"


Splits = Mapping[str, Sequence[Part]]
"""Published split -> its shards or files; all under `train` where none is published."""


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
        evaluation=lambda settings, test: _evaluation(test, read(settings.prepare), settings.prepare),
        describe=describe,
        find=find,
        file=file,
        how=how,
        parts=lambda settings: list(chain.from_iterable(read(settings).values())),
    )


def _pairs(settings: Settings, splits: Splits) -> Iterator[Pair | Unusable]:
    prepare, held_out = settings.prepare, set[str]()
    where = prepare.shards or prepare.folder
    streams = {split: checked(parts, prepare) for split, parts in splits.items()}
    for split, wanted in (("test", prepare.counts.test), ("val", prepare.counts.val)):
        fresh = _without(held_out, streams.get(split, streams[TRAIN]))
        count = 0
        while count < wanted:
            if (sample := next(fresh, None)) is None:
                raise InputError(
                    f"{where} has {count} images to {split} with, prepare.counts.{split} wants {wanted}: lower it"
                )
            for one in _captioned(split, sample, prepare, 1):
                if isinstance(one, Pair):
                    held_out.add(one.image_id)
                    count += 1
                yield one
    others = _without(held_out, streams[TRAIN])
    left, known, repeated = prepare.counts.train, set[int](), 0
    while left:
        if (sample := next(others, None)) is None:
            have = prepare.counts.train - left
            raise InputError(
                f"{where} has {have} captions to train on, prepare.counts.train wants {prepare.counts.train}: lower it"
            )
        for one in _captioned(TRAIN, sample, prepare, left):
            if isinstance(one, Pair):
                if (key := int(one.id, 16)) in known:
                    repeated += 1
                    continue
                known.add(key)
                left -= 1
            yield one
    if repeated:
        print(f"{where}: {repeated} captions left out that repeat another of the same image")


def _without(held_out: set[str], samples: Iterator[Seen | Unusable]) -> Iterator[Seen | Unusable]:
    return (one for one in samples if isinstance(one, Unusable) or one.image_id not in held_out)


def _captioned(split: str, sample: Seen | Unusable, settings: Prepare, most: int) -> Iterator[Pair | Unusable]:
    """At most so many of a sample's captions, each said once, with its image."""
    if isinstance(sample, Unusable):
        yield sample
        return
    try:
        captions = [checked_caption(sample.place, caption, settings) for caption in sample.captions]
    except UnusableError as error:
        yield Unusable(str(error))
        return
    for caption in islice(dict.fromkeys(captions), most):
        yield Pair(split, sample, caption, name=sample.name)


def _evaluation(test: list[Pair], splits: Splits, settings: Prepare) -> EvaluationTables:
    """Every caption of the test images as a query."""
    found: dict[str, list[str]] = {pair.image_id: [] for pair in test}
    for sample in checked(splits.get("test", splits[TRAIN]), settings):
        if isinstance(sample, Seen) and (told := found.get(sample.image_id)) is not None:
            told += [caption.strip() for caption in sample.captions]
    return caption_queries((image, caption) for image, captions in found.items() for caption in captions if caption)
