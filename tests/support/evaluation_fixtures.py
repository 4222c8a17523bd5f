"""A world of four images whose features are the axes, so that a text's vector lists its similarity to each image."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from components.core.settings import Settings
from components.core.tables import records
from components.core.tables.files import file_hash
from components.core.tables.table import Table
from components.encoders.adapter.sidecar import Sidecar
from components.evaluation.benchmarks.project.rankings import ERRORS, with_typing_errors
from components.evaluation.scoring.results import Folders
from tests.support.shard_making import picture

IMAGES = ("a", "b", "c", "d")


def stub_sidecar(name: str, **changes: Any) -> Sidecar:
    """The facts of an encoder without a model."""
    fields = {"architecture": {}, "quick_gelu": False, "embed_dim": 4, "context_length": 77, "preparation": {"size": 1}}
    hashes = {"git_commit": "c" * 40, "weights_sha256": f"weights of {name}", "image_tower_sha256": "tower"}
    return Sidecar.model_validate({"name": name, "model": "stub", "method": name, **fields, **hashes, **changes})


def write_rows(table: Table, path: Path, rows: Sequence[tuple[Any, ...]]) -> None:
    """Write a table whose rows have a value for each column, in the order of its schema."""
    table.write(path, dict(zip(table.schema.names, map(list, zip(*rows, strict=True)), strict=True)))


class StubEncoder:
    """Looks texts up; remembers its inputs."""

    def __init__(self, vectors: dict[str, Sequence[float]], name: str = "base", tower: str = "tower") -> None:
        self.vectors = vectors
        self.asked: list[str] = []
        self.images_asked = 0
        self.sidecar = stub_sidecar(name, image_tower_sha256=tower)

    def to(self, _device: str) -> StubEncoder:
        return self

    def embed_texts(self, texts: Sequence[str], *_: Any, **__: Any) -> npt.NDArray[np.float32]:
        self.asked += texts
        return np.array([self.vectors[text] for text in texts], dtype=np.float32)

    def embed_images(self, images: Sequence[bytes], *_: Any, **__: Any) -> npt.NDArray[np.float32]:
        self.images_asked += len(images)
        return np.eye(4, dtype=np.float32)


VECTORS: dict[str, Sequence[float]] = {
    "a query": (0.9, 0.8, 0.1, 0.0),
    "a paraphrase": (0.8, 0.9, 0.1, 0.0),
    "c query": (0.2, 0.1, 0.9, 0.8),
    "c paraphrase": (0.9, 0.1, 0.8, 0.2),
    "d query": (0.0, 0.1, 0.2, 0.9),
    "d paraphrase": (0.0, 0.1, 0.2, 0.9),
    "a negation": (0.95, 0.1, 0.0, 0.0),
    "c negation": (0.2, 0.1, 0.9, 0.8),
    "d negation": (0.9, 0.0, 0.0, 0.1),
    "a larger than d": (0.9, 0.0, 0.0, 0.1),
    "d larger than a": (0.1, 0.0, 0.0, 0.9),
    "d larger than c": (0.0, 0.0, 0.2, 0.6),
    "c larger than d": (0.0, 0.0, 0.1, 0.9),
    "a red, c blue": (0.5, 0.0, 0.5, 0.0),
    "c red, a blue": (0.5, 0.1, 0.5, 0.0),
    "c a dog, a a cat": (0.5, 0.0, 0.1, 0.0),
    "a a dog, c a cat": (0.0, 0.0, 0.9, 0.0),
    "d left, a right": (0.0, 0.0, 0.0, 0.9),
    "a left, d right": (0.9, 0.0, 0.0, 0.0),
    "A photo depicts one": (0.1, 0.2, 0.0, 0.0),
    "A photo depicts two": (0.3, 0.0, 0.9, 0.0),
}


ROWS: dict[str, list[tuple[Any, ...]]] = {
    "paraphrase_queries": [
        ("a", "a query", "a paraphrase", "common", "scene"),
        ("c", "c query", "c paraphrase", "unseen", "scene"),
        ("d", "d query", "d paraphrase", "common", "pair"),
    ],
    "caption_queries": [
        ("a", "a query", "plain"),
        ("c", "c query", "plain"),
        ("d", "d query", "plain"),
        ("a", "c paraphrase", "alt_text"),
    ],
    "labels": [("a", "cat"), ("b", "dog"), ("c", "cat")],
    "negation_queries": [
        ("a", "a query", "a negation", "a paraphrase", "no", "common"),
        ("c", "c query", "c negation", "c paraphrase", "not", "unseen"),
        ("d", "d query", "d negation", "d paraphrase", "no", "common"),
    ],
    "comparisons": [
        ("a", "d", "a larger than d", "d larger than a", "size", "first"),
        ("c", "d", "d larger than c", "c larger than d", "size", "second"),
        ("a", "c", "a red, c blue", "c red, a blue", "background", "first"),
        ("c", "a", "c a dog, a a cat", "a a dog, c a cat", "object", "first"),
        ("d", "a", "d left, a right", "a left, d right", "position", "first"),
    ],
    "caption_ratings": [("a", "one", 1.0), ("a", "two", 2.0), ("b", "one", 4.0), ("c", "two", 4.0)],
    "swaps": [
        ("a", "a query", "a paraphrase", "relation", "left"),
        ("a", "a query", "c query", "relation", "left"),
        ("c", "c query", "c query", "relation", "above"),
        ("d", "d query", "a query", "attribute", "size"),
    ],
    "half_truths": [
        ("a", "a query", "a paraphrase", "a negation", "object"),
        ("a", "a paraphrase", "a query", "a negation", "object"),
        ("c", "c query", "c negation", "a query", "relation"),
        ("d", "d query", "c query", "d paraphrase", "relation"),
    ],
    "text_pairs": [
        ("a query", "a paraphrase", 1.0, "common"),
        ("a query", "d query", 0.0, "common"),
        ("c query", "a negation", 0.5, "rare"),
        ("d query", "d paraphrase", 0.25, "rare"),
    ],
}
"""Rows of each table of `components.core.tables.records`."""


@pytest.fixture
def stub() -> type[StubEncoder]:
    return StubEncoder


@pytest.fixture
def vectors() -> dict[str, Sequence[float]]:
    """Vectors of every text in `folders`, prompts of zero-shot classification included."""
    prompts: dict[str, Sequence[float]] = {}
    for template in ("a picture of a {}", "a photo of a {}", "an image of one {}", "a drawing of the {}", "{}"):
        prompts |= {template.format("cat"): (0.9, 0.2, 0.7, 0.0), template.format("dog"): (0.1, 0.8, 0.8, 0.0)}
    negated = "not a picture of a {}"
    prompts |= {negated.format("cat"): (0.1, 0.9, 0.8, 0.0), negated.format("dog"): (0.9, 0.1, 0.3, 0.0)}
    prompts |= {
        "Of the two pictures, the first shows a dog and the second shows a cat.": (0.0, 0.0, -3.0, 0.0),
        "Of the two pictures, the first shows a cat and the second shows a dog.": (0.0, 0.0, 0.0, 1.0),
    }
    misspelt_texts = {
        text: VECTORS[other if number < wrong else query]
        for query, wrong, other in (("a query", 0, ""), ("c query", 1, "d query"), ("d query", 2, "a query"))
        for number, text in enumerate(with_typing_errors(query, ERRORS))
    }
    return VECTORS | prompts | misspelt_texts


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """A project with every table that the benchmarks read."""
    places = Folders(
        tmp_path / "models", tmp_path / "pairs", tmp_path / "embeddings", tmp_path / "tables", tmp_path / "reports"
    )
    columns = {"id": [f"pair of {image}" for image in IMAGES], "caption": [f"caption <{image}>" for image in IMAGES]}
    records.PAIRS.write(
        places.test_pairs, {**columns, "image_id": list(IMAGES), "image": [picture(0)] * 4, "facts": [None] * 4}
    )
    places.embeddings.mkdir()
    np.save(places.embeddings / "test.npy", np.eye(4, dtype=np.float32))
    np.save(places.embeddings / "test.norms.npy", np.ones(4, dtype=np.float32))
    made_from = {"test": {"pairs_sha256": file_hash(places.test_pairs), "rows": 4}}
    manifest = {"image_tower_sha256": "tower", "embed_dim": 4, "splits": made_from}
    (places.embeddings / "manifest.json").write_text(json.dumps(manifest))
    for name, rows in ROWS.items():
        file = "negations" if name == "negation_queries" else name
        write_rows(getattr(records, name.upper()), places.evaluation / f"{file}.parquet", rows)
    write_rows(
        records.PARAPHRASE_QUERIES, places.evaluation / "written_paraphrases.parquet", ROWS["paraphrase_queries"]
    )
    return places


@pytest.fixture
def make_settings(raw_params: dict[str, Any]) -> Callable[..., Settings]:
    """The repository's settings with few benchmarks, and depths 1 and 2; keyword arguments replace whole blocks."""
    raw_params |= {"compare_encoders": ["base", "tuned"], "methods": {}, "mixes": {}}
    benchmarks = ["paraphrased_retrieval", "retrieval", "zero_shot", "swaps", "caption_ratings"]
    raw_params["evaluate"] = {"benchmarks": benchmarks, "top_k": [1, 2], "bootstrap": 50}
    raw_params["compare"] |= {"gallery_queries": 3, "gallery_top": 2}
    raw_params["promote"] |= {"metric": "paraphrased_retrieval/ao_at_2", "guards": {}}
    return lambda **blocks: Settings.model_validate(raw_params | blocks)
