"""Pairs of images that lie with their captions in archives or tables, read in their order.

Images of a published split stay in it. Where none is published to test or to validate with, its images are drawn from
those to train on by `drawing_order`. Of an image to test or to validate with, the first caption makes the pair; the
other captions of a test image are queries too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice

from components.core.errors import InputError
from components.core.files import image_id
from components.core.settings import Prepare, Settings
from components.data.checked_pictures import Part, Sample, checked
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
from components.data.splits import drawing_order

TRAIN = "train"
_OPENED = 8
"""Images of each part that `cliptune import` opens."""

Splits = Mapping[str, Sequence[Part]]
"""Published split -> its shards or files. Those of no published split, whose samples may say their own, are of
`train`."""


def streamed_source(read: Callable[[Prepare], Splits], find: Callable[..., str | None], file: str, how: str) -> Source:
    """A source of the samples that `read` gives; for the other arguments see `Source`."""
    return Source(
        pairs=lambda settings: _pairs(settings, read(settings.prepare)),
        evaluation=lambda settings, test: _evaluation(test, read(settings.prepare), settings.prepare),
        describe=lambda settings: _describe(read(settings)),
        find=find,
        file=file,
        how=how,
        parts=lambda settings: list(chain.from_iterable(read(settings).values())),
    )


def _describe(splits: Splits) -> Described:
    """What the parts hold: all of them are read once, and the first images of each may be opened."""
    images, captions, told = Counter[str](), Counter[str](), Counter[int]()
    pictures: list[tuple[str, Callable[[], bytes]]] = []
    unusable: list[Unusable] = []
    for part in chain.from_iterable(splits.values()):
        opened = 0
        for one in part.read():
            if isinstance(one, Unusable):
                unusable.append(one)
                continue
            split = one.split or TRAIN
            known = int(image_id(one.raw) if isinstance(one, Sample) else one.image_id, 16)
            if known not in told:
                images[split] += 1
                if isinstance(one, Sample) and (opened := opened + 1) <= _OPENED:
                    pictures.append((one.place, partial(bytes, one.raw)))
            captions[split] += len(one.captions)
            told[known] += len(one.captions)
    return Described(images, captions, max(told.values(), default=0), pictures, unusable)


def _pairs(settings: Settings, splits: Splits) -> Iterator[Pair | Unusable]:
    held_out = set[str]()
    told = yield from _held_out(settings, splits, held_out)
    samples = _without(held_out, TRAIN, checked(splits[TRAIN], settings.prepare))
    yield from _training(settings.prepare, (one for one in samples if not told or isinstance(one, Seen)))


def _held_out(
    settings: Settings, splits: Splits, held_out: set[str]
) -> Generator[Pair | Unusable, None, Mapping[str, Iterable[Seen]]]:
    """The pairs to test and to validate with, whose images are added to `held_out`; returns what was drawn."""
    prepare = settings.prepare
    drawn: Mapping[str, Iterable[Seen]] = {}
    for split, wanted in (("test", prepare.counts.test), ("val", prepare.counts.val)):
        if split not in splits and not drawn:
            drawn = yield from _draw(settings, splits, held_out)
        samples = checked(splits[split], prepare) if split in splits else drawn[split]
        count = 0
        for sample in _without(held_out, split, samples):
            for one in _captioned(split, sample, prepare, 1):
                if isinstance(one, Pair):
                    held_out.add(one.image_id)
                    count += 1
                yield one
            if count == wanted:
                break
        else:
            raise InputError(
                f"{_place(prepare)} has {count} images to {split} with, prepare.counts.{split} wants {wanted}: lower it"
            )
    return drawn


def _training(settings: Prepare, samples: Iterable[Seen | Unusable]) -> Iterator[Pair | Unusable]:
    left, known, repeated = settings.counts.train, set[int](), 0
    for sample in samples:
        for one in _captioned(TRAIN, sample, settings, left):
            if isinstance(one, Pair):
                if (key := int(one.id, 16)) in known:
                    repeated += 1
                    continue
                known.add(key)
                left -= 1
            yield one
        if not left:
            break
    else:
        have, wanted = settings.counts.train - left, settings.counts.train
        raise InputError(
            f"{_place(settings)} has {have} captions to train on, prepare.counts.train wants {wanted}: lower it"
        )
    if repeated:
        print(f"{_place(settings)}: {repeated} captions left out that repeat another of the same image")


def _place(settings: Prepare) -> str:
    return settings.shards or str(settings.folder)


def _draw(
    settings: Settings, splits: Splits, held_out: set[str]
) -> Generator[Unusable, None, Mapping[str, Iterable[Seen]]]:
    """Split that no file is of -> its images: those that say so themselves or, where none does, of those to train on.

    All of these are looked at, and memory holds as many as test and validate.
    """
    prepare = settings.prepare
    most = prepare.counts.test + prepare.counts.val
    said: dict[str, dict[str, Seen]] = {split: {} for split in ("test", "val") if split not in splits}
    first, last = dict[str, Seen](), "~"
    for number, one in enumerate(checked(splits[TRAIN], prepare), 1):
        if isinstance(one, Unusable):
            yield replace(one, of=number)
        elif one.split in said:
            if len(said[one.split]) < most:
                said[one.split].setdefault(one.image_id, one)
        elif (key := drawing_order(settings.world.seed, one.image_id)) < last and key not in first:
            if one.split in ("", TRAIN) and one.image_id not in held_out and _is_captioned(one, prepare):
                first[key] = one
            if len(first) == 2 * most:
                first = dict(sorted(first.items())[:most])
                last = next(reversed(first))
    rest = iter([one for _, one in sorted(first.items())])
    return {split: own.values() or rest for split, own in said.items()}


def _without(held_out: set[str], split: str, samples: Iterable[Seen | Unusable]) -> Iterator[Seen | Unusable]:
    """Those of a split that are not held out yet; where a sample says no split, or that it trains, it may be drawn."""
    for one in samples:
        if isinstance(one, Unusable) or (one.image_id not in held_out and one.split in ("", TRAIN, split)):
            yield one


def _is_captioned(sample: Seen, settings: Prepare) -> bool:
    return any(isinstance(one, Pair) for one in _captioned(TRAIN, sample, settings, 1))


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
    """Every caption of the images to test, or to validate, with as a query."""
    told: dict[str, list[str]] = {pair.image_id: [] for pair in test}
    parts = splits.get(test[0].split, splits[TRAIN]) if test else []
    for sample in checked(parts, settings):
        if isinstance(sample, Seen) and sample.image_id in told:
            pairs = _captioned(sample.split, sample, settings, len(sample.captions))
            told[sample.image_id] += [pair.caption for pair in pairs if isinstance(pair, Pair)]
    return caption_queries((image, caption) for image, captions in told.items() for caption in captions)
