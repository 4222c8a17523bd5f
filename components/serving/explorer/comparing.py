"""Comparisons of encoders: their results in one index, and the queries of an evaluation that changed most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel

from components.core.compute.metrics import Features, average_overlap, jaccard_similarity
from components.core.settings import Evaluate
from components.core.system.errors import InputError
from components.core.tables.folders import benchmark_table
from components.core.tables.records import PARAPHRASE_QUERIES
from components.encoders.under_test import EncoderUnderTest
from components.evaluation.benchmarks.project.rankings import PARAPHRASED
from components.evaluation.scoring.benchmark import Scores
from components.evaluation.scoring.context import QUERIES_FILE
from components.evaluation.scoring.intervals import paired_interval
from components.evaluation.scoring.results import Folders, Report, read_report, read_scores
from components.serving.index.image_index import ImageIndex

_DEEPEST = 100
"""Length of the first encoder's list in which the pictures of other encoders are ranked."""
_FEW = 50
"""Most values of a column that is offered as a filter."""
_KEPT = 512
"""Texts whose features are cached."""
CAPTION = "caption"
_OWN = ("image_id", CAPTION, "name", "file", "position", "size")


class Hit(BaseModel):
    """A picture in a list of results.

    Attributes:
        score: cosine of text and picture.
        both: whether the list of the other wording also has it.
        move: number of ranks above its rank in the first encoder's list; None if that list does not have it.
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
    """The results of one encoder.

    Attributes:
        ao, js: AO@k and JS@k of the two lists; None without a paraphrase.
        lost: results of the first encoder for the query that this encoder does not return.
    """

    encoder: str
    query: list[Hit]
    paraphrase: list[Hit] = []
    ao: float | None = None
    js: float | None = None
    lost: list[Hit] = []


class Compared(BaseModel):
    """The results of all encoders, the first encoder first."""

    query: str
    paraphrase: str
    k: int
    sides: list[Side]


@dataclass
class Explorer:
    """Encoders that search one index, which accepts all of them; the others are compared with the first."""

    index: ImageIndex
    encoders: Sequence[EncoderUnderTest]
    _features: dict[tuple[str, str], Features] = field(default_factory=dict, repr=False)

    def compare(self, query: str, paraphrase: str, k: int, among: str | None = None) -> Compared:
        """The k best pictures of every encoder for both wordings, or for the query alone if `paraphrase` is empty."""
        texts = [query, paraphrase] if paraphrase else [query]
        sides, first = list[Side](), list[dict[int, int]]()
        for encoder in self.encoders:
            found = self.index.search(self._embedded(encoder, texts), max(k, _DEEPEST), among)
            lists = [_existing(rows) for rows in found.rows]
            places = [{row: place for place, row in enumerate(rows)} for rows in lists]
            first = first or places
            tops = [rows[:k] for rows in lists]
            others = [set(rows) for rows in reversed(tops)] if paraphrase else [set[int]()]
            hits = [
                self._hits(rows, scores, before, other, k)
                for rows, scores, before, other in zip(tops, found.scores, first, others, strict=True)
            ]
            lost = [hit for hit in sides[0].query if hit.row not in tops[0]] if sides else []
            side = Side(encoder=encoder.name, query=hits[0], lost=lost)
            if paraphrase:
                side.paraphrase = hits[1]
                side.ao, side.js = overlap(tops[0], tops[1], k)
            sides.append(side)
        return Compared(query=query, paraphrase=paraphrase, k=k, sides=sides)

    def similar(self, row: int, k: int, among: str | None = None) -> list[Hit]:
        """The pictures most similar to that of a row, without itself; all encoders share the image tower."""
        found = self.index.search(self.index.vector([row]), k + 1, among)
        rows = [other for other in _existing(found.rows[0]) if other != row][:k]
        scores = dict(zip(found.rows[0].tolist(), found.scores[0].tolist(), strict=True))
        return [hit.model_copy(update={"score": scores[hit.row]}) for hit in self.shown(rows)]

    def shown(self, rows: Sequence[int]) -> list[Hit]:
        """Pictures by their rows, without scores."""
        columns = self.index.rows(rows).select([CAPTION, "name"]).to_pylist() if len(rows) else []
        return [
            Hit(row=row, caption=one[CAPTION] or "", name=one["name"] or "", score=0.0)
            for row, one in zip(rows, columns, strict=True)
        ]

    def filters(self) -> dict[str, list[str]]:
        """Columns with few different values, and these values."""
        offered = {}
        for name in self.index.schema.names:
            if name in _OWN:
                continue
            values = pc.unique(pc.cast(self.index.column(name), pa.string()))
            if 1 < len(values) <= _FEW:
                offered[name] = sorted(value for value in values.to_pylist() if value is not None)
        return offered

    def filtered(self, wanted: Mapping[str, str], words: str = "") -> str | None:
        """A condition in SQL: columns have the wanted values, the caption has the words; None for all rows."""
        conditions = [self._column(name, value) for name, value in wanted.items()]
        if words:
            conditions.append(f"strpos(lower({CAPTION}), lower({_quoted(words)})) > 0")
        return " AND ".join(conditions) or None

    def _column(self, name: str, value: str) -> str:
        if name not in self.index.schema.names or name in _OWN:
            raise InputError(f"the index has no column '{name}' to filter by")
        kind, column = self.index.schema.field(name).type, _quoted(name, '"')
        if pa.types.is_string(kind):
            return f"{column} = {_quoted(value)}"
        try:
            return f"{column} = {pa.scalar(value).cast(kind).as_py()}"
        except pa.ArrowException:
            raise InputError(f"column '{name}' holds {kind}, not '{value[:40]}'") from None

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

    def _embedded(self, encoder: EncoderUnderTest, texts: Sequence[str]) -> Features:
        new = [text for text in dict.fromkeys(texts) if (encoder.name, text) not in self._features]
        if new:
            vectors = encoder.encoder.embed_texts(new)
            self._features |= {(encoder.name, text): vector for text, vector in zip(new, vectors, strict=True)}
        found = np.stack([self._features[encoder.name, text] for text in texts])
        while len(self._features) > _KEPT:
            del self._features[next(iter(self._features))]
        return found


def overlap(first: Sequence[int], second: Sequence[int], k: int) -> tuple[float, float]:
    """AO and JS of two lists at depth k, or at their length if a filter leaves fewer rows."""
    depth = min(k, len(first), len(second))
    if not depth:
        return 0.0, 0.0
    a, b = (np.array([rows[:depth]]) for rows in (first, second))
    return float(average_overlap(a, b, depth)[0]), float(jaccard_similarity(a, b, depth)[0])


def _quoted(text: str, mark: str = "'") -> str:
    return mark + text.replace(mark, 2 * mark) + mark


def _existing(rows: npt.NDArray[np.int64]) -> list[int]:
    return [int(row) for row in rows if row >= 0]


METRICS = {
    "ao": f"{PARAPHRASED}/ao_at_",
    "js": f"{PARAPHRASED}/js_at_",
    "recall": f"{PARAPHRASED}/paraphrase_recall_at_",
}


class ChangedQuery(BaseModel):
    """A query with its value before and after."""

    query: str
    paraphrase: str
    tier: str
    before: float
    after: float


class Gain(BaseModel):
    """A mean difference with its 95% interval, over all queries or those of a tier; too few queries have none."""

    tier: str
    queries: int
    value: float
    low: float | None
    high: float | None


class Changed(BaseModel):
    """The queries with the largest gains and losses among the project's test pictures, and the means.

    Attributes:
        gains: over all queries first, then by tier.
        opens: parameters of the comparison that shows a query with the same values in the project's index.
    """

    metric: str
    first: str
    second: str
    gains: list[Gain]
    best: list[ChangedQuery]
    worst: list[ChangedQuery]
    opens: dict[str, str]


def scored(folders: Folders, sha256s: Sequence[str]) -> list[Report | None]:
    """For each encoder, by its hash, the report of its evaluation in this project, or None."""
    reports = [read_report(path.stem, folders.metrics) for path in sorted(folders.metrics.glob("*.json"))]
    by_hash = {report.encoder_sha256: report for report in reports}
    return [by_hash.get(sha256) for sha256 in sha256s]


def changed(folders: Folders, reports: Sequence[Report], metric: str, count: int, settings: Evaluate) -> Changed:
    """The `count` best and worst changes from the first report's encoder to the second's.

    Args:
        metric: a key of `METRICS`, at depth 10 or the nearest that was measured.
    """
    first, second = reports
    if (first.data_hash, first.protocol) != (second.data_hash, second.protocol):
        raise InputError(f"'{first.encoder}' and '{second.encoder}' were evaluated on different data: run `dvc repro`")
    scores = [read_scores(report, folders.per_query) for report in reports]
    name = _measured(metric, scores[0])
    before, after = (encoder.values[name] for encoder in scores)
    rows = PARAPHRASE_QUERIES.read(benchmark_table(folders.evaluation, QUERIES_FILE)).to_pylist()
    if len(rows) != len(before):
        raise InputError(f"{folders.evaluation / QUERIES_FILE} does not have the evaluated queries: run `dvc repro`")
    order = np.argsort(before - after, kind="stable")
    listed = [
        ChangedQuery(query=row["query"], paraphrase=row["paraphrase"], tier=row["tier"] or "", before=b, after=a)
        for row, b, a in zip(rows, before.tolist(), after.tolist(), strict=True)
    ]
    gained = _once([query for query in (listed[row] for row in order) if query.after > query.before], count)
    lost = _once([query for query in (listed[row] for row in order[::-1]) if query.after < query.before], count)
    return Changed(
        metric=name,
        first=first.encoder,
        second=second.encoder,
        gains=_gains(scores, name, [query.tier for query in listed], settings),
        best=gained,
        worst=lost,
        opens={"k": name.rpartition("_")[2], "is.split": "test"},
    )


def _once(queries: Sequence[ChangedQuery], count: int) -> list[ChangedQuery]:
    """The first `count`; if both wordings of a picture are queries, the first of the two is listed."""
    pairs = {frozenset((query.query, query.paraphrase)): query for query in reversed(queries)}
    return list(reversed(pairs.values()))[:count]


def _measured(metric: str, scores: Scores) -> str:
    if metric not in METRICS:
        raise InputError(f"metric '{metric}' is unknown: choose one of {', '.join(METRICS)}")
    start = METRICS[metric]
    depths = [int(name.removeprefix(start)) for name in scores.values if name.removeprefix(start).isdigit()]
    if not depths:
        raise InputError(f"{start}k was not measured: put '{PARAPHRASED}' into evaluate.benchmarks and run `dvc repro`")
    return f"{start}{min(depths, key=lambda depth: (abs(depth - 10), depth))}"


def _gains(scores: Sequence[Scores], name: str, tiers: Sequence[str], settings: Evaluate) -> list[Gain]:
    before, after = (encoder.values[name] for encoder in scores)
    pictures = scores[0].pictures.get(name)
    groups = {"all": np.ones(len(before), np.bool_)}
    named = [tier for tier in dict.fromkeys(tiers) if tier not in ("", "all")]
    groups |= {tier: np.array([other == tier for other in tiers]) for tier in named}
    gains = []
    for tier, rows in groups.items():
        of_rows = None if pictures is None else pictures[rows]
        mean = paired_interval(after[rows], before[rows], None, of_rows)
        low, high = (mean.low, mean.high) if mean.is_known else (None, None)
        gains.append(Gain(tier=tier, queries=int(rows.sum()), value=mean.value, low=low, high=high))
    return gains
