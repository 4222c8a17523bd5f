"""Batches streamed from webdataset shards, for methods that train the image tower; lost samples are counted.

Own code in the place of webdataset's pipeline, which cannot resume at an exact sample and does not count what it skips.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import torch

from components.core.ahead import mapped, prefetched
from components.core.compute.distributed import World
from components.core.errors import InputError
from components.core.files import content_hash
from components.core.progress import track
from components.core.shards.listing import ShardFiles, find_shards
from components.core.shards.reader import Fault, RawSample, ShardReader
from components.data.leaks.report import TestSetKeys
from components.encoders.adapter.tokens import Tokenizer, Tokens
from components.training.rows.batches import Batch
from components.training.rows.crops import Crops
from components.training.shards.decode import Example, SampleDecoder
from components.training.shards.order import ShardOrder

IMAGES: Mapping[str, str] = MappingProxyType({"image": "jpg|jpeg|png|webp"})
TEXTS: Mapping[str, str] = MappingProxyType({"caption": "txt"})

_log = logging.getLogger(__name__)

_STEPS = 1 << 32
_AHEAD_PER_WORKER = 16

ENOUGH = 1_000
"""Samples that must have been looked at before their share of errors means something."""

_LOGGED = 5


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
        """A sample, or what stands for several, could not be used.

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


