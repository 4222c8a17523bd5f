"""Rows of a table that nearly repeat an earlier one: MinHash bands on disk, candidates compared exactly."""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from more_itertools import batched

Rows = npt.NDArray[np.int64]
Shingles = frozenset[int]

_PERMUTATIONS = 128
_RECALL = 0.98
"""Share of the pairs right at the threshold that share a band; of closer pairs it is more."""
_BLOCK = 20_000
_MEMORY = "256MB"

_TABLES = """
    create table bands (band ubigint, kept integer);
    create table kept (kept integer, shingles ubigint[]);
    create table repeated (row bigint);
"""
_LIKE_EARLIER = """
    with pairs as (select distinct new.place, bands.kept from new_bands new join bands using (band)),
    counted as (
        select place, len(new.shingles) as one, len(kept.shingles) as other,
            len(list_intersect(new.shingles, kept.shingles)) as shared
        from pairs join new_texts new using (place) join kept using (kept)
    )
    select distinct place from counted where shared >= $threshold * (one + other - shared)
"""


class NearDuplicates:
    """Finds rows whose text nearly repeats that of an earlier row which does not do so itself.

    Two texts are as alike as the Jaccard similarity of their shingles: pairs of neighbouring words, so that "a dog
    left of a cat" is far from "a cat left of a dog". Memory is flat: a block of texts, and a database that pages to a
    temporary file (some 250 bytes a row), which is gone on exit. A text below the threshold is never found; of those
    above it 2% at most are missed (MinHash with banding, Leskovec et al., Mining of Massive Datasets, section 3.4).

    Args:
        threshold: Jaccard similarity from which a text repeats another.
    """

    def __init__(self, threshold: float) -> None:
        import duckdb

        self._threshold = threshold
        self._bands, self._width = _banding(threshold)
        self._folder = tempfile.TemporaryDirectory(prefix="near-duplicates-")
        file = Path(self._folder.name) / "bands.db"
        self._database = duckdb.connect(
            str(file), config={"memory_limit": _MEMORY, "temp_directory": f"{file}.tmp", "threads": 2}
        )
        self._database.execute("set preserve_insertion_order = false")
        self._database.execute(_TABLES)
        self._kept = 0

    def __enter__(self) -> NearDuplicates:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the temporary file."""
        self._database.close()
        self._folder.cleanup()

    def add(self, rows: Sequence[int], texts: Sequence[str]) -> Rows:
        """The rows among `rows` that repeat an earlier one, of this call or of those before.

        Args:
            rows: numbers of the rows, in order.
            texts: the text of each; no shingle crosses a line end, so several answers stand on a line each.
        """
        found = [self._add_block(block) for block in batched(zip(rows, texts, strict=True), _BLOCK)]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def duplicates(self) -> Rows:
        """The numbers of all rows that repeat an earlier one, sorted."""
        found: Rows = self._database.sql("select row from repeated order by row").fetchnumpy()["row"]
        return np.asarray(found, dtype=np.int64)

    def _add_block(self, block: Sequence[tuple[int, str]]) -> Rows:
        rows = np.array([row for row, _ in block], dtype=np.int64)
        shingles = [_shingles(text) for _, text in block]
        bands = self._hash_bands(shingles)
        repeating = self._like_earlier(shingles, bands)
        kept = self._settle(shingles, bands, repeating)
        self._insert("repeated", {"row": rows[sorted(repeating)]})
        self._keep(kept, shingles, bands)
        return rows[sorted(repeating)]

    def _hash_bands(self, shingles: Sequence[Shingles]) -> npt.NDArray[np.uint64]:
        """One hash per text and band, `[texts, bands]`; texts that share one are candidates."""
        import pandas as pd
        from datasketch import MinHash

        hashed = MinHash.generator(shingles, num_perm=_PERMUTATIONS, hashfunc=int, scheme="affine64")
        signatures = np.stack([text.hashvalues for text in hashed])
        columns = []
        for band in range(self._bands):
            of_band = pd.DataFrame(signatures[:, band * self._width : (band + 1) * self._width]).assign(band=band)
            columns.append(pd.util.hash_pandas_object(of_band, index=False).to_numpy())
        return np.stack(columns, axis=1)

    def _like_earlier(self, shingles: Sequence[Shingles], bands: npt.NDArray[np.uint64]) -> set[int]:
        """Places of the texts that repeat one of an earlier block."""
        place = np.arange(len(shingles), dtype=np.int32)
        new_bands = {"place": np.repeat(place, self._bands), "band": bands.ravel()}
        new_texts = {"place": place, "shingles": _lists(shingles)}
        with self._database.cursor() as cursor:
            cursor.register("new_bands", pa.table(new_bands))
            cursor.register("new_texts", pa.table(new_texts))
            found = cursor.execute(_LIKE_EARLIER, {"threshold": self._threshold}).fetchnumpy()["place"]
        return set(found.tolist())

    def _settle(self, shingles: Sequence[Shingles], bands: npt.NDArray[np.uint64], repeating: set[int]) -> list[int]:
        """Add to `repeating` the places that repeat one of the same block, and return those that are kept."""
        buckets: dict[int, list[int]] = defaultdict(list)
        kept = []
        for place, text in enumerate(shingles):
            if place in repeating or not text:
                continue
            mine = bands[place].tolist()
            near = {other for band in mine for other in buckets.get(band, ())}
            if any(_jaccard(text, shingles[other]) >= self._threshold for other in near):
                repeating.add(place)
                continue
            kept.append(place)
            for band in mine:
                buckets[band].append(place)
        return kept

    def _keep(self, places: list[int], shingles: Sequence[Shingles], bands: npt.NDArray[np.uint64]) -> None:
        numbers = np.arange(self._kept, self._kept + len(places), dtype=np.int32)
        self._kept += len(places)
        self._insert("bands", {"band": bands[places].ravel(), "kept": np.repeat(numbers, self._bands)})
        self._insert("kept", {"kept": numbers, "shingles": _lists([shingles[place] for place in places])})

    def _insert(self, table: str, columns: dict[str, Any]) -> None:
        with self._database.cursor() as cursor:
            cursor.register("more", pa.table(columns))
            cursor.execute(f"insert into {table} select * from more")


def _banding(threshold: float) -> tuple[int, int]:
    """Number and width of the bands: the widest, for the fewest candidates, that find what is at the threshold."""
    for width in range(_PERMUTATIONS, 1, -1):
        bands = _PERMUTATIONS // width
        if 1 - (1 - threshold**width) ** bands >= _RECALL:
            return bands, width
    return _PERMUTATIONS, 1


def _shingles(text: str) -> Shingles:
    """Hashes of the pairs of neighbouring words of each line; a word alone stands for itself."""
    lines = (re.findall(r"[^\W_]+", line) for line in text.casefold().splitlines())
    return frozenset(
        _hash(shingle)
        for words in lines
        for shingle in ((f"{one} {other}" for one, other in pairwise(words)) if len(words) > 1 else words)
    )


@lru_cache(maxsize=1 << 18)
def _hash(shingle: str) -> int:
    return int.from_bytes(blake2b(shingle.encode("utf-8", "replace"), digest_size=8).digest(), "little")


def _jaccard(one: Shingles, other: Shingles) -> float:
    both = len(one & other)
    return both / (len(one) + len(other) - both)


def _lists(shingles: Sequence[Shingles]) -> pa.Array:
    return pa.array([list(text) for text in shingles], pa.list_(pa.uint64()))
