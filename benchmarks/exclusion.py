"""Do pictures that a query excludes stay out of its results, by the operator `A -B` and by "A without B" as plain text?

Queries are made of nouns in the captions of the test pictures. Wanted are pictures with A and without B; those with
both must stay out. Needs a project with an evaluated base, such as profile `flickr8k`. The last line is JSON.

    python -m benchmarks.exclusion --encoder base --encoder semclip
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from components.core.compute.metrics import Reals
from components.core.settings import load_settings
from components.core.system.errors import run_command
from components.core.tables.folders import benchmark_table
from components.core.tables.records import CAPTION_QUERIES
from components.encoders.adapter.encoder import Encoder, Vectors
from components.encoders.excluding import embed_queries
from components.evaluation.benchmarks.project import retrieval
from components.evaluation.scoring.bootstrap import Interval, interval, paired_difference
from components.evaluation.scoring.evaluate import image_features
from components.evaluation.scoring.results import DEFAULT
from components.registry.encoder_lookup import find_encoder

_NOUNS = re.compile(
    r"\b(?:dog|man|woman|boy|girl|child|water|grass|snow|beach|ball|bike|bicycle|street|car|tree|shirt|hat|camera|rock|"
    r"mountain|sand|ocean|pool|fence|field|building|bench|horse|boat|skateboard|guitar|helmet|jacket|dress|umbrella|"
    r"crowd|baby|road|river|lake|flower|stick|frisbee|motorcycle|stairs|wall)\b"
)
_FEWEST = 15
"""Pictures with both things, and with the first alone, that a query needs."""
_DEPTH = 10
Query = tuple[str, str, Reals, Reals]
"""A, B, and whether each picture shows A, `[pictures]`, and B."""


def queries_of(captions: Sequence[tuple[str, str]], ids: Sequence[str]) -> list[Query]:
    """All ordered pairs of nouns that enough pictures show together, and enough the first alone."""
    place, shown = {image: row for row, image in enumerate(ids)}, dict[str, Reals]()
    for image, text in captions:
        for word in set(_NOUNS.findall(text.lower())):
            shown.setdefault(word, np.zeros(len(ids)))[place[image]] = 1
    return [
        (one, other, has_one, has_other)
        for one, has_one in sorted(shown.items())
        for other, has_other in sorted(shown.items())
        if one != other and (has_one * has_other).sum() >= _FEWEST and (has_one * (1 - has_other)).sum() >= _FEWEST
    ]


def measured(
    encoder: Encoder, images: Vectors, queries: Sequence[Query], caps: Sequence[float]
) -> dict[str, list[Reals]]:
    """Form of the query -> share of the first ten pictures with A and without B, and with B, `[queries]` each."""
    names = [(one, other) for one, other, *_ in queries]
    asked = {
        "A": encoder.embed_texts([f"a {one}" for one, _ in names]),
        "A without B": encoder.embed_texts([f"a {one} without a {other}" for one, other in names]),
    }
    for cap in caps:
        asked[f"A -B, cap {cap:.0f}"] = embed_queries(
            encoder.embed_texts, [f"a {one} -{other}" for one, other in names], cap
        )
    found = {}
    for way, vectors in asked.items():
        first = np.argsort(-(vectors @ images.T), axis=1, kind="stable")[:, :_DEPTH]
        rows = [
            (has_one[best], has_other[best]) for (_, _, has_one, has_other), best in zip(queries, first, strict=True)
        ]
        right = np.array([(has_one * (1 - has_other)).mean() for has_one, has_other in rows])
        found[way] = [right, np.array([has_other.mean() for _, has_other in rows])]
    return found


def _shown(value: Interval) -> str:
    return f"{100 * value.value:.1f} [{100 * value.low:.1f}, {100 * value.high:.1f}]"


def main(
    encoder: Annotated[list[str] | None, typer.Option(help="Encoders to ask; base when not given.")] = None,
    cap: Annotated[list[float] | None, typer.Option(help="Angles of the caps in degrees.")] = None,
) -> None:
    """Compare the forms of a query, with intervals over queries."""
    settings, result = load_settings(), dict[str, dict[str, list[float]]]()
    table = Table("encoder", "asked", f"first {_DEPTH}: A, not B", "with B", "A, not B, less plain text")
    for name in encoder or ["base"]:
        loaded = find_encoder(name).encoder
        assert isinstance(loaded, Encoder)
        ids, images = image_features(loaded, DEFAULT.embeddings, DEFAULT.test_pairs, settings.embed.batch_size)
        captions = CAPTION_QUERIES.read(benchmark_table(DEFAULT.evaluation, retrieval.FILE))
        queries = queries_of(
            list(zip(captions["image_id"].to_pylist(), captions["text"].to_pylist(), strict=True)), ids
        )
        found = measured(loaded, images, queries, cap or [50.0, 60.0, 70.0])
        plain, resampling = found["A without B"][0], (settings.evaluate.bootstrap, settings.evaluate.seed)
        for way, (right, wrong) in found.items():
            gain = paired_difference(right, plain, *resampling)
            table.add_row(name, way, *(_shown(interval(one, *resampling)) for one in (right, wrong)), _shown(gain))
            result.setdefault(name, {})[way] = [round(100 * float(one.mean()), 1) for one in (right, wrong)]
        common = Counter(one for one, *_ in queries).most_common(5)
        print(f"{name}: {len(queries)} queries; most of {', '.join(word for word, _ in common)}")
    Console().print(table)
    print(json.dumps(result))


if __name__ == "__main__":
    run_command(lambda: typer.run(main))
