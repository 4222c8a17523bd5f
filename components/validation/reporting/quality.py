"""How long a table's texts are and how far from their sources, before and after filtering, as one picture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from components.core.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BEFORE, _AFTER, _INK = "#c3cad4", "#4a8fdd", "#20262e"
_MOST_WORDS = 60


@dataclass(frozen=True)
class _Measure:
    """One histogram: its title, its x axis, and the edges of its bins; values beyond them count in the outermost."""

    title: str
    axis: str
    edges: npt.NDArray[np.float64]


_MEASURES = (
    _Measure("Length", "words", np.arange(0.5, _MOST_WORDS + 1)),
    _Measure("Lexical distance to the source", "share of the words changed (0 = same, 1 = all)", np.linspace(0, 1, 26)),
    _Measure("Similarity to the source", "cosine of MiniLM sentence vectors", np.linspace(-0.2, 1, 31)),
)


class Quality:
    """Histograms of a table's texts, added shard by shard; memory holds the counts alone.

    Args:
        title: whose texts they are; also the name of the picture.

    Attributes:
        counts: of lengths, distances and similarities, each `[before and after, bins]`.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._rows = np.zeros(2, dtype=np.int64)
        self.counts = [np.zeros((2, len(measure.edges) - 1), dtype=np.int64) for measure in _MEASURES]

    def add(
        self, texts: Sequence[str], sources: Sequence[str], similarities: Sequence[float], accepted: Sequence[bool]
    ) -> None:
        """Count a shard's texts.

        Args:
            texts: the answers.
            sources: what each was asked about.
            similarities: cosine of each with its source; NaN is left out.
            accepted: whether each passed the filter.
        """
        kept = np.asarray(accepted, dtype=bool)
        self._rows += (len(kept), int(kept.sum()))
        lengths = [len(text.split()) for text in texts]
        distances = [lexical_distance(text, source) for text, source in zip(texts, sources, strict=True)]
        for counts, measure, values in zip(self.counts, _MEASURES, (lengths, distances, similarities), strict=True):
            for row, chosen in enumerate((np.ones(len(kept), dtype=bool), kept)):
                counts[row] += _histogram(np.asarray(values, dtype=np.float64)[chosen], measure.edges)

    def write(self, folder: Path) -> list[Path]:
        """Write the picture to `folder`, named after the title, and return its path; equal counts give equal bytes."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        before, after = self._rows.tolist()
        figure = Figure(figsize=(13.5, 4.4), dpi=100, layout="constrained")
        FigureCanvasAgg(figure)
        share = f" ({after / before:.1%})" if before else ""
        figure.suptitle(
            f"{self._title}: {before:,} texts before filtering, {after:,} after{share}", fontsize=15, color=_INK
        )
        for axes, measure, counts in zip(figure.subplots(1, len(_MEASURES)), _MEASURES, self.counts, strict=True):
            _draw(axes, measure, counts)
        path = folder / f"{re.sub(r'[^a-z0-9]+', '_', self._title.casefold()).strip('_')}.png"
        with atomic_file(path) as temporary:
            figure.savefig(temporary, format="png", metadata={"Software": None})
        return [path]


def lexical_distance(text: str, source: str) -> float:
    """Levenshtein distance in words, from 0 (same words, same order) to 1 (none in common), whatever the case."""
    from rapidfuzz.distance import Levenshtein

    one, other = (re.findall(r"[^\W_]+", words.casefold()) for words in (text, source))
    return float(Levenshtein.normalized_distance(one, other))


def _histogram(values: npt.NDArray[np.float64], edges: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    inside = np.clip(values[~np.isnan(values)], edges[0], edges[-1])
    return np.histogram(inside, edges)[0]


def _draw(axes: Axes, measure: _Measure, counts: npt.NDArray[np.int64]) -> None:
    from matplotlib.ticker import MaxNLocator

    for found, colour, when in zip(counts, (_BEFORE, _AFTER), ("before", "after"), strict=True):
        axes.stairs(found, measure.edges, fill=True, color=colour, label=f"{when}: {_median(measure, found)}")
    used = np.flatnonzero(counts[0])
    if len(used):
        axes.set_xlim(measure.edges[max(0, used[0] - 1)], measure.edges[min(used[-1] + 2, len(measure.edges) - 1)])
    axes.set_title(measure.title, fontsize=13, color=_INK)
    axes.set_xlabel(measure.axis, fontsize=11)
    axes.set_ylabel("texts", fontsize=11)
    axes.tick_params(labelsize=10)
    axes.set_ylim(0, max(1, 1.05 * counts[0].max()))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.legend(fontsize=10, frameon=False, title="median", title_fontsize=10)


def _median(measure: _Measure, counts: npt.NDArray[np.int64]) -> str:
    """The middle of the bin that holds the median."""
    total: Any = counts.sum()
    if total == 0:
        return "none"
    place = int(np.searchsorted(np.cumsum(counts), total / 2))
    return f"{(measure.edges[place] + measure.edges[place + 1]) / 2:.3g}"
