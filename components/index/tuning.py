"""Measures the recall of an encoder's text queries, and finds the search effort that is needed for it.

Only texts are used as queries: a search that is tuned on image queries returns far fewer of the best images for texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from components.benchmarks.scoring.encoding.context import EncoderUnderTest, embed_new
from components.core.compute.metrics import Features
from components.core.system.errors import InputError
from components.index.facts import EXACT, Facts, Recall
from components.index.image_index import ImageIndex, spread
from components.index.search import EFFORTS, search_exact

TARGET = 0.95
"""Recall@10 that approximate search must reach."""
_DEPTH, _MOST = 10, 1000


def read_queries(path: Path) -> list[str]:
    """Up to a thousand different lines, spread over a text file."""
    try:
        lines = path.read_text("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--queries {path} cannot be read ({error}): give UTF-8 text, one query per line") from None
    texts = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not texts:
        raise InputError(f"--queries {path} has no text: write one query per line")
    return [texts[row] for row in spread(len(texts), _MOST)]


def measured(index: ImageIndex, encoder: EncoderUnderTest | None, texts: Sequence[str] | None = None) -> Facts:
    """The index's facts with this encoder's recall, at an effort that suffices for all encoders measured so far.

    Without `texts`, captions of the index are the queries.
    """
    facts = index.facts
    if encoder is not None:
        index.accept(encoder)
    if facts.kind == EXACT:
        return facts
    if encoder is None:
        raise InputError(f"kind '{facts.kind}' is tuned on text queries: give --encoder with the index's image tower")
    queries = texts or index.captions
    if not queries:
        raise InputError(f"kind '{facts.kind}' is tuned on text queries, and no image has a caption: give --queries")
    features = embed_new(encoder.encoder, queries, {})
    index.vectors.to(encoder.device)
    effort, recall = _effort(index, features, facts.effort)
    new = Recall(
        encoder=encoder.name, encoder_sha256=encoder.sha256, kind=facts.kind, rows=len(index),
        queries=len(features), effort=effort, recall_at_10=recall,
    )  # fmt: skip
    others = [old for old in facts.recalls if old.encoder_sha256 != encoder.sha256 and old.rows == len(index)]
    return facts.model_copy(update={"effort": effort, "recalls": (*others, new)})


def _effort(index: ImageIndex, queries: Features, least: int) -> tuple[int, float]:
    """The smallest effort from `least` that reaches the target, else the largest, and its recall."""
    depth, measured_at = min(_DEPTH, len(index)), (least, 0.0)
    truth = search_exact(index.vectors, queries, depth).rows
    for effort in EFFORTS:
        if effort < least:
            continue
        rows = index.search_unit(queries, depth, effort).rows
        hits = [len(set(found) & set(best)) / depth for found, best in zip(rows.tolist(), truth.tolist(), strict=True)]
        measured_at = effort, float(np.mean(hits))
        # Users send other texts than these: the lower end of the mean's 95% interval must reach the target.
        if measured_at[1] - 1.96 * float(np.std(hits)) / np.sqrt(len(hits)) >= TARGET:
            break
    return measured_at
