"""The samples of a shard as they lie in it, nothing decoded."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from webdataset.tariterators import base_plus_ext, group_by_keys

from components.training.shards.files import ShardFiles
from components.training.shards.tar import BrokenShardError, Fault, tar_files

_UNSAFE = re.compile(r"^/|(^|/)\.\.(/|$)|[\x00-\x1f\x7f\ud800-\udfff]")
_LONGEST_KEY = 512


@dataclass(frozen=True)
class RawSample:
    """One sample of a shard, or what was lost in its place.

    Attributes:
        shard: the file's path or URL.
        key: the name that the sample's files share.
        members: content by ending, such as `jpg` or `txt`.
        fault: why the sample as a whole cannot be used.
        lost: how many samples a fault stands for.
        again: how often the shards were read to their end before it, in this epoch.
    """

    shard: str
    key: str
    members: Mapping[str, bytes | Fault] = field(default_factory=dict, repr=False)
    fault: Fault | None = None
    lost: int = 1
    again: int = 0

    @property
    def name(self) -> str:
        """What names the sample to a user."""
        return f"{self.shard.rpartition('/')[2]}/{self.key}"


@dataclass(frozen=True)
class ShardReader:
    """Reads shards in the layout of img2dataset and open_clip: `key.jpg` beside `key.txt` or `key.json`.

    Attributes:
        files: opens them.
        wanted: endings of the members to keep.
        expected: how many samples a shard should have, by path or URL; others are not checked.
        usual: what is counted as lost when a shard breaks and `expected` does not know it.
    """

    files: ShardFiles
    wanted: Collection[str]
    expected: Mapping[str, int]
    usual: int = 1

    def read(self, shard: str) -> Iterator[RawSample]:
        """The samples of a shard in its order; a shard that breaks, or holds too few, ends in a faulty one.

        Raises:
            InputError: the shard is missing or out of reach.
        """
        count, broken = 0, None
        with self.files.open(shard) as stream:
            files = tar_files(stream, lambda name: _key_and_ending(name)[1].lower() in self.wanted)
            try:
                for sample in self._samples(shard, files):
                    count += 1
                    yield sample
            except BrokenShardError as error:
                broken = error
        lost = self.expected.get(shard, self.usual if broken else 0) - count
        if broken:
            yield RawSample(shard, str(broken), fault=Fault("broken shard"), lost=max(1, lost))
        elif lost > 0:
            yield RawSample(shard, f"{lost} samples", fault=Fault("missing from shard"), lost=lost)

    def _samples(self, shard: str, files: Iterator[tuple[str, bytes | Fault]]) -> Iterator[RawSample]:
        repeated = False

        def note(_error: Exception) -> bool:
            nonlocal repeated
            repeated = True
            return True

        named = ({"fname": name, "data": data, "__url__": shard} for name, data in files)
        for sample in group_by_keys(named, keys=_key_and_ending, handler=note):
            key = sample["__key__"]
            members = {ending: data for ending, data in sample.items() if ending in self.wanted}
            fault = Fault("duplicate member") if repeated else None
            if _UNSAFE.search(key) or len(key) > _LONGEST_KEY:
                fault = Fault("unsafe name")
            repeated = False
            yield RawSample(shard, key, members, fault)


def _key_and_ending(name: str) -> tuple[str, str]:
    """Key and ending as webdataset cuts them; a name without either is a sample of its own, so that it is counted."""
    key, ending = base_plus_ext(name)
    return (name, "") if key is None else (key, ending)
