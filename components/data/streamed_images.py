"""Pairs of images that are stored with their captions in archives or tables, read in order.

Without a published test or validation split, its images are drawn from the training images by `drawing_order`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from components.core.settings import Prepare, Settings
from components.core.system.errors import InputError
from components.data.checked_pictures import checked
from components.data.described import CaptionTally, Described
from components.data.row_fields import usable_captions
from components.data.source import (
    EvaluationTables,
    Pair,
    PictureChunk,
    Sample,
    Source,
    Unusable,
    caption_queries,
    drawn_at,
)

TRAIN = "train"
_OPENED = 8
"""Pictures of a chunk that `cliptune init` may decode."""

Splits = Mapping[str, Sequence[PictureChunk]]
"""Published split -> its chunks. `train` also has those without a split, whose samples may name their own."""


def streamed_source(read: Callable[[Prepare], Splits], find: Callable[..., str | None], file: str, how: str) -> Source:
    """A source of the samples of `read`; for the other arguments see `Source`."""
    return Source(
        pairs=lambda settings: _pairs(settings, read(settings.prepare)),
        evaluation=lambda settings, test: _evaluation(test, read(settings.prepare), settings.prepare),
        describe=lambda settings: _describe(read(settings), settings),
        find=find,
        file=file,
        how=how,
        parts=lambda settings: list(chain.from_iterable(read(settings).values())),
        has_fields=True,
    )


def _describe(splits: Splits, settings: Prepare) -> Described:
    tally, unusable = CaptionTally(), list[Unusable]()
    pictures: list[tuple[str, Callable[[], bytes]]] = []
    for split, chunk in ((split, chunk) for split, chunks in splits.items() for chunk in chunks):
        opened = 0
        for sample in chunk.read():
            if isinstance(sample, Unusable):
                unusable.append(sample)
                continue
            found = list(usable_captions(sample.place, sample.captions, settings))
            unusable += [caption for caption in found if isinstance(caption, Unusable)]
            captions = [caption for caption in found if isinstance(caption, str)]
            tally.add(int(sample.image_id, 16), sample.split or split, sample.item, captions)
            if captions and sample.raw is not None and (opened := opened + 1) <= _OPENED:
                pictures.append((sample.place, partial(bytes, sample.raw)))
    return Described(tally.groups, tally.texts, pictures, unusable)


@dataclass
class _HeldOut:
    """Images and products of the test and validation splits, which do not train.

    Attributes:
        items: product -> its split.
        left_out: ids of images that are in no split, because their product is in another.
    """

    images: set[str] = field(default_factory=set)
    items: dict[str, str] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)

    def add(self, split: str, sample: Sample) -> None:
        self.images.add(sample.image_id)
        if sample.item:
            self.items.setdefault(sample.item, split)

    def without(self, split: str, samples: Iterable[Sample | Unusable]) -> Iterator[Sample | Unusable]:
        """The samples of a split that are not held out; samples that name no split, or train, may be drawn."""
        for sample in samples:
            if isinstance(sample, Unusable):
                yield sample
            elif sample.image_id not in self.images and sample.split in ("", TRAIN, split):
                if self.items.get(sample.item, split) == split:
                    yield sample
                else:
                    self.left_out.add(sample.image_id)


def _pairs(settings: Settings, splits: Splits) -> Iterator[Pair | Unusable]:
    held_out = _HeldOut()
    drawn = yield from _held_out(settings, splits, held_out)
    samples = held_out.without(TRAIN, checked(splits[TRAIN], settings.prepare))
    # Drawing has read all samples, and reported the unusable ones.
    trained = _training(settings.prepare, samples, reads_all=bool(drawn))
    yield from (one for one in trained if not drawn or isinstance(one, Pair))
    if held_out.left_out:
        print(f"{_place(settings.prepare)}: {len(held_out.left_out):,} images left out whose product is in test or val")


def _held_out(
    settings: Settings, splits: Splits, held_out: _HeldOut
) -> Generator[Pair | Unusable, None, Mapping[str, Iterable[Sample]]]:
    """The test and validation pairs, whose images are added to `held_out`; returns the drawn samples."""
    prepare = settings.prepare
    drawn: Mapping[str, Iterable[Sample]] = {}
    for split, wanted in (("test", prepare.counts.test), ("val", prepare.counts.val)):
        if split not in splits and not drawn:
            drawn = yield from _draw(settings, splits, held_out)
        samples = checked(splits[split], prepare) if split in splits else drawn[split]
        count = lost = 0
        for sample in held_out.without(split, samples):
            if isinstance(sample, Unusable):
                lost += sample.images
                yield sample
            elif count < wanted:
                for pair in _captioned(split, sample, prepare, 1):
                    if isinstance(pair, Pair):
                        held_out.add(split, sample)
                        count += 1
                        yield pair
                    elif split in splits:
                        yield pair
            elif split in splits:
                # More images are published than are used: they do not train.
                held_out.add(split, sample)
            else:
                break
        if count + lost < wanted:
            raise InputError(
                f"{_place(prepare)} has {count} images for {split}, prepare.counts.{split} is {wanted}: lower it"
            )
    return drawn


def _training(settings: Prepare, samples: Iterable[Sample | Unusable], *, reads_all: bool) -> Iterator[Pair | Unusable]:
    """The training pairs; `reads_all` reads on behind the last one, to count the others."""
    left, ids, repeated, lost, more, longest = settings.counts.train, set[int](), 0, 0, 0, 1
    for sample in samples:
        if isinstance(sample, Unusable):
            lost += sample.images
            yield sample
            continue
        if not left and not reads_all:
            print(f"{_place(settings)}: prepare.counts.train is {settings.counts.train}; further images are not read")
            break
        longest = max(longest, len(sample.captions))
        for pair in _captioned(TRAIN, sample, settings, len(sample.captions)):
            if not isinstance(pair, Pair):
                yield pair
            elif (number := int(pair.id, 16)) in ids:
                repeated += 1
            elif left:
                ids.add(number)
                left -= 1
                yield pair
            else:
                more += 1
    if left > lost * longest:
        have, wanted = settings.counts.train - left, settings.counts.train
        raise InputError(f"{_place(settings)} has {have} training captions, prepare.counts.train is {wanted}: lower it")
    if repeated:
        print(f"{_place(settings)}: {repeated} captions left out that repeat another of the same image")
    if more:
        most = settings.counts.train
        print(f"{_place(settings)}: {more:,} training captions left out: prepare.counts.train is {most}")


def _place(settings: Prepare) -> str:
    return settings.shards or str(settings.folder)


def _draw(
    settings: Settings, splits: Splits, held_out: _HeldOut
) -> Generator[Unusable, None, Mapping[str, Iterable[Sample]]]:
    """Split without files of its own -> its samples: those that name the split or, if none does, training samples.

    All training samples are read, and as many as test and validate are held in memory. Images of one product follow
    each other.
    """
    prepare = settings.prepare
    test, val = prepare.counts.test, prepare.counts.val
    most = test + val
    named: dict[str, dict[str, Sample]] = {split: {} for split in ("test", "val") if split not in splits}
    for number, sample in enumerate(checked(splits[TRAIN], prepare), 1):
        if isinstance(sample, Unusable):
            yield replace(sample, of=number)
            continue
        yield from (one for one in _captioned(TRAIN, sample, prepare, 0) if isinstance(one, Unusable))
        if sample.split in named:
            if sample.item:
                held_out.items.setdefault(sample.item, sample.split)
            if len(named[sample.split]) < most:
                named[sample.split].setdefault(sample.image_id, sample)
    if all(named.values()):
        return {split: samples.values() for split, samples in named.items()}
    first, last = dict[tuple[str, str], Sample](), ("~", "")
    for sample in held_out.without(TRAIN, checked(splits[TRAIN], prepare)):
        if not isinstance(sample, Sample) or not _is_captioned(sample, prepare):
            continue
        if (key := drawn_at(settings.dataset.seed, sample.image_id, sample.item)) < last:
            first.setdefault(key, sample)
        # Of the last product of the test split, the rest is in no split.
        if len(first) >= 2 * (most + max(test, val)):
            first = _smallest(first, most + max(test, val), max(test, val))
            last = next(reversed(first)) if len(first) == most + max(test, val) else last
    rest = iter([sample for _, sample in sorted(first.items())])
    return {split: samples.values() or rest for split, samples in named.items()}


def _is_captioned(sample: Sample, settings: Prepare) -> bool:
    return any(isinstance(pair, Pair) for pair in _captioned(TRAIN, sample, settings, 1))


def _smallest(first: Mapping[tuple[str, str], Sample], most: int, of_item: int) -> dict[tuple[str, str], Sample]:
    """The first `most` samples by key, of each product no more than `of_item`."""
    seen, kept = Counter[str](), dict[tuple[str, str], Sample]()
    for key, sample in sorted(first.items()):
        seen[sample.item] += 1
        if not sample.item or seen[sample.item] <= of_item:
            kept[key] = sample
        if len(kept) == most:
            break
    return kept


def _captioned(split: str, sample: Sample, settings: Prepare, most: int) -> Iterator[Pair | Unusable]:
    """Pairs of a sample with at most so many distinct captions, and what cannot be used."""
    for caption in usable_captions(sample.place, sample.captions, settings):
        if isinstance(caption, Unusable):
            yield caption
        elif most:
            most -= 1
            yield Pair(split, sample, caption, name=sample.name, item=sample.item or None)


def _evaluation(test: list[Pair], splits: Splits, settings: Prepare) -> EvaluationTables:
    """All captions of the test, or validation, images as queries."""
    captions: dict[str, list[str]] = {pair.image_id: [] for pair in test}
    chunks = splits.get(test[0].split, splits[TRAIN]) if test else []
    for sample in checked(chunks, settings):
        if isinstance(sample, Sample) and sample.image_id in captions:
            pairs = _captioned(sample.split, sample, settings, len(sample.captions))
            captions[sample.image_id] += [pair.caption for pair in pairs if isinstance(pair, Pair)]
    return caption_queries((image, caption) for image, texts in captions.items() for caption in texts)