class ShardSource:
    """Implements `Source` over shards on disk or in S3.

    The stream of a rank is a function of the seed, the epoch, and the number of ranks. A cursor holds two counts, the
    rank's raw samples used in the epoch times 2**32 plus the batches made of them, because one does not follow from
    the other where samples were left out; so each rank has its own. To go on from a cursor, the rank's samples up to
    it are read again but not decoded: that costs the reading of up to one epoch's tar files, so where shards come over
    a network a small `samples_per_epoch` (the next epoch draws another order of all shards) keeps it short.

    A rank that uses up its shards before the epoch's last batch (left out samples, uneven shards) goes on with its
    share of another order, so samples then occur again.

    Args:
        shards: a brace pattern, a folder, or a list of them; paths or `s3://` URLs.
        tokenizer: of the text tower.
        size: pixels on a side of the image tower's input.
        batch_size: of the global batch.
        images, texts: the members that columns come from, see `SampleDecoder`.
        draws: made-up text column -> the columns of `texts` it is drawn from at random, with their shares.
        wanted: the text columns to deliver; None for all of `texts` and `draws`. Others are not read.
        held_out: ids of images that are left out, see `components.core.files.image_id`.
        published: what test sets hold, which counts as lost.
        samples_per_epoch: over all ranks; None takes the sum of `sizes.json` beside the shards.
        buffer: samples that wait in memory, encoded, to be drawn from.
        workers: threads that decode.
        ahead: batches made before they are asked for.
        max_error_share: share of samples that may be left out, looked at from the first 1,000 on.
        crops: of the images; None leaves them whole.

    Raises:
        InputError: shards or their sizes are missing or wrong, there are fewer shards than ranks, the ranks cannot
            share the batch, or a wanted column comes from nowhere.
    """

    def __init__(
        self,
        shards: str | Sequence[str],
        tokenizer: Tokenizer,
        size: int,
        batch_size: int,
        seed: int,
        *,
        images: Mapping[str, str] = IMAGES,
        texts: Mapping[str, str] = TEXTS,
        draws: Mapping[str, Mapping[str, float]] | None = None,
        wanted: Collection[str] | None = None,
        held_out: Collection[str] = (),
        published: TestSetKeys | None = None,
        samples_per_epoch: int | None = None,
        buffer: int = 2_000,
        workers: int = 4,
        ahead: int = 4,
        max_error_share: float = 0.05,
        crops: Crops | None = None,
        world: World | None = None,
    ) -> None:
        self._world = world or World()
        self._rows, self._batch_size = self._world.share(batch_size), batch_size
        files = ShardFiles()
        listed = find_shards(shards, files)
        if len(listed.urls) < self._world.size:
            raise InputError(
                f"{len(listed.urls)} shards cannot be shared by {self._world.size} ranks: write at least as many "
                "shards as ranks, better a multiple"
            )
        self._samples = listed.samples() if samples_per_epoch is None else samples_per_epoch
        self._wanted = sorted({*texts, *(draws or {})} if wanted is None else wanted)
        self._draws = {column: shares for column, shares in (draws or {}).items() if column in self._wanted}
        needed = _needed(texts, self._draws, self._wanted)
        self._decoder = SampleDecoder(images, needed, size, held_out, published)
        usual = max(1, self._samples // len(listed.urls))
        reader = ShardReader(files, self._decoder.members, listed.sizes, usual)
        self._order = ShardOrder(listed.urls, reader.read, seed, buffer, self._world)
        self._tokenizer, self._seed, self._crops = tokenizer, seed, crops
        self.held_out = 0
        """Samples of this rank that were left out because they show a held-out image."""
        self._workers, self._ahead = workers, ahead
        self._count = ErrorCount(max_error_share)

    @property
    def errors(self) -> Counter[str]:
        """Samples of this rank that were left out since the source was made, by reason."""
        return self._count.reasons

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in an epoch, the same on every rank."""
        return self._samples // self._batch_size

    def check(self, what: str) -> None:
        """Raise `InputError` when there are too few rows for a single batch."""
        if self.steps_per_epoch == 0:
            raise InputError(
                f"{what}: the shards give {self._samples} samples, fewer than batch_size {self._batch_size}: lower it"
            )

    def describe(self) -> dict[str, str]:
        """What must be the same when a run is resumed: all that the stream depends on."""
        facts = {
            "kind": "shards",
            "ranks": self._world.size,
            "seed": self._seed,
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
        return prefetched(lambda stop: self._batches(epoch, cursor, stop), self._ahead)

    def _batches(self, epoch: int, cursor: int, stop: threading.Event) -> Generator[Batch]:
        used, step = divmod(cursor, _STEPS)
        if step >= self.steps_per_epoch:
            return
        with closing(self._order.epoch(epoch)) as endless:
            samples = itertools.takewhile(lambda _: not stop.is_set(), endless)
            self._skip(samples, used)
            examples: list[Example] = []
            lost = 0
            usable = None
            for sample, result in self._decoded(samples):
                used += 1
                usable = sample.again if usable is None else usable
                if not isinstance(result, Example):
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
        """Count a sample that is not used; returns how many are lost with it, which held-out ones are not."""
        if result is None:
            self.held_out += 1
            return 0
        self._count.lost(sample, result)
        return sample.lost

    def _causes(self) -> str:
        counted = self.errors + Counter({"held out": self.held_out})
        return ", ".join(f"{count} {name}" for name, count in counted.most_common())

    def _decoded(self, samples: Iterator[RawSample]) -> Iterator[tuple[RawSample, Example | Fault | None]]:
        return mapped(self._decoder, samples, self._workers, _AHEAD_PER_WORKER)

    def _skip(self, samples: Iterator[RawSample], count: int) -> None:
        skipped: Iterator[RawSample] = itertools.islice(samples, count)
        if count and self._world.leads:
            skipped = track(skipped, "resume: read up to the last step", count, "sample")
        for _ in skipped:
            pass

    def _batch(self, examples: list[Example], epoch: int, step: int, cursor: int, lost: int) -> Batch:
        texts = {column: [example.texts[column] for example in examples] for column in examples[0].texts}
        rng = np.random.default_rng([self._seed, epoch, step, self._world.rank, 1])
        for column, shares in sorted(self._draws.items()):
            chosen = rng.choice(list(shares), len(examples), p=np.array(list(shares.values())) / sum(shares.values()))
            texts[column] = [texts[name][row] for row, name in enumerate(chosen)]
        tokens: dict[str, Tokens] = {column: self._tokenizer(texts[column]) for column in self._wanted}
        lengths: dict[str, npt.NDArray[np.int64]] = {
            column: self._tokenizer.lengths(rows) for column, rows in tokens.items()
        }
        pixels = {column: torch.cat([row.pixels[column] for row in examples]) for column in examples[0].pixels}
        names = [example.name for example in examples]
        if self._crops is not None:
            pixels = {column: self._crops.of(images, names, epoch) for column, images in pixels.items()}
        return Batch(names, tokens, lengths, {}, pixels, cursor, lost)


def _needed(texts: Mapping[str, str], draws: Mapping[str, Mapping[str, float]], wanted: list[str]) -> dict[str, str]:
    """Those of `texts` that the wanted columns come from."""
    needed = {name for column in wanted for name in draws.get(column, [column])}
    for column in sorted(needed - set(texts)):
        raise InputError(f"no member of the shards gives the text column '{column}': name one, such as json:{column}")
    return {column: texts[column] for column in sorted(needed)}
