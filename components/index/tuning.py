"""How many of the best images an encoder's text queries find, and how far must be searched for that.

Texts and images lie in two cones of the space, apart from each other (the modality gap, Liang et al. 2022). A search
that is tuned on images asking for images finds far less when texts ask, so only texts are asked here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from components.benchmarks.encoding.context import EncoderUnderTest, embed_new
from components.core.errors import InputError
from components.core.metrics import Features
from components.index.exact_search import search_exact
from components.index.facts import Facts, Recall
from components.index.image_index import ImageIndex, spread
from components.index.kinds import find_kind

TARGET = 0.95
"""Recall@10 that is searched for."""
_DEPTH, _MOST = 10, 1000


def needs_queries(kind: str) -> bool:
    """Whether a kind of search is measured at all: exact search finds everything."""
    return bool(find_kind(kind).efforts)


def read_queries(path: Path) -> list[str]:
    """Up to a thousand different lines of a text file, from all over it.

    Raises:
        InputError: it is missing, no UTF-8, or has no text.
    """
    try:
        lines = path.read_text("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--queries {path} cannot be read ({error}): give UTF-8 text, a query on each line") from None
    texts = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not texts:
        raise InputError(f"--queries {path} has no text: write a query on each line")
    return [texts[row] for row in spread(len(texts), _MOST)]


def measured(index: ImageIndex, encoder: EncoderUnderTest | None, texts: Sequence[str] | None = None) -> Facts:
    """The index's facts with this encoder's recall, at an effort that is enough for it and all measured before.

    Args:
        texts: queries; captions of the index where none are given.

    Raises:
        InputError: the encoder has another image tower, or there are no texts, or none to embed them.
    """
    facts = index.facts
    if encoder is not None:
        index.accept(encoder)
    if not needs_queries(facts.kind):
        return facts
    if encoder is None:
        raise InputError(
            f"kind '{facts.kind}' is tuned on text queries: give --encoder, whose image tower the index has"
        )
    queries = texts or index.captions
    if not queries:
        raise InputError(f"kind '{facts.kind}' is tuned on text queries, and no image has a caption: give --queries")
    features = embed_new(encoder.encoder, queries, {})
    effort, recall = _effort(index, features, facts.effort)
    told = Recall(
        encoder=encoder.name, encoder_sha256=encoder.sha256, kind=facts.kind, rows=len(index),
        queries=len(features), effort=effort, recall_at_10=recall,
    )  # fmt: skip
    others = [one for one in facts.recalls if one.encoder_sha256 != encoder.sha256 and one.rows == len(index)]
    return facts.model_copy(update={"effort": effort, "recalls": (*others, told)})


def _effort(index: ImageIndex, queries: Features, least: int) -> tuple[int, float]:
    """The least effort, and no less than `least`, that reaches the target, and what it reaches; else the largest."""
    depth, found = min(_DEPTH, len(index)), (least, 0.0)
    truth = search_exact(index.vectors, queries, depth).rows
    for effort in find_kind(index.facts.kind).efforts:
        if effort < least:
            continue
        rows = index.searcher.search(queries, depth, effort).rows
        hits = [len(set(own) & set(best)) / depth for own, best in zip(rows.tolist(), truth.tolist(), strict=True)]
        found = effort, float(np.mean(hits))
        # Other texts than these will be asked: the lower end of the mean's 95% interval is what must reach the target.
        if found[1] - 1.96 * float(np.std(hits)) / np.sqrt(len(hits)) >= TARGET:
            break
    return found
