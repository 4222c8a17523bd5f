"""Features made by hand for whatever columns a method declares, and losses computed another way."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.tokens import Tokens
from components.training.methods.contract.losses import BASE, Feature, Features
from components.training.methods.contract.method import Method
from components.training.methods.registry import find_method
from tests.conftest import TINY
from tests.support.tiny_language_model import tiny_language_model

Rows = npt.NDArray[np.float64]
GOLDEN = Path(__file__).parents[3] / "golden" / "losses.json"
SCALE = 7.0
DIM = 6

_CHANGES: dict[str, dict[str, Any]] = {
    "paraclip": {},
    "paraclip, every term": {"terms": ["l1", "l1_prime", "l1_second", "l2", "l3"]},
    "paraclip, near the base": {"retention": 0.5},
    "paraclip, nested": {"matryoshka": [2, 4]},
    "pc_clip": {},
    "pc_clip, antisymmetric": {"antisymmetric": True},
    "pc_clip, own scale": {"temperature": None},
    "pc_clip, the paper's sum": {"protocol": "paper"},
    "pc_clip, mse": {"loss": "mse", "protocol": "paper"},
    "pc_clip, mse as released": {"loss": "mse"},
    "caption_ft": {},
    "caption_ft, rewrites": {"column": "rewrite", "temperature": 0.1},
    "laclip_ft": {},
    "negclip": {},
    "negclip, no hard images": {"hard_images": False},
    "conclip": {},
    "conclip, no distractors": {"distractors": False},
    "negation_clip": {},
    "omni_negclip": {},
    "proclip": {},
    "proclip, frozen image tower": {"image_tower": "frozen"},
    "cs_clip": {},
    "leaf": {},
    "query_adapter": {},
    "query_adapter, with pictures": {"contrast": 0.1},
    "read_clip": {},
    "semclip": {"paraphrase": "paraphrase_1"},
    "semclip, published texts": {"paraphrase": "published_paraphrase", "negation": "published_negation"},
    "semclip, contrastive only": {"paraphrase_weight": 0, "negation_weight": 0},
    "semclip, three directions": {"n": 3, "learnable": True, "paraphrase": "paraphrase_2"},
    "semclip, a bit": {"paraphrase": "paraphrase_1", "n": 1, "protocol": "soft_sign"},
    "semclip, a plain projection": {
        "paraphrase": "paraphrase_1", "n": 1, "protocol": "soft_sign", "normalised": False,
    },
    "semclip, released": {"paraphrase": "paraphrase_1", "protocol": "released"},
    "joint": {},
    "joint, others": {
        "parts": {
            "conclip": {"weight": 0.5},
            "laclip_ft": {},
            "semclip": {"paraphrase": "paraphrase_1", "protocol": "released"},
        },
    },
}  # fmt: skip
CASES = {name: {"method": name.partition(",")[0]} | changes for name, changes in _CHANGES.items()}
"""Variants of methods, whatever entries params.yaml has."""


def configured(entry: Mapping[str, Any], name: str | None = None) -> Method[Any]:
    """The method of an entry as params.yaml has it."""
    given = {key: value for key, value in entry.items() if key not in ("method", "train_data")}
    return find_method(entry["method"]).read(given, name)


def random_columns(names: Iterable[str], rows: int = 8) -> dict[str, Tensor]:
    """Raw float64 features `[rows, DIM]` by column, of varied lengths, the same for a name whatever else there is."""
    found = {}
    for name in names:
        rng = np.random.default_rng(list(name.encode()))
        found[name] = torch.from_numpy(rng.normal(size=(rows, DIM)))
    return found


def as_features(
    columns: Mapping[str, Tensor],
    extra: nn.Module | None = None,
    first: int = 0,
    count: int | None = None,
    weights: Tensor | None = None,
    alike: Tensor | None = None,
) -> Features:
    """Features of the rank that holds `count` rows from `first` on; `weights` and `alike` are those of all rows."""
    rows = {}
    for name, values in columns.items():
        own = slice(first, first + (count if count is not None else len(values)))
        facts = {"weights": weights, "alike": None if name.startswith("neighbour.") else alike}
        held = {fact: None if matrix is None else matrix[own] for fact, matrix in facts.items()}
        rows[name] = Feature(values, first, own.stop - first, **held)
    scale, own = torch.tensor(SCALE, dtype=torch.float64), extra if extra is not None else nn.Module()
    return Features(rows, scale, own, {name: _tokens(one.own) for name, one in rows.items() if "image" not in name})


def _tokens(rows: Tensor) -> Tokens:
    """Token ids between a start and an end token that follow from the features of the same row, `[batch, DIM + 2]`."""
    words = (rows.detach() * 1000).long().abs() + 300
    return F.pad(F.pad(words, (1, 0), value=49406), (0, 1), value=49407).numpy().astype(np.int32)


def columns_of(method: Method[Any]) -> frozenset[str]:
    """The columns that its losses read; `clean` is what LEAF's search for typing errors adds.

    Of the base's features, those of images if the image tower trains, else those of texts.
    """
    columns = method.columns
    added = set() if method.augment is None else {"clean"}
    if method.reads_base:
        added |= {BASE + name for name in columns if ("image" in name) == (method.settings.image_tower != "frozen")}
    return columns | added


def extra_of(method: Method[Any]) -> nn.Module:
    """The method's own tensors in float64."""
    if method.name == "read_clip":
        method = type(method)(replace(method.settings, language_model=str(tiny_language_model())))
    torch.manual_seed(0)
    return method.extra(small_encoder()).double()


@cache
def small_encoder() -> Encoder:
    """An encoder whose features have `DIM` dimensions."""
    return Encoder.create("small", "small", TINY | {"embed_dim": DIM}, "test")


def losses_of(entry: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, float]:
    """Losses by name of an entry on rows given as lists, arrays or tensors; all of one rank."""
    method = configured(entry)
    rows = {name: torch.as_tensor(np.asarray(values), dtype=torch.float64) for name, values in columns.items()}
    losses = method.objective(as_features(rows, extra_of(method)))
    return {name: float(loss.detach()) for name, loss in losses.items()}


def unit(rows: Any) -> Rows:
    """Rows of length one."""
    values = np.asarray(rows, dtype=np.float64)
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True))


def picking(anchor: Rows, *candidates: Rows, scale: float = SCALE) -> float:
    """Mean over anchors of minus the log-probability of row i of the first candidates, among all of them."""
    logits = scale * anchor @ np.concatenate(candidates).T
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return float(-np.log(np.diagonal(chances)).mean())


def golden_losses() -> dict[str, dict[str, float]]:
    """Losses by name of every case on its random columns."""
    found = {}
    for name, entry in CASES.items():
        losses = losses_of(entry, random_columns(columns_of(configured(entry))))
        found[name] = {term: round(value, 8) for term, value in losses.items()}
    return found


if __name__ == "__main__":
    # python -m tests.unit.training.methods.examples, only when a loss is meant to change.
    GOLDEN.write_text(json.dumps(golden_losses(), indent=2) + "\n", encoding="utf-8")
