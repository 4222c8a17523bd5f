"""The contract of every file of components/training/methods/ and every entry of params.yaml with the loop."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.training.methods.paraclip import Paraclip
from components.training.methods.registry import find_method, method_names
from tests.conftest import TINY
from tests.support.params import every_method
from tests.unit.training.methods.examples import (
    CASES,
    GOLDEN,
    as_features,
    columns_of,
    configured,
    extra_of,
    golden_losses,
    random_columns,
)

ENTRIES: dict[str, dict[str, Any]] = every_method()["methods"]

every_entry = pytest.mark.parametrize("name", ENTRIES)
every_variant = pytest.mark.parametrize("entry", [*ENTRIES.values(), *CASES.values()], ids=[*ENTRIES, *CASES])
# The mean over tokens needs a sum over real ranks: tests/unit/training/methods/test_leaf.py.
_RANKED = {name: entry for name, entry in CASES.items() if name != "read_clip"}
every_ranked_variant = pytest.mark.parametrize(
    "entry", [*ENTRIES.values(), *_RANKED.values()], ids=[*ENTRIES, *_RANKED]
)

WEIGHTS = torch.tensor([4.0, 0.5, 0.25, 1.0, 0.75, 0.5, 0.5, 0.5], dtype=torch.float64)
ALIKE = torch.zeros(8, 8, dtype=torch.bool)
ALIKE[[0, 1, 2, 6], [1, 0, 6, 2]] = True


def _columns(entry: dict[str, Any]) -> dict[str, Tensor]:
    return random_columns(columns_of(configured(entry)))


def _losses(entry: dict[str, Any], columns: dict[str, Tensor], *rank: int, **facts: Tensor) -> Any:
    method = configured(entry)
    torch.manual_seed(0)
    return method.objective(as_features(columns, extra_of(method), *rank, **facts))


def _total(entry: dict[str, Any], columns: dict[str, Tensor], *rank: int, **facts: Tensor) -> Tensor:
    return torch.stack(list(_losses(entry, columns, *rank, **facts).values())).sum()


def test_params_yaml_trains_every_method_and_losses_have_their_golden_values(settings: Settings) -> None:
    golden, found = json.loads(GOLDEN.read_text("utf-8")), golden_losses()
    assert set(golden) == set(CASES)
    for name, losses in found.items():
        # The projection basis is made in float32.
        assert losses == pytest.approx(golden[name], abs=1e-5), name
    assert {entry["method"] for entry in settings.methods.values()} == set(method_names())
    assert set(settings.compare_encoders) <= {"base", *settings.methods}
    ignoring = [name for name in method_names() if not find_method(name).read({}).weighted]
    assert ignoring == ["joint", "leaf", "pc_clip", "read_clip", "semclip"]


def test_no_method_imports_torch_for_its_settings() -> None:
    code = (
        "import sys; from components.training.methods.registry import find_method, method_names; "
        "[find_method(name).read({}) for name in method_names()]; "
        "sys.exit(str(sys.modules.keys() & {'torch', 'open_clip', 'transformers', 'peft'} or 0))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).stderr == b"0\n"


@every_entry
def test_unknown_and_ill_typed_settings_are_named(name: str) -> None:
    method = type(configured(ENTRIES[name]))
    messages = {
        "epoch": rf"unknown key 'methods\.{name}\.epoch': did you mean 'epochs'",
        "lr": rf"key 'methods\.{name}\.lr'",
    }
    for key, message in messages.items():
        with pytest.raises(InputError, match=message):
            method.read({key: "fast"}, name)


PUBLISHED: dict[str, dict[str, Any]] = {
    "lm_text_tower": {
        "lr": 0.001, "batch_size": 4000, "epochs": 32, "warmup_steps": 10_000, "weight_decay": 0.1, "eps": 1e-6,
        "betas": (0.9, 0.98), "schedule": "cosine", "image_tower": "random", "strategy": "alignment",
        "alignment_layers": 6,
    },
    "caption_ft": {
        "lr": 1e-6, "batch_size": 128, "epochs": 10, "temperature": 1.0, "schedule": "exponential", "gamma": 0.9,
        "learn_logit_scale": False,
    },
    "conclip": {
        "lr": 1e-6, "batch_size": 200, "epochs": 5, "warmup_steps": 50, "weight_decay": 0.2, "decay_all": True,
        "image_tower": "frozen",
    },
    "cs_clip": {
        "lr": 5e-6, "batch_size": 128, "epochs": 5, "weight_decay": 0.01, "decay_all": True, "clip_gradient": 1.0,
        "image_tower": "trained", "unit_weight": 0.5,
    },
    "leaf": {
        "lr": 1e-5, "batch_size": 128, "epochs": 30, "weight_decay": 1e-4, "tries": 50, "warmup_steps": 1400,
        "betas": (0.9, 0.98), "eps": 1e-6, "image_tower": "frozen",
    },
    "negation_clip": {
        "lr": 1e-6, "batch_size": 512, "epochs": 15, "weight_decay": 0.01, "schedule": "constant", "warmup_steps": 0,
        "betas": (0.9, 0.999), "eps": 1e-8, "decay_all": True, "image_tower": "frozen",
    },
    "negclip": {"lr": 1e-6, "batch_size": 256, "epochs": 5, "warmup_steps": 50, "image_tower": "trained"},
    "omni_negclip": {
        "lr": 1e-6, "batch_size": 128, "epochs": 30, "weight_decay": 0.2, "warmup_steps": 50, "betas": (0.9, 0.999),
        "front_blocks": 6, "margin": 0.9, "image_tower": "frozen",
    },
    "paraclip": {
        "lr": 5e-7, "batch_size": 3072, "epochs": 1, "weight_decay": 0.001, "terms": ("l1_second", "l2", "l3"),
    },
    "pc_clip": {
        "lr": 1e-8, "batch_size": 512, "epochs": 20, "temperature": 1.0, "schedule": "exponential", "gamma": 0.9,
        "learn_logit_scale": False,
    },
    "read_clip": {
        "lr": 1e-5, "batch_size": 256, "epochs": 5, "weight_decay": 0.1, "warmup_steps": 50, "schedule": "cosine",
        "betas": (0.9, 0.999), "eps": 1e-8, "clip_gradient": 1.0, "reconstruction_weight": 0.1,
        "alignment_weight": 0.5, "image_tower": "trained",
    },
    "semclip": {
        "lr": 5e-5, "batch_size": 256, "epochs": 200, "weight_decay": 0.2, "betas": (0.9, 0.999), "warmup_steps": 50,
        "accumulate": 2, "clip_gradient": 1.0, "schedule": "cosine",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_defaults_are_the_papers(name: str) -> None:
    method = find_method(name).read({})
    assert {key: getattr(method.settings, key) for key in PUBLISHED[name]} == PUBLISHED[name]
    assert method.warnings() == []


def test_wrong_numbers_and_encoders_are_refused_by_name(tiny_encoder: Encoder) -> None:
    values = {"lr": math.nan, "batch_size": 0, "gamma": 1.5, "weight_ensemble": -0.1, "terms": []}
    for key, value in values.items():
        with pytest.raises(InputError, match=rf"^params\.yaml: key 'methods\.mine\.{key}': "):
            find_method("paraclip").read({key: value}, "mine")
    with pytest.raises(InputError, match=r"key 'methods\.mine\.parts\.paraclip\.weight': "):
        find_method("joint").read({"parts": {"paraclip": {"weight": math.nan}}}, "mine")

    class Adapter(Paraclip):
        trainable = (r"^adapter\.",)

    with pytest.raises(InputError, match="which this encoder does not have"):
        Adapter.read({}).freeze(tiny_encoder.model)


@every_variant
def test_losses_are_finite_scalars_that_reach_every_column(entry: dict[str, Any]) -> None:
    columns = {name: rows.requires_grad_() for name, rows in _columns(entry).items()}
    losses = _losses(entry, columns)
    assert losses
    assert all(loss.ndim == 0 and torch.isfinite(loss) for loss in losses.values())
    torch.stack(list(losses.values())).sum().backward()
    for name, rows in columns.items():
        assert rows.grad is not None, name
        assert torch.isfinite(rows.grad).all(), name
        assert (rows.grad.norm(dim=1) > 0).any(), name


@every_variant
def test_the_order_of_rows_does_not_matter_but_which_belong_together_does(entry: dict[str, Any]) -> None:
    columns = _columns(entry)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(3))
    shuffled = {name: rows[order] for name, rows in columns.items()}
    assert _total(entry, shuffled).item() == pytest.approx(_total(entry, columns).item(), abs=1e-9)
    torn = {name: rows.roll(place, dims=0) for place, (name, rows) in enumerate(sorted(columns.items()))}
    assert _total(entry, torn).item() != pytest.approx(_total(entry, columns).item(), abs=1e-6)


@every_ranked_variant
@pytest.mark.parametrize("facts", [{}, {"weights": WEIGHTS, "alike": ALIKE}], ids=["plain", "logged"])
def test_two_ranks_average_to_one_process(facts: dict[str, Tensor], entry: dict[str, Any]) -> None:
    columns = {name: rows.requires_grad_() for name, rows in _columns(entry).items()}
    whole, *ranks = (_total(entry, columns, *rank, **facts) for rank in ((), (0, 4), (4, 4)))
    assert sum(loss.item() for loss in ranks) / 2 == pytest.approx(whole.item(), abs=1e-6)
    assert ranks[0].item() != pytest.approx(ranks[1].item(), abs=1e-6)
    gradients = [torch.autograd.grad(loss, list(columns.values())) for loss in (whole, *ranks)]
    for name, expected, lower, upper in zip(columns, *gradients, strict=True):
        assert torch.allclose(expected, (lower + upper) / 2, atol=1e-9), name


WEIGHTED = {name: entry for name, entry in (ENTRIES | CASES).items() if configured(entry).weighted}
every_weighted = pytest.mark.parametrize("entry", WEIGHTED.values(), ids=list(WEIGHTED))


@every_weighted
def test_a_weighted_loss_is_the_mean_of_its_rows_losses_times_their_weights(entry: dict[str, Any]) -> None:
    columns = _columns(entry)
    rows = [_total(entry, columns, weights=8 * one).item() for one in torch.eye(8, dtype=torch.float64)]
    assert sum(rows) / 8 == pytest.approx(_total(entry, columns).item(), abs=1e-9)
    expected = sum(weight * row for weight, row in zip(WEIGHTS.tolist(), rows, strict=True)) / 8
    assert _total(entry, columns, weights=WEIGHTS).item() == pytest.approx(expected, abs=1e-9)
    assert expected != pytest.approx(sum(rows) / 8, abs=1e-3)


@every_variant
def test_images_of_one_query_are_not_negatives_of_each_other(entry: dict[str, Any]) -> None:
    """Fewer negatives cost less; PC-CLIP's pairs are of no query, and LEAF and an adapter of captions have none."""
    columns = _columns(entry)
    plain, less = _total(entry, columns).item(), _total(entry, columns, alike=ALIKE).item()
    without = entry["method"] in ("pc_clip", "leaf") or (entry["method"] == "query_adapter" and "contrast" not in entry)
    assert less == plain if without else less < plain - 1e-6


@every_entry
def test_freezing_leaves_exactly_the_declared_parameters(name: str) -> None:
    method = configured(ENTRIES[name])
    if method.builds_tower:
        pytest.skip("builds a tower of its own, see its own test")
    model = Encoder.create("tiny", "tiny", TINY | {"init_logit_bias": -10.0}, "test").model
    trained = method.freeze(model)
    assert trained
    assert ("logit_scale" in trained) == ("logit_bias" in trained) == method.settings.learn_logit_scale
    assert any(key.startswith("visual.") for key in trained) == (method.settings.image_tower != "frozen")
    for key, parameter in model.named_parameters():
        assert parameter.requires_grad == (key in trained), key
