"""Removes pairs that a published test set contains from training and validation.

Test sets are stored as sets of 16-byte keys: about a hundred bytes per text or picture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from components.core.settings import Prepare
from components.core.system.errors import InputError
from components.core.system.progress import track
from components.core.tables.ahead import mapped
from components.core.tables.formats import write_record
from components.core.tables.records import PUBLISHED_PICTURES, PUBLISHED_TEXTS
from components.data.leaks.keys import name_key, picture_key, text_key
from components.data.leaks.report import COUNTS, PICTURES, TEXTS, LeakCounts
from components.data.source import Pair
from components.data.test_sets.files import Tested
from components.data.test_sets.readers import load_test_sets


@dataclass(frozen=True)
class KnownSet:
    """One test set: the keys of its pictures' names, its pictures and its texts.

    Attributes:
        fault: why its files cannot be read; the keys are then empty.
    """

    name: str
    names: frozenset[bytes] = frozenset()
    pictures: frozenset[bytes] = frozenset()
    texts: frozenset[bytes] = frozenset()
    fault: str = ""

    def ways(self, name: bytes | None, picture: bytes, text: bytes | None) -> Iterator[str]:
        """The ways in which a pair with these keys is in the set: `name`, `content`, `text`."""
        if name in self.names:
            yield "name"
        if picture in self.pictures:
            yield "content"
        if text in self.texts:
            yield "text"


def known_sets(data: Path) -> list[KnownSet]:
    """The test sets in the folder of `cliptune evaluate --data-dir`; each set reads its pictures once."""
    return [
        KnownSet(name, fault=found) if isinstance(found, str) else _known(name, found)
        for name, found in load_test_sets(data)
    ]


def _known(name: str, tested: Tested) -> KnownSet:
    files = list(dict.fromkeys(tested.files))
    named = [f"{tested.names or path.parent.name}/{path.name}" for path in files]
    named += [picture.name for picture in tested.pictures]
    encoded = [path.read_bytes for path in files if path.is_file()]
    encoded += [picture.encoded for picture in tested.pictures if picture.encoded is not None]
    hashed = (key for _, key in mapped(lambda read: picture_key(read()), encoded, 4))
    pictures = frozenset(track(hashed, f"read {name}", len(encoded), "picture"))
    return KnownSet(name, _keys(map(name_key, named)), pictures, _keys(map(text_key, tested.texts)))


def _keys(found: Iterable[bytes | None]) -> frozenset[bytes]:
    return frozenset(key for key in found if key is not None)


@dataclass
class Guard:
    """Compares pairs with the test sets, and counts those that it drops.

    Attributes:
        refuse: whether a pair of a test set is an error.
        found: number of dropped pairs by test set and way; one pair may be in several.
    """

    benchmarks: Path | None
    refuse: bool
    known: list[KnownSet]
    found: Counter[tuple[str, str]] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)

    @staticmethod
    def of(prepare: Prepare) -> Guard:
        """The guard of the settings; without `prepare.heldout_testsets_dir` it has no test sets."""
        known = known_sets(prepare.heldout_testsets_dir) if prepare.heldout_testsets_dir else []
        return Guard(prepare.heldout_testsets_dir, prepare.on_test_leak == "refuse", known)

    def clean(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The test pairs, and the others that are in no test set."""
        kept: Counter[str] = Counter()
        for pair in pairs:
            hits = self._hits(pair) if self.known and pair.split in ("train", "val") else []
            if hits and self.refuse:
                name, way = hits[0]
                raise InputError(
                    f"pair {pair.id} ('{pair.caption[:60]}', {pair.name or 'no name'}) of split {pair.split} is in the "
                    f"test set {name} by {way}: remove it, or set prepare.on_test_leak to drop"
                )
            if hits:
                self.found.update(hits)
                self.dropped[pair.split] += 1
            else:
                kept[pair.split] += 1
                yield pair
        emptied = [split for split in self.dropped if not kept[split]]
        if emptied:
            raise InputError(f"every pair of split {emptied[0]} is in a published test set: give other images")

    def _hits(self, pair: Pair) -> list[tuple[str, str]]:
        name = name_key(pair.name)
        texts = [text_key(text) for text in (pair.caption, pair.paraphrase, pair.negation) if text]
        ways = (
            (known.name, way)
            for known in self.known
            for text in texts
            for way in known.ways(name, pair.image.key, text)
        )
        return list(dict.fromkeys(ways))

    def counts(self) -> LeakCounts:
        """The test sets that were compared, and the number of dropped pairs."""
        ways: dict[str, dict[str, int]] = {}
        for (name, way), count in sorted(self.found.items()):
            ways.setdefault(name, {})[way] = count
        return LeakCounts(
            benchmarks=None if self.benchmarks is None else str(self.benchmarks),
            checked=[known.name for known in self.known if not known.fault],
            unread={known.name: known.fault for known in self.known if known.fault},
            found=ways,
            dropped=dict(sorted(self.dropped.items())),
        )

    def write(self, folder: Path) -> None:
        """Write the counts, and the keys of all test texts and pictures for later stages."""
        write_record(folder / COUNTS, self.counts())
        for table, file, kind in ((PUBLISHED_TEXTS, TEXTS, "texts"), (PUBLISHED_PICTURES, PICTURES, "pictures")):
            with table.writer(folder / file) as append:
                for known in self.known:
                    keys = sorted(getattr(known, kind))
                    columns = {"test_set": [known.name] * len(keys), "key": keys}
                    append(pa.table(columns, schema=table.schema))
