"""Pairs of images that are stored with their captions in archives or tables, read in order.

Without a published test or validation split, its images are drawn from the training images by `drawing_order`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice

from components.core.settings import Prepare, Settings
from components.core.system.errors import InputError
from components.data.checked_pictures import checked
from components.data.listed_images import checked_caption
from components.data.source import (
    Described,
    EvaluationTables,
    Pair,
    PictureChunk,
    Sample,
    Source,
    Unusable,
    UnusableError,
    caption_queries,
    drawing_order,
)

TRAIN = "train"

Splits = Mapping[str, Sequence[PictureChunk]]
"""Published split -> its chunks. `train` also has those without a split, whose samples may name their own."""


def streamed_source(read: Callable[[Prepare], Splits], find: Callable[..., str | None], file: str, how: str) -> Source:
    """A source of the samples of `read`; for the other arguments see `Source`."""
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
    images, captions, per_image = Counter[str](), Counter[str](), Counter[int]()
    pictures: list[tuple[str, Callable[[], bytes]]] = []
    unusable: list[Unusable] = []
    for chunk in chain.from_iterable(splits.values()):
        opened = 0
        for sample in chunk.read():
            if isinstance(sample, Unusable):
                unusable.append(sample)
                continue
            split, image = sample.split or TRAIN, int(sample.image_id, 16)
            if image not in per_image:
                images[split] += 1
                if sample.raw is not None and (opened := opened + 1) <= 8:
                    pictures.append((sample.place, partial(bytes, sample.raw)))
            captions[split] += len(sample.captions)
            per_image[image] += len(sample.captions)
    return Described(images, captions, max(per_image.values(), default=0), pictures, unusable)


def _pairs(settings: Settings, splits: Splits) -> Iterator[Pair | Unusable]:
    held_out = set[str]()
    drawn = yield from _held_out(settings, splits, held_out)
    samples = _without(held_out, TRAIN, checked(splits[TRAIN], settings.prepare))
    # Drawing has reported the unusable samples already.
    yield from _training(settings.prepare, (sample for sample in samples if not drawn or isinstance(sample, Sample)))


def _held_out(
    settings: Settings, splits: Splits, held_out: set[str]
) -> Generator[Pair | Unusable, None, Mapping[str, Iterable[Sample]]]:
    """The test and validation pairs, whose images are added to `held_out`; returns the drawn samples."""
    prepare = settings.prepare
    drawn: Mapping[str, Iterable[Sample]] = {}
    for split, wanted in (("test", prepare.counts.test), ("val", prepare.counts.val)):
        if split not in splits and not drawn:
            drawn = yield from _draw(settings, splits, held_out)
        samples = checked(splits[split], prepare) if split in splits else drawn[split]
        count = 0
        for sample in _without(held_out, split, samples):
            for pair in _captioned(split, sample, prepare, 1):
                if isinstance(pair, Pair):
                    held_out.add(pair.image_id)
                    count += 1
                yield pair
            if count == wanted:
                break
        else:
            raise InputError(
                f"{_place(prepare)} has {count} images for {split}, prepare.counts.{split} is {wanted}: lower it"
            )
    return drawn


def _training(settings: Prepare, samples: Iterable[Sample | Unusable]) -> Iterator[Pair | Unusable]:
    left, ids, repeated = settings.counts.train, set[int](), 0
    for sample in samples:
        for pair in _captioned(TRAIN, sample, settings, left):
            if isinstance(pair, Pair):
                if (number := int(pair.id, 16)) in ids:
                    repeated += 1
                    continue
                ids.add(number)
                left -= 1
            yield pair
        if not left:
            break
    else:
        have, wanted = settings.counts.train - left, settings.counts.train
        raise InputError(f"{_place(settings)} has {have} training captions, prepare.counts.train is {wanted}: lower it")
    if repeated:
        print(f"{_place(settings)}: {repeated} captions left out that repeat another of the same image")


def _place(settings: Prepare) -> str:
    return settings.shards or str(settings.folder)


def _draw(
    settings: Settings, splits: Splits, held_out: set[str]
) -> Generator[Unusable, None, Mapping[str, Iterable[Sample]]]:
    """Split without files of its own -> its samples: those that name the split or, if none does, training samples.

    All training samples are read, and as many as test and validate are held in memory.
    """
    prepare = settings.prepare
    most = prepare.counts.test + prepare.counts.val
    named: dict[str, dict[str, Sample]] = {split: {} for split in ("test", "val") if split not in splits}
    first, last = dict[str, Sample](), "~"
    for number, sample in enumerate(checked(splits[TRAIN], prepare), 1):
        if isinstance(sample, Unusable):
            yield replace(sample, of=number)
        elif sample.split in named:
            if len(named[sample.split]) < most:
                named[sample.split].setdefault(sample.image_id, sample)
        elif (key := drawing_order(settings.dataset.seed, sample.image_id)) < last and key not in first:
            if sample.split in ("", TRAIN) and sample.image_id not in held_out and _is_captioned(sample, prepare):
                first[key] = sample
            if len(first) == 2 * most:
                first = dict(sorted(first.items())[:most])
                last = next(reversed(first))
    rest = iter([sample for _, sample in sorted(first.items())])
    return {split: samples.values() or rest for split, samples in named.items()}


def _without(held_out: set[str], split: str, samples: Iterable[Sample | Unusable]) -> Iterator[Sample | Unusable]:
    """The samples of a split that are not held out; samples that name no split, or train, may be drawn."""
    for sample in samples:
        if isinstance(sample, Unusable) or (sample.image_id not in held_out and sample.split in ("", TRAIN, split)):
            yield sample


def _is_captioned(sample: Sample, settings: Prepare) -> bool:
    return any(isinstance(pair, Pair) for pair in _captioned(TRAIN, sample, settings, 1))


def _captioned(split: str, sample: Sample | Unusable, settings: Prepare, most: int) -> Iterator[Pair | Unusable]:
    """Pairs of a sample with at most so many distinct captions."""
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
    """All captions of the test, or validation, images as queries."""
    captions: dict[str, list[str]] = {pair.image_id: [] for pair in test}
    chunks = splits.get(test[0].split, splits[TRAIN]) if test else []
    for sample in checked(chunks, settings):
        if isinstance(sample, Sample) and sample.image_id in captions:
            pairs = _captioned(sample.split, sample, settings, len(sample.captions))
            captions[sample.image_id] += [pair.caption for pair in pairs if isinstance(pair, Pair)]
    return caption_queries((image, caption) for image, texts in captions.items() for caption in texts)
