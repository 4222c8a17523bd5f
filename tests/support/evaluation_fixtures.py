"""A world of four images whose features are the axes, so that a text's vector lists its similarity to each image."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from components.benchmarks.embedded.typos import ERRORS, with_typing_errors
from components.core.settings import Settings
from components.core.tables.files import file_hash
from components.core.tables.records import (
    CAPTION_QUERIES,
    CAPTION_RATINGS,
    COMPARISONS,
    HALF_TRUTHS,
    LABELS,
    NEGATION_QUERIES,
    PAIRS,
    PARAPHRASE_QUERIES,
    SWAPS,
    TEXT_PAIRS,
)
from components.encoders.adapter.sidecar import Sidecar
from components.evaluation.results import Folders

IMAGES = ("a", "b", "c", "d")
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class StubEncoder:
    """Looks texts up; remembers what it was asked."""

    def __init__(self, vectors: dict[str, Sequence[float]], name: str = "base", tower: str = "tower") -> None:
        self.vectors = vectors
        self.asked: list[str] = []
        self.images_asked = 0
        self.sidecar = Sidecar(
            name=name, model="stub", architecture={}, quick_gelu=False, embed_dim=4, context_length=77, image_size=1,
            method=name, git_commit="c" * 40, weights_sha256=f"weights of {name}", image_tower_sha256=tower,
        )  # fmt: skip

    def embed_texts(
        self, texts: Sequence[str], batch_size: int = 256, title: str | None = None
    ) -> npt.NDArray[np.float32]:
        self.asked += texts
        return np.array([self.vectors[text] for text in texts], dtype=np.float32)

    def embed_images(
        self, images: Sequence[bytes], batch_size: int = 256, title: str | None = None, names: Sequence[str] = ()
    ) -> npt.NDArray[np.float32]:
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
    captions = [f"caption <{image}>" for image in IMAGES]
    ids = [f"pair of {image}" for image in IMAGES]
    columns = {"id": ids, "image_id": list(IMAGES), "image": [PIXEL] * 4, "caption": captions, "facts": [None] * 4}
    PAIRS.write(places.test_pairs, {name: list(values) for name, values in columns.items()})
    places.embeddings.mkdir()
    np.save(places.embeddings / "test.npy", np.eye(4, dtype=np.float32))
    np.save(places.embeddings / "test.norms.npy", np.ones(4, dtype=np.float32))
    made_from = {"test": {"pairs_sha256": file_hash(places.test_pairs), "rows": 4}}
    manifest = {"image_tower_sha256": "tower", "embed_dim": 4, "splits": made_from}
    (places.embeddings / "manifest.json").write_text(json.dumps(manifest))
    _write_tables(places.evaluation)
    return places


def _write_tables(folder: Path) -> None:
    PARAPHRASE_QUERIES.write(
        folder / "paraphrase_queries.parquet",
        {
            "image_id": ["a", "c", "d"],
            "query": ["a query", "c query", "d query"],
            "paraphrase": ["a paraphrase", "c paraphrase", "d paraphrase"],
            "tier": ["common", "unseen", "common"],
            "held_out": ["scene", "scene", "pair"],
        },
    )
    CAPTION_QUERIES.write(
        folder / "caption_queries.parquet",
        {
            "image_id": ["a", "c", "d", "a"],
            "text": ["a query", "c query", "d query", "c paraphrase"],
            "register": ["plain", "plain", "plain", "alt_text"],
        },
    )
    LABELS.write(folder / "labels.parquet", {"image_id": ["a", "b", "c"], "label": ["cat", "dog", "cat"]})
    NEGATION_QUERIES.write(
        folder / "negations.parquet",
        {
            "image_id": ["a", "c", "d"],
            "caption": ["a query", "c query", "d query"],
            "negation": ["a negation", "c negation", "d negation"],
            "paraphrase": ["a paraphrase", "c paraphrase", "d paraphrase"],
            "cue": ["no", "not", "no"],
            "tier": ["common", "unseen", "common"],
        },
    )
    COMPARISONS.write(
        folder / "comparisons.parquet",
        {
            "first_id": ["a", "c", "a", "c", "d"],
            "second_id": ["d", "d", "c", "a", "a"],
            "true_difference": [
                "a larger than d", "d larger than c", "a red, c blue", "c a dog, a a cat", "d left, a right"
            ],
            "false_difference": [
                "d larger than a", "c larger than d", "c red, a blue", "a a dog, c a cat", "a left, d right"
            ],
            "kind": ["size", "size", "background", "object", "position"],
            "answer": ["first", "second", "first", "first", "first"],
        },
    )  # fmt: skip
    CAPTION_RATINGS.write(
        folder / "caption_ratings.parquet",
        {"image_id": ["a", "a", "b", "c"], "caption": ["one", "two", "one", "two"], "rating": [1.0, 2.0, 4.0, 4.0]},
    )
    SWAPS.write(
        folder / "swaps.parquet",
        {
            "image_id": ["a", "a", "c", "d"],
            "true_caption": ["a query", "a query", "c query", "d query"],
            "false_caption": ["a paraphrase", "c query", "c query", "a query"],
            "kind": ["relation", "relation", "relation", "attribute"],
            "group": ["left", "left", "above", "size"],
        },
    )
    HALF_TRUTHS.write(
        folder / "half_truths.parquet",
        {
            "image_id": ["a", "a", "c", "d"],
            "truth": ["a query", "a paraphrase", "c query", "d query"],
            "half_truth": ["a paraphrase", "a query", "c negation", "c query"],
            "full_truth": ["a negation", "a negation", "a query", "d paraphrase"],
            "kind": ["object", "object", "relation", "relation"],
        },
    )
    TEXT_PAIRS.write(
        folder / "text_pairs.parquet",
        {
            "sentence": ["a query", "a query", "c query", "d query"],
            "other_sentence": ["a paraphrase", "d query", "a negation", "d paraphrase"],
            "shared": [1.0, 0.0, 0.5, 0.25],
            "tier": ["common", "common", "rare", "rare"],
        },
    )


@pytest.fixture
def make_settings() -> Callable[..., Settings]:
    """Settings with four benchmarks, and depths 1 and 2; keyword arguments replace whole blocks."""

    def make(**blocks: Any) -> Settings:
        content: dict[str, Any] = {
            "dataset": {"name": "stub"},
            "prepare": {"source": "synthetic", "counts": {"train": 1, "val": 1, "test": 4}},
            "base": {
                "source": "scratch",
                "model": "stub",
                "scratch": {"epochs": 1, "batch_size": 1, "lr": 1, "warmup_steps": 0, "weight_decay": 0},
            },
            "embed": {"batch_size": 2},
            "synthesize": {"llms": {}, "default_llm": "stub", "max_captions": 1, "store": "sqlite://", "tasks": {}},
            "validate": {
                "min_words": 1, "max_words": 9, "min_similarity": 0, "min_new_words": 0, "check_scene_facts": False,
                "min_accepted_share": 0, "max_echo_share": 1, "max_leak_share": 1,
            },
            "train": {"checkpoint_dir": "state"},
            "methods": {},
            "compare_encoders": ["base", "tuned"],
            "evaluate": {
                "benchmarks": ["paraphrased_retrieval", "retrieval", "zero_shot", "swaps", "caption_ratings"],
                "top_k": [1, 2],
                "bootstrap": 50,
            },
            "compare": {"gallery_queries": 3, "gallery_top": 2},
            "promote": {"model": "stub", "metric": "paraphrased_retrieval/ao_at_2", "guards": {}},
        }  # fmt: skip
        return Settings.model_validate(content | blocks)

    return make
