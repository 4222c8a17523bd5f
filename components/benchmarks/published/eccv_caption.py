"""Retrieval on COCO's test split with what people found to match later: ECCV Caption (Chun et al. 2022) and CxC.

COCO knows one image for a caption, although others show the same; a search that finds those is called wrong. Both sets
of matches come with the package `eccv-caption` (MIT), which is read as data. ECCV Caption has 1,332 captions with 8.5
images each and 1,261 images with 17.9 captions each; CxC (Crisscrossed Captions, Parekh et al. 2021) has 24,972 and
5,000. As in the package's own evaluation the gallery is COCO's 5,000 test images, or the five captions of each, and a
match outside it counts as not found.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np

from components.benchmarks.benchmark import Benchmark, Need, Tested
from components.benchmarks.encoding.published_context import PublishedContext, checked
from components.benchmarks.protocols.retrieval import TIES, WAYS
from components.benchmarks.scores import Scores, metrics
from components.core.errors import InputError
from components.core.metrics import Features, Indices, Reals, top_k

NAME, FILE, PICTURES = "eccv_caption", "captions_val2014.json", "val2014"
_PACKAGE = "eccv-caption"
_FILES = {"text_to_image": "caption_to_image", "image_to_text": "image_to_caption"}
"""Way of retrieval -> its part of the names of the package's files."""

Matches = Mapping[int, list[int]]
"""COCO's id of a query -> the ids of what matches it."""


@dataclass(frozen=True)
class Published:
    """What the package holds, by COCO's ids.

    Attributes:
        captions: the gallery's captions, in the package's order.
        images: the gallery's images, sorted.
        about: the image that each caption was written for.
        eccv: way -> its matches.
        cxc: likewise.
    """

    captions: list[int]
    images: list[int]
    about: Mapping[int, int]
    eccv: Mapping[str, Matches]
    cxc: Mapping[str, Matches]


@cache
def published() -> Published:
    """The package's matches."""
    folder = Path(str(distribution(_PACKAGE).locate_file("eccv_caption"))) / "data"

    def matches(name: str, way: str) -> Matches:
        raw = json.loads((folder / f"{name}_{_FILES[way]}.json").read_text("utf-8"))
        return {int(query): found for query, found in raw.items()}

    captions = np.load(folder / "coco_test_ids.npy", allow_pickle=False).tolist()
    about = {caption: images[0] for caption, images in matches("original", "text_to_image").items()}
    eccv, cxc = ({way: matches(name, way) for way in WAYS} for name in ("eccv", "cxc"))
    return Published(captions, sorted(set(about.values())), about, eccv, cxc)


def ranking_scores(ranked: Indices, matching: set[int]) -> dict[str, float]:
    """mAP@R, R-precision and recall@1 of one query, with R the number of its matches.

    Args:
        ranked: ids by similarity, R of them or more, or the whole gallery.
        matching: ids of what matches.
    """
    hits = np.isin(ranked[: len(matching)], list(matching))
    precision = hits.cumsum() / np.arange(1, len(hits) + 1)
    return {
        "map_at_r": float((precision * hits).mean()),
        "r_precision": float(hits.mean()),
        "recall_at_1": float(hits[0]),
    }


def score(context: PublishedContext) -> Scores:
    """ECCV Caption's three metrics and CxC's recall@k, both ways, of each query."""
    known = published()
    texts = _captions(context, known.captions)
    captions = Side([caption for caption in known.captions if caption in texts], context.texts([*texts.values()]))
    images = Side(known.images, context.image_files(PICTURES, [_file(image) for image in known.images]))
    ways = dict(zip(WAYS, ((captions, images), (images, captions)), strict=True))
    values: dict[str, Reals] = {}
    pictures: dict[str, Indices] = {}
    for way, (queries, gallery) in ways.items():
        for name, matches in (("eccv", known.eccv[way]), ("cxc", known.cxc[way])):
            asked = [query for query in matches if query in queries.place]
            if not asked:
                raise InputError(f"{context.folder / FILE} has none of the queries of {way} in {name}: fetch it again")
            found = _found(name, {query: matches[query] for query in asked}, queries, gallery, context.ks)
            named = {f"{NAME}/{name}/{way}/{metric}": np.array([one[metric] for one in found]) for metric in found[0]}
            values |= named
            if way == "text_to_image":
                about = np.array([images.place[known.about[query]] for query in asked], dtype=np.int64)
                pictures |= dict.fromkeys(named, about)
    return Scores(values, pictures=pictures)


@dataclass(frozen=True)
class Side:
    """Captions or images: COCO's ids, and unit features `[items, dim]`."""

    ids: list[int]
    features: Features

    @cached_property
    def place(self) -> dict[int, int]:
        """Row of each id."""
        return {name: row for row, name in enumerate(self.ids)}


def _found(name: str, matches: Matches, queries: Side, gallery: Side, ks: tuple[int, ...]) -> list[dict[str, float]]:
    """The metrics of each query of one set of matches."""
    deepest = max(map(len, matches.values())) if name == "eccv" else max(ks)
    rows = np.array([queries.place[query] for query in matches], dtype=np.int64)
    ranked = np.array(gallery.ids)[top_k(queries.features[rows], gallery.features, min(deepest, len(gallery.ids)))]
    each = zip(ranked, map(set, matches.values()), strict=True)
    if name == "eccv":
        return [ranking_scores(row, matching) for row, matching in each]
    hits = (np.isin(row, list(matching)) for row, matching in each)
    return [{f"recall_at_{k}": float(hit[:k].any()) for k in ks} for hit in hits]


def _captions(context: PublishedContext, wanted: list[int]) -> dict[int, str]:
    """Texts of the captions by their ids, as COCO's own file of validation captions has them.

    Raises:
        InputError: the file is laid out otherwise, or lacks captions.
    """
    content: Any = context.read_json(FILE)
    if not isinstance(content, dict) or not isinstance(content.get("annotations"), list):
        raise InputError(f"{context.folder / FILE} has no list 'annotations': fetch it again")
    rows = checked(context, f"{FILE}: annotations", content["annotations"], {"id": int, "caption": str})
    chosen = set(wanted)
    found = {row["id"]: row["caption"] for row in rows if row["id"] in chosen}
    context.expect(f"{FILE}: test captions", len(found), len(wanted))
    return {caption: found[caption] for caption in wanted if caption in found}


def _file(image: int) -> str:
    return f"COCO_val2014_{image:012d}.jpg"


def tested(context: PublishedContext) -> Tested:
    """All images of the gallery and their captions."""
    known = published()
    texts = _captions(context, known.captions)
    return Tested([*texts.values()], [context.folder / PICTURES / _file(image) for image in known.images])


BENCHMARKS = (
    Benchmark(
        name=NAME,
        version=1,
        protocol="ECCV Caption: mAP@R, R-precision, recall@1; CxC: recall@k; on Karpathy's COCO test, both ways",
        citation="Chun et al., ECCV Caption, ECCV 2022 (arXiv 2204.03359); Parekh et al., CxC, EACL 2021",
        folder="coco",
        needs=(
            Need(FILE, "COCO's validation captions with their ids", "20 MB", "CC BY 4.0", "cocodataset.org"),
            Need(PICTURES, "COCO val2014; its 5,000 test images are enough", "6 GB", "Flickr terms", "cocodataset.org"),
        ),
        metrics=metrics(TIES, "map_at_r", "r_precision", "recall_at_k"),
        score=score,
        tested=tested,
    ),
)
