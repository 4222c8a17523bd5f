"""Have queries moved away from the texts that an encoder was trained and tested on?"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.core.system.errors import InputError
from components.core.tables import folders
from components.core.tables.folders import benchmark_table
from components.core.tables.records import CAPTION_QUERIES, PAIRS, WRITTEN_QUERIES
from components.core.tables.table import Table
from components.core.tables.written_queries import FILE
from components.data.row_files import RowFiles
from components.encoders.adapter.encoder import Encoder, Vectors
from components.evaluation.benchmarks.project.rankings import CAPTIONS_FILE
from components.evaluation.scoring.intervals import Interval, difference_of_shares, share_interval
from components.evaluation.scoring.results import DEFAULT, Folders

KnownText = tuple[str, str]
"""A text and the id of its picture."""
COLUMN = "query"
USUAL = 0.05
"""Share of the known texts themselves that counts as unlike those of other pictures."""
_MOST, _HELD_OUT, _FEWEST = 5000, 1000, 50
_SHOWN = 10
_LOG = RowFiles(names=(), roles={}, text="query", texts="queries")


@dataclass(frozen=True)
class KnownTexts:
    """Known texts with their unit vectors `[texts, dim]`, and how near texts of other pictures are to them.

    Attributes:
        least: cosine with the nearest text of another picture that 95% of them reach.
        held_out: number of texts, one of each picture, that this was measured on.
    """

    texts: Sequence[str]
    features: Vectors
    least: float
    held_out: int

    @staticmethod
    def of(embed: Callable[[Sequence[str]], Vectors], known: Sequence[KnownText], seed: int = 0) -> KnownTexts:
        """At most 5,000 distinct texts, drawn; raises InputError where they are of too few pictures.

        A text's siblings, other texts of its picture, are nearer to it than any text is to a user's query. So a text
        of a picture is compared with those of all others.
        """
        draw = random.Random(seed)
        picture_of = dict(known)
        if (pictures := len(set(picture_of.values()))) < 2 * _FEWEST:
            raise InputError(f"known texts are of {pictures} pictures: at least {2 * _FEWEST} are needed")
        texts = _drawn(draw, list(picture_of), _MOST)
        features = embed(texts)
        _, first, owners = np.unique([picture_of[text] for text in texts], return_index=True, return_inverse=True)
        held = draw.sample(first.tolist(), min(_HELD_OUT, len(first)))
        cosines = features[held] @ features.T
        cosines[owners[held][:, None] == owners] = -1
        least = float(np.quantile(cosines.max(axis=1), USUAL, method="lower"))
        return KnownTexts(texts, features, least, len(held))

    def unlike(self, vectors: Vectors) -> int:
        """How many of the unit vectors `[queries, dim]` are further from their nearest known text than that."""
        return int(((vectors @ self.features.T).max(axis=1) < self.least).sum())


@dataclass(frozen=True)
class Drift:
    """A log of queries against known texts.

    Attributes:
        queries, known: numbers of distinct texts that were compared.
        unlike: share of the queries that are further from their nearest known text than 95% of the known texts are from
            those of other pictures, with its 95% interval.
        more: `unlike` less the share of the known texts, with the interval of both.
        one_word: share of one-word texts among queries, and among known texts.
        most_unlike: queries with their nearest known text and the cosine, the least alike first.
    """

    queries: int
    known: int
    unlike: Interval
    more: Interval
    one_word: tuple[float, float]
    most_unlike: Sequence[tuple[str, str, float]]

    @property
    def is_due(self) -> bool:
        """Whether surely more than twice the usual share is unlike."""
        return self.more.low > USUAL


def read_log(file: Path) -> list[str]:
    """The queries of a text file with one on each line, or of column `query` of a TSV, CSV, JSONL or Parquet file."""
    try:
        if file.suffix in _LOG.endings:
            texts: list[object] = [row.get(COLUMN) for _, row in _LOG.rows(file, {COLUMN: (COLUMN,)})]
        else:
            texts = [*file.read_text("utf-8-sig").split("\n")]
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read ({str(error).splitlines()[0]}): give one query on each line") from None
    queries = [" ".join(str(text).split()) for text in texts if text is not None]
    if len(found := [text for text in queries if text]) < _FEWEST:
        raise InputError(f"{file} has {len(found)} queries: at least {_FEWEST} are needed")
    return found


def known_texts(
    pairs: Path = folders.PAIRS, written: Path = folders.TEST_SET, used: Folders = DEFAULT
) -> list[KnownText]:
    """Captions of the training split and the queries that encoders are tested with, each with its picture."""
    found = _texts(PAIRS, pairs / "train.parquet", "caption")
    for table, path, column in (
        (CAPTION_QUERIES, benchmark_table(used.evaluation, CAPTIONS_FILE), "text"),
        (WRITTEN_QUERIES, written / FILE, "query"),
    ):
        found += _texts(table, path, column) if path.is_file() else []
    return found


def _texts(table: Table, path: Path, column: str) -> list[KnownText]:
    rows = table.read(path, [column, "image_id"])
    return list(zip(rows[column].to_pylist(), rows["image_id"].to_pylist(), strict=True))


def drift(encoder: Encoder, log: Sequence[str], known: Sequence[KnownText], seed: int = 0) -> Drift:
    """Compare a log with known texts; of both at most 5,000 distinct texts are drawn."""
    reference = KnownTexts.of(lambda texts: encoder.embed_texts(texts, title="embed known texts"), known, seed)
    queries, others = _drawn(random.Random(seed), log, _MOST), reference.texts
    vectors = encoder.embed_texts(queries, title="embed queries")
    cosines = vectors @ reference.features.T
    nearest = cosines.argmax(axis=1)
    best = cosines[np.arange(len(queries)), nearest]
    share = reference.unlike(vectors) / len(queries)
    order = np.argsort(best, kind="stable")[:_SHOWN]
    return Drift(
        queries=len(queries),
        known=len(others),
        unlike=share_interval(share, len(queries)),
        more=difference_of_shares(share, len(queries), USUAL, reference.held_out),
        one_word=(_one_word(queries), _one_word(others)),
        most_unlike=[(queries[row], others[nearest[row]], float(best[row])) for row in order],
    )


def _drawn(draw: random.Random, texts: Sequence[str], most: int) -> list[str]:
    distinct = list(dict.fromkeys(texts))
    return draw.sample(distinct, min(most, len(distinct)))


def _one_word(texts: Sequence[str]) -> float:
    return sum(len(text.split()) == 1 for text in texts) / len(texts)
