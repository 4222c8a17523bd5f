"""Histograms of a table's texts before and after filtering: length, and distance and similarity to their sources."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from components.core.tables.files import atomic_file

_BEFORE, _AFTER, _INK = "#c3cad4", "#4a8fdd", "#20262e"
_HISTOGRAMS: tuple[tuple[str, str, npt.NDArray[np.float64]], ...] = (
    ("Length", "words", np.arange(0.5, 61)),
    ("Lexical distance to the source", "share of the words changed (0 = same, 1 = all)", np.linspace(0, 1, 26)),
    ("Similarity to the source", "cosine of MiniLM sentence vectors", np.linspace(-0.2, 1, 31)),
)
"""Title, label of the x axis, and edges of the bins; values beyond them count in the outermost bins."""


class TextHistograms:
    """Histograms of a table's texts, added shard by shard; memory holds only the counts.

    Attributes:
        counts: of lengths, distances and similarities, each `[before and after, bins]`.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._rows = np.zeros(2, dtype=np.int64)
        self.counts = [np.zeros((2, len(edges) - 1), dtype=np.int64) for *_, edges in _HISTOGRAMS]

    def add(
        self, texts: Sequence[str], sources: Sequence[str], similarities: Sequence[float], accepted: Sequence[bool]
    ) -> None:
        """Count the texts of a shard, given their sources, cosines (NaN is ignored) and acceptance."""
        kept = np.asarray(accepted, dtype=bool)
        self._rows += (len(kept), int(kept.sum()))
        lengths = [len(text.split()) for text in texts]
        distances = [lexical_distance(text, source) for text, source in zip(texts, sources, strict=True)]
        for counts, (*_, edges), values in zip(
            self.counts, _HISTOGRAMS, (lengths, distances, similarities), strict=True
        ):
            for row, chosen in enumerate((np.ones(len(kept), dtype=bool), kept)):
                shown = np.asarray(values, dtype=np.float64)[chosen]
                counts[row] += np.histogram(np.clip(shown[~np.isnan(shown)], edges[0], edges[-1]), edges)[0]

    def write(self, path: Path) -> Path:
        """Write the histograms to a PNG; equal counts give equal bytes."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        before, after = self._rows.tolist()
        figure = Figure(figsize=(13.5, 4.4), dpi=100, layout="constrained")
        FigureCanvasAgg(figure)
        share = f" ({after / before:.1%})" if before else ""
        title = f"{self._title}: {before:,} texts before filtering, {after:,} after{share}"
        figure.suptitle(title, fontsize=15, color=_INK)
        columns = figure.subplots(1, len(_HISTOGRAMS))
        for axes, (title, label, edges), both in zip(columns, _HISTOGRAMS, self.counts, strict=True):
            for counts, colour, when in zip(both, (_BEFORE, _AFTER), ("before", "after"), strict=True):
                axes.stairs(counts, edges, fill=True, color=colour, label=f"{when}: {_median(edges, counts)}")
            if len(used := np.flatnonzero(both[0])):
                axes.set_xlim(edges[max(0, used[0] - 1)], edges[min(used[-1] + 2, len(edges) - 1)])
            axes.set_title(title, fontsize=13, color=_INK)
            axes.set_xlabel(label, fontsize=11)
            axes.set_ylabel("texts", fontsize=11)
            axes.tick_params(labelsize=10)
            axes.set_ylim(0, max(1, 1.05 * both[0].max()))
            axes.yaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
            axes.spines[["top", "right"]].set_visible(False)
            axes.yaxis.set_major_formatter("{x:,.0f}")
            axes.legend(fontsize=10, frameon=False, title="median", title_fontsize=10)
        with atomic_file(path) as temporary:
            figure.savefig(temporary, format="png", metadata={"Software": None})
        return path


def lexical_distance(text: str, source: str) -> float:
    """Levenshtein distance in words, from 0 (same words, same order) to 1 (no word in common); case is ignored."""
    from rapidfuzz.distance import Levenshtein

    words, source_words = (re.findall(r"[^\W_]+", words.casefold()) for words in (text, source))
    return float(Levenshtein.normalized_distance(words, source_words))


def _median(edges: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> str:
    """The middle of the bin that holds the median."""
    if not counts.any():
        return "none"
    place = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2))
    return f"{(edges[place] + edges[place + 1]) / 2:.3g}"
