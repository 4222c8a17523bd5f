"""Batches streamed from webdataset shards, for methods that train the image tower; lost samples are counted.

webdataset's own pipeline cannot resume at an exact sample and does not count skipped samples.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from components.core.compute.distributed import World
from components.core.pictures.rgb import TooLargeError, check_size, open_picture
from components.core.pictures.shard_files import ShardFiles, find_shards, is_remote
from components.core.pictures.shard_reader import Fault, RawSample, ShardReader, sound
from components.core.settings import Shards
from components.core.system.errors import InputError
from components.core.system.progress import track
from components.core.tables.ahead import mapped, prefetched
from components.core.tables.files import content_hash, file_hash, image_id
from components.data.leaks.report import TestSetKeys
from components.encoders.adapter.images import Preparation
from components.encoders.adapter.tokens import Tokenizer
from components.training.rows.batches import Batch, BatchPlan

IMAGES = {"image": "jpg|jpeg|png|webp"}

_log = logging.getLogger(__name__)

_STEPS = 1 << 32
_BUFFER = 2_000
"""Encoded samples in memory that the next one is drawn from."""
_WORKERS, _AHEAD_PER_WORKER = 4, 16
"""Threads that decode, and samples that each of them may be ahead."""
_AHEAD = 4
"""Finished batches that wait."""
_ENOUGH = 1_000
"""Samples after which the share of errors is checked."""
_LOGGED = 5
"""Warnings per reason of lost samples."""


@dataclass(frozen=True)
class DecodedSample:
    """A usable sample: texts by column, uint8 pixels `[1, 3, size, size]` by image column."""

    name: str
    texts: Mapping[str, str]
    pixels: Mapping[str, Tensor]


class SampleDecoder:
    """Decodes the texts and pixels of a sample, or names its fault; safe to call from several threads.

    Args:
        images: members by image column, of which the first existing one is used: `jpg|jpeg|png|webp`.
        texts: member by text column: `txt`, or a field of a JSON member: `json:paraphrase_1`.
        preparation, held_out, published: as in `ShardSource`; samples of test sets are faults.
    """

    def __init__(
        self,
        images: Mapping[str, str],
        texts: Mapping[str, str],
        preparation: Preparation,
        held_out: Collection[str] = (),
        published: TestSetKeys | None = None,
    ) -> None:
        self._published = published or TestSetKeys()
        self._images = {column: [ending.lower() for ending in given.split("|")] for column, given in images.items()}
        self._texts = {column: given.partition(":") for column, given in texts.items()}
        self._preparation, self._held_out = preparation, frozenset(held_out)
        for column, given in {**images, **texts}.items():
            if not all(part.strip() for part in given.replace("|", ":").split(":")):
                raise InputError(f"column '{column}' cannot come from '{given}': write jpg|png, txt or json:field")
        self.members = {ending for endings in self._images.values() for ending in endings}
        self.members |= {ending.lower() for ending, _, _ in self._texts.values()}
        """Endings of all needed members."""

    def __call__(self, sample: RawSample) -> DecodedSample | Fault | None:
        """The decoded sample, its fault, or None if it shows a held-out image."""
        try:
            if sample.fault is not None:
                raise sample.fault
            if self._held_out and any(image_id(raw) in self._held_out for raw in self._encoded(sample)):
                return None
            texts = {column: _text(sample, ending, key) for column, (ending, _, key) in self._texts.items()}
            if test_set := self._published.find(texts.values(), self._encoded(sample)):
                raise Fault(f"in the test set {test_set}")
            return DecodedSample(sample.name, texts, {column: self._pixels(sample, column) for column in self._images})
        except Fault as fault:
            return fault

    def _encoded(self, sample: RawSample) -> Iterator[bytes]:
        """The sample's encoded images."""
        for endings in self._images.values():
            for ending in endings:
                if isinstance(raw := sample.members.get(ending), bytes):
                    yield raw

    def _pixels(self, sample: RawSample, column: str) -> Tensor:
        members = [sample.members[ending] for ending in self._images[column] if ending in sample.members]
        if not members or not members[0]:
            raise Fault("no image")
        raw = sound(members[0])
        try:
            with open_picture(raw) as image:
                check_size(image)
        except TooLargeError:
            raise Fault("too large") from None
        except ValueError:
            raise Fault("not an image") from None
        try:
            return self._preparation.decode([raw])
        except InputError:
            raise Fault("broken image") from None


def _text(sample: RawSample, ending: str, key: str) -> str:
    if not (text := sample.text(ending.lower(), key)):
        raise Fault("no text")
    return text


