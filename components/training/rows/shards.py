"""Batches streamed from webdataset shards, for methods that train the image tower; lost samples are counted.

webdataset's own pipeline cannot resume at an exact sample and does not count the samples that it skips.
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

from components.core.compute.distributed import World
from components.core.pictures.shards.listing import ShardFiles, find_shards, is_remote
from components.core.pictures.shards.reader import Fault, RawSample, ShardReader
from components.core.settings import Shards
from components.core.system.errors import InputError
from components.core.system.progress import track
from components.core.tables.ahead import mapped, prefetched
from components.core.tables.files import content_hash, file_hash
from components.data.leaks.report import TestSetKeys
from components.encoders.adapter.tokens import Tokenizer
from components.training.rows.batches import Batch, BatchPlan
from components.training.rows.decode import DecodedSample, SampleDecoder

IMAGES = {"image": "jpg|jpeg|png|webp"}

_log = logging.getLogger(__name__)

_STEPS = 1 << 32
_AHEAD_PER_WORKER = 16

ENOUGH = 1_000
"""Samples after which the share of errors is checked."""

_LOGGED = 5
"""Warnings per reason of lost samples."""


@dataclass(frozen=True)
class Reading:
    """How shards are read; except `buffer`, nothing of it changes the batches.

    Attributes:
        buffer: encoded samples in memory that the next one is drawn from.
        workers: threads that decode.
        ahead: finished batches that wait.
    """

    buffer: int = 2_000
    workers: int = 4
    ahead: int = 4


class ShardSource:
    """Implements `BatchSource` over shards on disk or in S3.

    The stream of a rank is a function of the seed, the epoch and the number of ranks. A cursor is the number of the
    rank's raw samples used in the epoch times 2**32 plus the number of batches made of them: one does not follow from
    the other, because samples may be lost. So each rank has its own cursor. To resume, the rank's samples up to the
    cursor are read but not decoded, up to one epoch of tar files; if shards come over a network, a small
    `samples_per_epoch` (the next epoch draws another order of all shards) keeps this short.

    A rank that runs out of shards before the epoch's last batch (lost samples, uneven shards) continues with its share
    of another order, so samples then repeat.

    Args:
        shards: where they are, and the members that text columns come from, see `SampleDecoder`.
        plan: its columns may be images, text columns of `shards` and made-up ones; other members are not read.
        tokenizer: of the text tower.
        size: pixels on a side of the image tower's input.
        held_out: ids of images that are left out, see `components.core.tables.files.image_id`.
        published: contents of test sets; such samples count as lost.

    Raises:
        InputError: shards or their sizes are missing or wrong, there are fewer shards than ranks, the ranks cannot
            share the batch, or no member of the shards gives a text column.
    """

    def __init__(
        self,
        shards: Shards,
        plan: BatchPlan,
        tokenizer: Tokenizer,
        size: int,
        held_out: Collection[str] = (),
        published: TestSetKeys | None = None,
        reading: Reading | None = None,
    ) -> None:
        self._plan, self._reading, self._tokenizer = plan, reading or Reading(), tokenizer
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
        needed = _needed(shards.columns, self._draws, self._texts)
        self._decoder = SampleDecoder(IMAGES, needed, size, held_out, published)
        usual = max(1, self._samples // len(listed.urls))
        reader = ShardReader(files, self._decoder.members, listed.sizes, usual)
        self._order = ShardOrder(listed.urls, reader.read, plan.seed, self._reading.buffer, self._world)
        self.held_out = 0
        """Samples of this rank that were left out because they show a held-out image."""
        self._count = ErrorCount(shards.max_error_share)

    @property
    def errors(self) -> Counter[str]:
        """Samples of this rank that were left out since the source was made, by reason."""
        return self._count.reasons

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
        facts = {
            "kind": "shards",
            "ranks": self._world.size,
            "seed": self._plan.seed,
            "shards": content_hash(*(url.rpartition("/")[2] for url in self._order.shards))[:16],
            "samples_per_epoch": self._samples,
            "buffer": self._order.buffer,
        }
        return {name: str(value) for name, value in facts.items()}

    def epoch(self, epoch: int, cursor: int = 0) -> Generator[Batch]:
        """The batches of an epoch from `cursor` on; close it to stop its threads.

        Raises:
            InputError: too many samples cannot be used, or none in all of the rank's shards, or a shard is missing or
                out of reach.
        """
        return prefetched(lambda stop: self._batches(epoch, cursor, stop), self._reading.ahead)

    def _batches(self, epoch: int, cursor: int, stop: threading.Event) -> Generator[Batch]:
        used, step = divmod(cursor, _STEPS)
        if step >= self.steps_per_epoch:
            return
        with closing(self._order.epoch(epoch)) as endless:
            samples = itertools.takewhile(lambda _: not stop.is_set(), endless)
            self._skip(samples, used)
            examples: list[DecodedSample] = []
            lost = 0
            usable = None
            for sample, result in mapped(self._decoder, samples, self._reading.workers, _AHEAD_PER_WORKER):
                used += 1
                usable = sample.again if usable is None else usable
                if not isinstance(result, DecodedSample):
                    lost += self._left_out(sample, result)
                    if sample.again > usable + 1:
                        raise InputError(
                            f"shard {sample.shard} and the rest of rank {self._world.rank}'s hold no sample that can "
                            f"be used ({self._causes()}): correct train.shards"
                        )
                    continue
                usable = sample.again
                self._count.good()
                examples.append(result)
                if len(examples) == self._rows:
                    step += 1
                    yield self._batch(examples, epoch, step, used * _STEPS + step, lost)
                    examples, lost = [], 0
                    if step == self.steps_per_epoch:
                        if self.held_out:
                            _log.info("left out %d samples of held-out images so far", self.held_out)
                        return

    def _left_out(self, sample: RawSample, result: Fault | None) -> int:
        """Count an unused sample; returns the number of lost samples, 0 for a held-out one."""
        if result is None:
            self.held_out += 1
            return 0
        self._count.lost(sample, result)
        return sample.lost

    def _causes(self) -> str:
        counted = self.errors + Counter({"held out": self.held_out})
        return ", ".join(f"{count} {name}" for name, count in counted.most_common())

    def _skip(self, samples: Iterator[RawSample], count: int) -> None:
        skipped: Iterator[RawSample] = itertools.islice(samples, count)
        if count and self._world.leads:
            skipped = track(skipped, "resume: read up to the last step", count, "sample")
        for _ in skipped:
            pass

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


def _needed(texts: Mapping[str, str], draws: Mapping[str, Mapping[str, float]], wanted: list[str]) -> dict[str, str]:
    """The part of `texts` that the wanted columns come from."""
    needed = {name for column in wanted for name in draws.get(column, [column])}
    for column in sorted(needed - set(texts)):
        raise InputError(f"no member of the shards gives the text column '{column}': name one, such as json:{column}")
    return {column: texts[column] for column in sorted(needed)}


class ErrorCount:
    """Lost samples by reason.

    Args:
        most: the share of lost samples above which the run stops.
    """

    def __init__(self, most: float) -> None:
        self.reasons: Counter[str] = Counter()
        self.samples = 0
        self._most = most

    def good(self) -> None:
        """A sample was used."""
        self.samples += 1

    def lost(self, sample: RawSample, fault: Fault) -> None:
        """A sample, or a shard with several, could not be used.

        Raises:
            InputError: too large a share is lost.
        """
        reason = str(fault)
        if self.reasons[reason] < _LOGGED:
            _log.warning("shard %s: sample %s is left out: %s", sample.shard, ascii(sample.key), reason)
        self.samples += sample.lost
        self.reasons[reason] += sample.lost
        total = self.reasons.total()
        if self.samples >= ENOUGH and total > self._most * self.samples:
            causes = ", ".join(f"{count} {name}" for name, count in self.reasons.most_common())
            raise InputError(
                f"{total} of {self.samples} samples cannot be used ({causes}; the last is {sample.key!a} in "
                f"{sample.shard}): fix the shards or raise max_error_share above {self._most}"
            )


@dataclass(frozen=True)
class ShardOrder:
    """The order of samples on a rank: shards are permuted, shared among ranks, read in turn and mixed in a buffer.

    Attributes:
        shards: paths or URLs of all shards.
        read: returns a shard's samples.
        buffer: encoded samples in memory that the next one is drawn from.
    """

    shards: list[str]
    read: Callable[[str], Iterator[RawSample]]
    seed: int
    buffer: int
    world: World

    def epoch(self, epoch: int) -> Generator[RawSample]:
        """This rank's samples, endless: after its last shard it continues with its share of another order.

        Raises:
            InputError: this rank's shards have no samples.
        """
        for again in itertools.count():
            order = np.random.default_rng([self.seed, epoch, again]).permutation(len(self.shards))
            own = [self.shards[index] for index in order[self.world.rank :: self.world.size]]
            rng = np.random.default_rng([self.seed, epoch, again, self.world.rank + 1])
            empty = True
            for sample in self._mixed(itertools.chain.from_iterable(map(self.read, own)), rng):
                empty = False
                yield replace(sample, again=again)
            if empty:
                raise InputError(f"shard {own[0]} and the rest of rank {self.world.rank}'s hold no samples")

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

    Raises:
        InputError: the shards cannot be found or read.
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
