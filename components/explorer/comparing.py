"""What two encoders find in one index for a query and its paraphrase, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel

from components.benchmarks.encoding.context import EncoderUnderTest
from components.core.errors import InputError
from components.core.metrics import Features, average_overlap, jaccard_similarity
from components.index.image_index import ImageIndex

_DEEPEST = 100
"""How far down a first encoder's list the rank of a picture is looked for that another encoder finds."""
_FEW = 50
"""Different values of a column that is offered as a filter."""
_KEPT = 512
"""Texts whose features are remembered."""
CAPTION = "caption"
_OWN = ("image_id", CAPTION, "name", "file", "position", "size")

Marks = npt.NDArray[np.bool_]


class Hit(BaseModel):
    """A picture in a list.

    Attributes:
        row: in the index.
        score: cosine of text and picture.
        both: whether the list of the other wording has it, too.
        move: places it is higher than in the first encoder's list; None where that has it nowhere in sight.
        new: whether the first encoder's list lacks it.
    """

    row: int
    caption: str
    name: str
    score: float
    both: bool = False
    move: int | None = None
    new: bool = False


class Side(BaseModel):
    """What one encoder finds.

    Attributes:
        ao, js: AO@k and JS@k of the two lists; None without a paraphrase.
        lost: pictures that the first encoder finds for the query and this one does not.
    """

    encoder: str
    query: list[Hit]
    paraphrase: list[Hit] = []
    ao: float | None = None
    js: float | None = None
    lost: list[Hit] = []


class Compared(BaseModel):
    """The answer to a query, the first encoder's side first."""

    query: str
    paraphrase: str
    k: int
    sides: list[Side]


@dataclass
class Explorer:
    """Encoders before one index.

    Args:
        index: has accepted all encoders.
        encoders: two or more; the first is what the others are compared with.
    """

    index: ImageIndex
    encoders: Sequence[EncoderUnderTest]
    _known: dict[tuple[str, str], Features] = field(default_factory=dict, repr=False)

    def compare(self, query: str, paraphrase: str, k: int, among: Marks | None = None) -> Compared:
        """The k best pictures of every encoder for both wordings.

        Args:
            paraphrase: another wording of the query; empty for none.
            among: which rows to search, as `filtered` gives them.
        """
        texts = [query, paraphrase] if paraphrase else [query]
        sides, first = list[Side](), list[dict[int, int]]()
        for encoder in self.encoders:
            found = self.index.search(self._embedded(encoder, texts), max(k, _DEEPEST), among)
            lists = [_there(rows) for rows in found.rows]
            places = [{row: place for place, row in enumerate(rows)} for rows in lists]
            first = first or places
            tops = [rows[:k] for rows in lists]
            others = [set(rows) for rows in reversed(tops)] if paraphrase else [set[int]()]
            hits = [
                self._hits(rows, scores, before, other, k)
                for rows, scores, before, other in zip(tops, found.scores, first, others, strict=True)
            ]
            side = Side(encoder=encoder.name, query=hits[0], lost=self._lost(sides, tops[0]))
            if paraphrase:
                side.paraphrase = hits[1]
                side.ao, side.js = overlap(tops[0], tops[1], k)
            sides.append(side)
        return Compared(query=query, paraphrase=paraphrase, k=k, sides=sides)

    def similar(self, row: int, k: int, among: Marks | None = None) -> list[Hit]:
        """The pictures most like that of a row, itself left out; all encoders share the image tower."""
        found = self.index.search(self.index.vector([row]), k + 1, among)
        rows = [other for other in _there(found.rows[0]) if other != row][:k]
        scores = dict(zip(found.rows[0].tolist(), found.scores[0].tolist(), strict=True))
        return [hit.model_copy(update={"score": scores[hit.row]}) for hit in self.shown(rows)]

    def wordings(self, texts: Sequence[str], k: int, among: Marks | None = None) -> list[list[list[Hit]]]:
        """For every encoder the list of each wording; `both` marks what every wording of the encoder finds."""
        sides = []
        for encoder in self.encoders:
            found = self.index.search(self._embedded(encoder, texts), k, among)
            lists = [_there(rows) for rows in found.rows]
            shared = set.intersection(*map(set, lists))
            hits = [self.shown(rows) for rows in lists]
            sides.append([[hit.model_copy(update={"both": hit.row in shared}) for hit in one] for one in hits])
        return sides

    def shown(self, rows: Sequence[int]) -> list[Hit]:
        """Pictures by their rows, without scores."""
        told = self.index.rows(rows).select([CAPTION, "name"]).to_pylist() if len(rows) else []
        return [
            Hit(row=row, caption=one[CAPTION] or "", name=one["name"] or "", score=0.0)
            for row, one in zip(rows, told, strict=True)
        ]

    def filters(self) -> dict[str, list[str]]:
        """Columns with few different values, and these."""
        offered = {}
        for name in self.index.schema.names:
            if name in _OWN:
                continue
            values = pc.unique(pc.cast(self.index.column(name), pa.string()))
            if 1 < len(values) <= _FEW:
                offered[name] = sorted(value for value in values.to_pylist() if value is not None)
        return offered

    def filtered(self, wanted: Mapping[str, str], words: str = "") -> Marks | None:
        """Marks of the rows whose columns have the wanted values and whose caption holds the words; None for all.

        Raises:
            InputError: the index has no such column to filter by.
        """
        conditions = [self._column(name, value) for name, value in wanted.items()]
        if words:
            conditions.append(pc.match_substring(self.index.column(CAPTION), words, ignore_case=True))
        if not conditions:
            return None
        marks: Marks = np.all([np.asarray(pc.fill_null(one, False)) for one in conditions], axis=0)
        return marks

    def _column(self, name: str, value: str) -> pa.ChunkedArray:
        if name not in self.index.schema.names or name in _OWN:
            raise InputError(f"the index has no column '{name}' to filter by")
        return pc.equal(pc.cast(self.index.column(name), pa.string()), value)

    def _hits(
        self, rows: Sequence[int], scores: Features, first: Mapping[int, int], other: set[int], k: int
    ) -> list[Hit]:
        hits = []
        for place, hit in enumerate(self.shown(rows)):
            before = first.get(hit.row)
            changes = {
                "score": float(scores[place]),
                "both": hit.row in other,
                "move": None if before is None else before - place,
                "new": before is None or before >= k,
            }
            hits.append(hit.model_copy(update=changes))
        return hits

    def _lost(self, sides: Sequence[Side], rows: Sequence[int]) -> list[Hit]:
        own = set(rows)
        return [hit for hit in sides[0].query if hit.row not in own] if sides else []

    def _embedded(self, encoder: EncoderUnderTest, texts: Sequence[str]) -> Features:
        new = [text for text in dict.fromkeys(texts) if (encoder.name, text) not in self._known]
        if new:
            vectors = encoder.encoder.embed_texts(new)
            self._known |= {(encoder.name, text): vector for text, vector in zip(new, vectors, strict=True)}
        found = np.stack([self._known[encoder.name, text] for text in texts])
        while len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]
        return found


def overlap(first: Sequence[int], second: Sequence[int], k: int) -> tuple[float, float]:
    """AO and JS of two lists at depth k, or at their length where a filter leaves fewer rows."""
    depth = min(k, len(first), len(second))
    if not depth:
        return 0.0, 0.0
    a, b = (np.array([rows[:depth]]) for rows in (first, second))
    return float(average_overlap(a, b, depth)[0]), float(jaccard_similarity(a, b, depth)[0])


def _there(rows: npt.NDArray[np.int64]) -> list[int]:
    return [int(row) for row in rows if row >= 0]
