"""Published benchmarks that a toy encoder is scored on, with files in the folder of a test."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from components.core.system.errors import InputError
from components.evaluation.benchmarks.published import published_benchmarks
from tests.support.toy_context import toy_context


class ScoredBenchmark:
    """The scores of a `ToyEncoder`, with names of metrics less that of the benchmark, and lists for arrays.

    Every metric must be declared. `published` are the names of a benchmark that declares those of `name`.
    """

    def __init__(self, name: str, scores: Any, context: Any, published: str = "") -> None:
        self.declared = declared = published_benchmarks()[published or name]
        self.scores, self.context, self.notes, self.left_out = scores, context, context.notes, context.left_out
        self.asked: list[str] = context.under_test.encoder.asked if hasattr(context.under_test.encoder, "asked") else []
        assert all(declared.metric(one) for one in (*scores.values, *scores.scalars, *scores.correlations))
        self.values, self.strata, self.pictures, self.scalars, self.correlations = (
            {
                metric.removeprefix(f"{name}/"): found.tolist() if hasattr(found, "tolist") else found
                for metric, found in kind.items()
            }
            for kind in (scores.values, scores.strata, scores.pictures, scores.scalars, scores.correlations)
        )


def scored(name: str, folder: Path, table: Mapping[str, Any] | None = None, **options: Any) -> ScoredBenchmark:
    """The encoder of `table` on the benchmark `name`, whose files may be fewer than the published ones."""
    context = toy_context(folder, table or {}, **{"allow_partial": True} | options)
    return ScoredBenchmark(name, published_benchmarks()[name].score(context), context)


def refused(name: str, folder: Path, message: str, table: Mapping[str, Any] | None = None, **options: Any) -> Any:
    """The context of a benchmark that refuses its files with `message`."""
    context = toy_context(folder, table or {}, **options)
    with pytest.raises(InputError, match=message):
        published_benchmarks()[name].score(context)
    return context


def coco(images: Mapping[str, Sequence[str]], first: int = 0) -> dict[str, Any]:
    """The JSON of COCO's captions: ids are places in `images` from `first` on."""
    numbered = list(enumerate(images.items(), first))
    texts = [(number, text) for number, (_, captions) in numbered for text in captions]
    return {
        "images": [{"id": number, "file_name": name} for number, (name, _) in numbered],
        "annotations": [{"id": row, "image_id": image, "caption": text} for row, (image, text) in enumerate(texts)],
    }


def csv_text(*rows: Iterable[object]) -> str:
    """Rows as CSV."""
    csv.writer(text := io.StringIO()).writerows(rows)
    return text.getvalue()