class ShardSource:
    """Implements `BatchSource` over shards on disk or in S3.

    The stream of a rank is a function of the seed, the epoch and the number of ranks. A cursor is the number of the
    rank's raw samples used in the epoch times 2**32 plus the number of batches made of them. One does not follow from
    the other, because samples may be lost. So each rank has its own cursor. To resume, the rank's samples up to the
    cursor are read but not decoded, up to one epoch of tar files; if shards come over a network, a small
    `samples_per_epoch` (the next epoch draws another order of all shards) keeps this short.

    A rank that runs out of shards before the epoch's last batch (lost samples, uneven shards) continues with its share
    of another order, so samples then repeat.

    Args:
        shards: where they are, and the members that text columns come from, see `SampleDecoder`.
        plan: its columns may be images, text columns of `shards` and made-up ones; other members are not read.
        preparation: of the image tower's pictures.
        held_out: ids of images that are left out, see `components.core.tables.files.image_id`.
        published: contents of test sets; such samples count as lost.
    """

    def __init__(
        self,
        shards: Shards,
        plan: BatchPlan,
        tokenizer: Tokenizer,
        preparation: Preparation,
        held_out: Collection[str] = (),
        published: TestSetKeys | None = None,
    ) -> None:
        self._plan, self._tokenizer = plan, tokenizer
        self._world, self._rows = plan.world, plan.world.share(plan.batch_size)
        files = ShardFiles()
        listed = find_shards(shards.urls, files)
        if len(listed.urls) < self._world.size:
            raise InputError(
                f"{len(listed.urls)} shards cannot be shared by {self._world.size} ranks: write at least as many "
                "shards as ranks, better a multiple"
            )
        self._samples = listed.samples() if shards.samples_per_epoch is None else shards.samples_per_epoch
        self._texts = sorted(plan.columns - set(IMAGES))
        self._draws = {column: shares for column, shares in plan.draws.items() if column in self._texts}
        needed = {name for column in self._texts for name in self._draws.get(column, [column])}
        for column in sorted(needed - set(shards.columns)):
            raise InputError(
                f"no member of the shards gives the text column '{column}': name one, such as json:{column}"
            )
        texts = {column: shards.columns[column] for column in sorted(needed)}
        self._decoder = SampleDecoder(IMAGES, texts, preparation, held_out, published)
        usual = max(1, self._samples // len(listed.urls))
        reader = ShardReader(files, self._decoder.members, listed.sizes, usual)
        self._order = ShardOrder(listed.urls, reader.read, plan.seed, _BUFFER, self._world)
        self.held_out = 0
        """Samples of this rank that were left out because they show a held-out image."""
        self.errors: Counter[str] = Counter()
        """Samples of this rank that were left out since the source was made, by reason."""
        self._seen, self._most_errors = 0, shards.max_error_share

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in an epoch, the same on every rank."""
        return self._samples // self._plan.batch_size

    def check(self, title: str) -> None:
        """Raise `InputError` if there are too few rows for a single batch."""
        if self.steps_per_epoch == 0:
            size = self._plan.batch_size
            raise InputError(
                f"{title}: the shards give {self._samples} samples, fewer than batch_size {size}: lower it"
            )

    def describe(self) -> dict[str, str]:
        """Everything that the stream depends on."""
        return {
            "kind": "shards",
            "ranks": str(self._world.size),
            "seed": str(self._plan.seed),
            "shards": content_hash(*(url.rpartition("/")[2] for url in self._order.shards))[:16],
            "samples_per_epoch": str(self._samples),
            "buffer": str(self._order.buffer),
        }

    def epoch(self, epoch: int, cursor: int = 0) -> Generator[Batch]:
        """The batches of an epoch from `cursor` on; close it to stop its threads."""
        return prefetched(lambda stop: self._batches(epoch, cursor, stop), _AHEAD)

    def _batches(self, epoch: int, cursor: int, stop: threading.Event) -> Generator[Batch]:
        used, step = divmod(cursor, _STEPS)
        if step >= self.steps_per_epoch:
            return
        with closing(self._order.epoch(epoch)) as endless:
            samples = itertools.takewhile(lambda _: not stop.is_set(), endless)
            skipped: Iterator[RawSample] = itertools.islice(samples, used)
            if used and self._world.leads:
                skipped = track(skipped, "resume: read up to the last step", used, "sample")
            for _ in skipped:
                pass
            examples: list[DecodedSample] = []
            lost = 0
            usable = None
            for sample, result in mapped(self._decoder, samples, _WORKERS, _AHEAD_PER_WORKER):
                used += 1
                usable = sample.repetition if usable is None else usable
                if not isinstance(result, DecodedSample):
                    lost += self._left_out(sample, result)
                    if sample.repetition > usable + 1:
                        counted = self.errors + Counter({"held out": self.held_out})
                        raise InputError(
                            f"shard {sample.shard} and the other shards of rank {self._world.rank} have no usable "
                            f"sample ({_listed(counted)}): correct train.shards"
                        )
                    continue
                usable = sample.repetition
                self._seen += 1
                examples.append(result)
                if len(examples) == self._rows:
                    step += 1
                    yield self._batch(examples, epoch, step, used * _STEPS + step, lost)
                    examples, lost = [], 0
                    if step == self.steps_per_epoch:
                        if self.held_out:
                            _log.info("left out %d samples of held-out images so far", self.held_out)
                        return

    def _left_out(self, sample: RawSample, fault: Fault | None) -> int:
        """Count a held-out sample, without a fault, or lost ones: a shard's may be several; returns the lost ones."""
        if fault is None:
            self.held_out += 1
            return 0
        reason = str(fault)
        if self.errors[reason] < _LOGGED:
            _log.warning("shard %s: sample %s is left out: %s", sample.shard, ascii(sample.key), reason)
        self._seen += sample.lost
        self.errors[reason] += sample.lost
        total = self.errors.total()
        if self._seen >= _ENOUGH and total > self._most_errors * self._seen:
            raise InputError(
                f"{total} of {self._seen} samples cannot be used ({_listed(self.errors)}; the last is "
                f"{sample.key!a} in {sample.shard}): fix the shards or raise max_error_share above {self._most_errors}"
            )
        return sample.lost

    def _batch(self, examples: list[DecodedSample], epoch: int, step: int, cursor: int, lost: int) -> Batch:
        texts = {column: [example.texts[column] for example in examples] for column in examples[0].texts}
        rng = np.random.default_rng([self._plan.seed, epoch, step, self._world.rank, 1])
        for column, shares in sorted(self._draws.items()):
            chosen = rng.choice(list(shares), len(examples), p=np.array(list(shares.values())) / sum(shares.values()))
            texts[column] = [texts[name][row] for row, name in enumerate(chosen)]
        tokens = {column: self._tokenizer(texts[column]) for column in self._texts}
        lengths = {column: self._tokenizer.lengths(rows) for column, rows in tokens.items()}
        pixels = {column: torch.cat([row.pixels[column] for row in examples]) for column in examples[0].pixels}
        names = [example.name for example in examples]
        if (crops := self._plan.crops) is not None:
            pixels = {column: crops.of(images, names, epoch) for column, images in pixels.items()}
        return Batch(names, tokens, lengths, {}, pixels, cursor, lost)


def _listed(counted: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counted.most_common())


@dataclass(frozen=True)
class ShardOrder:
    """The order of samples on a rank: shards are permuted, shared among ranks, read in turn, mixed in a `buffer`."""

    shards: list[str]
    read: Callable[[str], Iterator[RawSample]]
    seed: int
    buffer: int
    world: World

    def epoch(self, epoch: int) -> Generator[RawSample]:
        """This rank's samples, endless: after its last shard it continues with its share of another order."""
        for repetition in itertools.count():
            order = np.random.default_rng([self.seed, epoch, repetition]).permutation(len(self.shards))
            own = [self.shards[index] for index in order[self.world.rank :: self.world.size]]
            rng = np.random.default_rng([self.seed, epoch, repetition, self.world.rank + 1])
            empty = True
            for sample in self._mixed(itertools.chain.from_iterable(map(self.read, own)), rng):
                empty = False
                yield replace(sample, repetition=repetition)
            if empty:
                raise InputError(f"shard {own[0]} and the other shards of rank {self.world.rank} have no samples")

    def _mixed(self, samples: Iterable[RawSample], rng: np.random.Generator) -> Iterator[RawSample]:
        waiting: list[RawSample] = []
        for sample in samples:
            if len(waiting) < self.buffer:
                waiting.append(sample)
                continue
            place = int(rng.integers(len(waiting) + 1))
            if place < len(waiting):
                sample, waiting[place] = waiting[place], sample  # noqa: PLW2901
            yield sample
        for place in rng.permutation(len(waiting)):
            yield waiting[place]


_DIGITS = 15
"""Hexadecimal digits of each hash: ranks exchange integers of 63 bits."""


def shards_hash(shards: Shards, world: World) -> str:
    """Hash of the shards' contents in order, the columns taken from them, and the epoch's length.

    Files count by their SHA-256, and every rank reads its share; objects in S3 by their ETag, without a download. The
    folder does not count. Every rank must call it and gets the same.
    """
    files = ShardFiles()
    urls = find_shards(shards.urls, files).urls
    digests = _digests(urls[world.rank :: world.size], files, show=world.leads)
    hashes = (content_hash(str(world.rank + turn * world.size), digest) for turn, digest in enumerate(digests))
    own = sum(int(digest[:_DIGITS], 16) for digest in hashes)
    bytes_of_all = sum(world.everyones(own % 16**_DIGITS)) % 16**_DIGITS
    columns = repr(sorted(shards.columns.items()))
    return content_hash(columns, str(shards.samples_per_epoch), f"{bytes_of_all:x}")


def _digests(urls: Sequence[str], files: ShardFiles, *, show: bool) -> list[str]:
    etags: dict[str, str] = {}
    for folder in sorted({url.rpartition("/")[0] for url in urls if is_remote(url)}):
        etags |= files.etags(f"{folder}/")
    shown = track(urls, "read shards for their hash", len(urls), "shard") if show and not etags else urls
    # A missing object is reported when it is read.
    return [etags.get(url, "") if is_remote(url) else file_hash(Path(url)) for url in shown]
