"""What the published test sets hold, as sets of 16-byte keys: a hundred bytes for each text or picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from components.core.progress import track
from components.data.leaks.keys import name_key, picture_key, text_key

if TYPE_CHECKING:
    from components.benchmarks.benchmark import Tested

_THREADS = 4


@dataclass(frozen=True)
class KnownSet:
    """One test set, by the keys of its pictures' names, its pictures and its texts.

    Attributes:
        name: of its benchmark.
        fault: why its files cannot be read; then nothing is known of it.
    """

    name: str
    names: frozenset[bytes] = frozenset()
    pictures: frozenset[bytes] = frozenset()
    texts: frozenset[bytes] = frozenset()
    fault: str = ""

    def ways(self, name: bytes | None, picture: bytes, text: bytes | None) -> Iterator[str]:
        """In which ways a pair of these keys is in the set: `name`, `content`, `text`."""
        if name in self.names:
            yield "name"
        if picture in self.pictures:
            yield "content"
        if text in self.texts:
            yield "text"


def known_sets(data: Path) -> list[KnownSet]:
    """The test sets in the folder of `cliptune evaluate --data`; each picture there is read once for each of them.

    Raises:
        InputError: there is no such folder.
    """
    # Reading benchmarks brings torch along, which a project without them need not wait for.
    from components.benchmarks.test_sets import test_sets

    return [
        KnownSet(found.name, fault=found.fault) if found.tested is None else _known(found.name, found.tested)
        for found in test_sets(data)
    ]


def _known(name: str, tested: Tested) -> KnownSet:
    files = list(dict.fromkeys(tested.files))
    named = [f"{tested.names or path.parent.name}/{path.name}" for path in files]
    named += [picture.name for picture in tested.pictures]
    encoded = [path.read_bytes for path in files if path.is_file()]
    encoded += [picture.encoded for picture in tested.pictures if picture.encoded is not None]
    with ThreadPoolExecutor(_THREADS) as pool:
        hashed = pool.map(lambda read: picture_key(read()), encoded)
        pictures = frozenset(track(hashed, f"read {name}", len(encoded), "picture"))
    return KnownSet(name, _keys(map(name_key, named)), pictures, _keys(map(text_key, tested.texts)))


def _keys(found: Iterable[bytes | None]) -> frozenset[bytes]:
    return frozenset(key for key in found if key is not None)
