"""What every file of components/methods/ and every entry of params.yaml owes the loop."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from components.encoders.encoder import Encoder
from components.errors import InputError
from components.methods import find_method, method_names
from components.settings import Settings
from tests.unit.methods.examples import CASES, as_features, configured, extra_of, random_columns

PARAMS = Path(__file__).parents[3] / "params.yaml"
ENTRIES: dict[str, dict[str, Any]] = yaml.safe_load(PARAMS.read_text("utf-8"))["methods"]

every_entry = pytest.mark.parametrize("name", ENTRIES)
every_variant = pytest.mark.parametrize("entry", [*ENTRIES.values(), *CASES.values()], ids=[*ENTRIES, *CASES])


def _columns(entry: dict[str, Any]) -> dict[str, Tensor]:
    method, hyper = configured(entry)
    return random_columns(method.columns(hyper))


def _losses(entry: dict[str, Any], columns: dict[str, Tensor], first: int = 0, count: int | None = None) -> Any:
    method, hyper = configured(entry)
    torch.manual_seed(0)
    return method.losses(as_features(columns, extra_of(method, hyper), first, count), hyper)


def _total(entry: dict[str, Any], columns: dict[str, Tensor], first: int = 0, count: int | None = None) -> Tensor:
    return torch.stack(list(_losses(entry, columns, first, count).values())).sum()


def test_params_yaml_trains_every_method_and_evaluates_only_what_exists(settings: Settings) -> None:
    assert {entry["method"] for entry in settings.methods.values()} == set(method_names())
    assert set(settings.encoders) <= {"base", *settings.methods}


@every_entry
def test_settings_round_trip(name: str) -> None:
    method, hyper = configured(ENTRIES[name], name)
    assert method.settings(dataclasses.asdict(hyper)) == hyper
    assert method.settings(dataclasses.asdict(method.settings({}))) == method.settings({})


@every_entry
def test_unknown_and_ill_typed_settings_are_named(name: str) -> None:
    method, _ = configured(ENTRIES[name])
    with pytest.raises(InputError, match=rf"unknown key 'methods\.{name}\.epoch': did you mean 'epochs'"):
        method.settings({"epoch": 3}, name)
    with pytest.raises(InputError, match=rf"key 'methods\.{name}\.lr'"):
        method.settings({"lr": "fast"}, name)


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
def test_the_order_of_rows_does_not_matter(entry: dict[str, Any]) -> None:
    columns = _columns(entry)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(3))
    shuffled = {name: rows[order] for name, rows in columns.items()}
    assert _total(entry, shuffled).item() == pytest.approx(_total(entry, columns).item(), abs=1e-9)


@every_variant
def test_rows_that_belong_together_matter(entry: dict[str, Any]) -> None:
    columns = _columns(entry)
    torn = {name: rows.roll(place, dims=0) for place, (name, rows) in enumerate(sorted(columns.items()))}
    assert _total(entry, torn).item() != pytest.approx(_total(entry, columns).item(), abs=1e-6)


@every_variant
def test_the_mean_over_two_ranks_is_the_loss_of_one_process(entry: dict[str, Any]) -> None:
    columns = _columns(entry)
    ranks = [_total(entry, columns, first, 4).item() for first in (0, 4)]
    assert sum(ranks) / 2 == pytest.approx(_total(entry, columns).item(), abs=1e-6)
    assert ranks[0] != pytest.approx(ranks[1], abs=1e-6)


@every_variant
def test_gradients_of_two_ranks_average_to_those_of_one_process(entry: dict[str, Any]) -> None:
    columns = {name: rows.requires_grad_() for name, rows in _columns(entry).items()}
    one = torch.autograd.grad(_total(entry, columns), list(columns.values()))
    parts = [torch.autograd.grad(_total(entry, columns, first, 4), list(columns.values())) for first in (0, 4)]
    for name, whole, lower, upper in zip(columns, one, *parts, strict=True):
        assert torch.allclose(whole, (lower + upper) / 2, atol=1e-9), name


@every_entry
def test_freezing_leaves_exactly_the_declared_parameters(name: str, tiny_encoder: Encoder) -> None:
    method, hyper = configured(ENTRIES[name])
    if method.tower is not type(method).tower:
        pytest.skip("builds a tower of its own, see its own test")
    trained = method.freeze(tiny_encoder.model, hyper)
    assert trained
    assert ("logit_scale" in trained) == hyper.learn_logit_scale
    assert any(key.startswith("visual.") for key in trained) == (hyper.image_tower != "frozen")
    for key, parameter in tiny_encoder.model.named_parameters():
        assert parameter.requires_grad == (key in trained), key


def test_a_method_that_does_not_fit_the_encoder_is_refused(tiny_encoder: Encoder) -> None:
    method = dataclasses.replace(find_method("paraclip"), trains=lambda _hyper: (r"^adapter\.",))
    with pytest.raises(InputError, match="which this encoder does not have"):
        method.freeze(tiny_encoder.model, method.settings({}))


def test_unknown_method_is_named() -> None:
    with pytest.raises(InputError, match="method 'paraclap' is unknown"):
        find_method("paraclap")
