"""Does query expansion help less than training? A query's feature becomes the mean of its own and its paraphrases'.

Needs the encoders that it compares with, of `make claims` say. The student that writes paraphrases of queries (task
`query_paraphrase`) rewrites both wordings of the first test queries, three times each (Cheng et al., arXiv 2405.03190,
appendix B.4); its answers are kept in `state/query_expansion.db`, so that a stopped run resumes.

    python -m benchmarks.query_expansion --queries 300
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from components.captions.generating.asking import ask
from components.captions.generating.engines import Engine, make_engine
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import Request, Sampling
from components.captions.prompting.tasks import find_task
from components.core.compute.metrics import Features, Reals
from components.core.pictures.stored_pictures import PICTURE, Pictures
from components.core.system.profiles import settings_with
from components.core.tables import folders
from components.core.tables.records import PAIRS, PARAPHRASE_QUERIES
from components.encoders.adapter.encoder import Encoder
from components.evaluation.scoring.bootstrap import Interval, interval
from components.evaluation.scoring.protocols.retrieval import paraphrase_agreement

TASK, EXPANSIONS, DEPTH = "query_paraphrase", 3, 10
Expansions = Mapping[str, Sequence[str]]


def expansions(texts: Sequence[str], engine: Engine, store: GenerationStore) -> Expansions:
    """Each text's distinct paraphrases; a text may have none."""
    task, sampling = find_task(TASK), Sampling(temperature=0.9, top_p=0.95, max_tokens=32)
    requests: list[tuple[str, Request]] = []
    for text in dict.fromkeys(texts):
        chat = tuple((message["role"], message["content"]) for message in task.render({"query": text}, "own"))
        request = Request(TASK, chat, engine.model, sampling, 0, parse=task.parse)
        requests += [(text, replace(request, attempt=attempt)) for attempt in range(EXPANSIONS)]
    ask(store, engine, (request for _, request in requests), "expand", len(requests))
    answers, found = store.answers(request.key for _, request in requests), defaultdict[str, list[str]](list)
    for text, request in requests:
        expansion = task.parse(answers.get(request.key, ""))
        if expansion and expansion != text and expansion not in found[text]:
            found[text].append(expansion)
    return found


def expanded(texts: Sequence[str], encoder: Encoder, found: Expansions) -> Features:
    """Unit means `[texts, dim]` of each text's feature and its expansions' (equation 5)."""
    groups = [[text, *found.get(text, ())] for text in texts]
    features, place = encoder.embed_texts([text for group in groups for text in group]), 0
    means = []
    for group in groups:
        means.append(features[place : place + len(group)].mean(axis=0))
        place += len(group)
    rows = np.stack(means)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def agreement(encoder: Encoder, images: Sequence[bytes], queries: Sequence[str], others: Sequence[str],
              found: Expansions) -> Reals:  # fmt: skip
    """AO@10 of each query with its paraphrase, `[queries]`."""
    one, other = (expanded(texts, encoder, found) for texts in (queries, others))
    gallery = encoder.embed_images(images)
    gold = np.arange(len(queries))
    return paraphrase_agreement(one, other, gallery, gold, [DEPTH])[f"ao_at_{DEPTH}"]


def main(
    queries: Annotated[int, typer.Option(help="So many of the test queries.")] = 300,
    encoder: Annotated[list[str] | None, typer.Option(help="Encoders to compare with.")] = None,
    models: Annotated[Path, typer.Option(help="Folder of the encoders.")] = Path("models"),
) -> None:
    """Print AO@10 of the base alone, of the base with expanded queries, and of trained encoders."""
    settings = settings_with("methods").synthesize
    pairs = PAIRS.read(folders.PAIRS / "test.parquet", PICTURE)
    with Pictures() as pictures:
        ids, images = pairs["image_id"].to_pylist(), pictures.of(pairs)
    table = PARAPHRASE_QUERIES.read(folders.EVALUATION / "paraphrase_queries.parquet").slice(0, queries)
    texts, others = table["query"].to_pylist(), table["paraphrase"].to_pylist()
    first = [ids.index(image) for image in table["image_id"].to_pylist()]
    order = [*first, *sorted(set(range(len(ids))) - set(first))]
    gallery = [images[row] for row in order]
    store = GenerationStore("sqlite:///state/query_expansion.db")
    found = expansions(
        [*texts, *others], make_engine(settings, settings.tasks[TASK].llm or settings.default_llm), store
    )
    store.close()
    base = Encoder.load(models / "base")
    plain = agreement(base, gallery, texts, others, {})
    rows = {"base": plain, "base, queries expanded": agreement(base, gallery, texts, others, found)}
    for name in encoder or ["paraclip", "lm_finetuned", "lm_alignment"]:
        rows[name] = agreement(Encoder.load(models / name), gallery, texts, others, {})
    table = Table(title=f"AO@{DEPTH} of {queries} queries, times 100", title_justify="left")
    for column in ("encoder", "value", "more than the base"):
        table.add_column(column)
    for name, values in rows.items():
        table.add_row(name, _shown(interval(values, 1000, 0), ""), _shown(interval(values - plain, 1000, 0), "+"))
    Console(width=100).print(table)
    share = np.mean([len(found.get(text, ())) for text in (*texts, *others)])
    print(f"{share:.2f} expansions of each text")


def _shown(found: Interval, sign: str) -> str:
    value, low, high = (f"{100 * number:{sign}.1f}" for number in (found.value, found.low, found.high))
    return f"{value} [{low}, {high}]"


if __name__ == "__main__":
    typer.run(main)
