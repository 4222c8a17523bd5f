"""What every file of components/methods/ owes the loop."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from components.encoders.encoder import Encoder
from components.encoders.text_tower import encode_tokens
from components.encoders.tokens import tokenize, trimmed
from components.errors import InputError
from components.methods import find_method, method_names
from components.methods.method import Method
from components.settings import Settings

TEXTS = {
    "caption": [
        "IMG_1 dog.jpg",
        "cat!! #2",
        "red car sku",
        "tree_left.png",
        "a b c",
        "bus bg",
        "kite >> sky",
        "4 eggs",
    ],
    "paraphrase_1": ["a dog", "a cat", "a red car", "a tree on the left", "letters", "a bus", "a kite", "four eggs"],
    "paraphrase_2": ["one hound", "one tabby", "an auto", "left, a tree", "abc", "a coach", "a flyer", "eggs, four"],
}

every_method = pytest.mark.parametrize("method", [find_method(name) for name in method_names()], ids=lambda m: m.name)


def _features(encoder: Encoder, method: Method, hyper: Any) -> dict[str, Tensor]:
    features = {}
    for column in method.columns(hyper):
        if column == "image":
            generator = torch.Generator().manual_seed(5)
            features[column] = F.normalize(torch.randn(8, encoder.sidecar.embed_dim, generator=generator), dim=-1)
        else:
            features[column] = encode_tokens(encoder.model, trimmed(tokenize(TEXTS[column], 24)))
    return features


def _loss(encoder: Encoder, method: Method, hyper: Any) -> Tensor:
    losses = method.losses(_features(encoder, method, hyper), encoder.model.logit_scale.exp(), hyper)
    assert all(loss.ndim == 0 for loss in losses.values())
    return torch.stack(list(losses.values())).sum()


def test_params_yaml_names_exactly_encoders_that_exist(settings: Settings) -> None:
    assert set(settings.methods) <= set(method_names())
    assert set(settings.encoders) == {"base", *settings.methods}


@every_method
def test_settings_round_trip(method: Method, settings: Settings) -> None:
    defaults = method.settings({})
    assert method.settings(dataclasses.asdict(defaults)) == defaults
    method.settings(settings.methods.get(method.name, {}))


@every_method
def test_unknown_and_ill_typed_settings_are_named(method: Method) -> None:
    with pytest.raises(InputError, match=rf"unknown key 'methods\.{method.name}\.epoch': did you mean 'epochs'"):
        method.settings({"epoch": 3})
    with pytest.raises(InputError, match=rf"methods\.{method.name}\.lr"):
        method.settings({"lr": "fast"})


@every_method
def test_frozen_parameters_do_not_move_and_trained_ones_do(method: Method, tiny_encoder: Encoder) -> None:
    hyper = method.settings({})
    before = {name: value.clone() for name, value in tiny_encoder.model.state_dict().items()}
    trained = method.freeze(tiny_encoder.model)
    optimiser = torch.optim.SGD(tiny_encoder.model.parameters(), lr=0.1)
    _loss(tiny_encoder, method, hyper).backward()
    optimiser.step()
    moved = {name for name, value in tiny_encoder.model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved
    assert moved <= set(trained)


@every_method
def test_gradients_are_finite(method: Method, tiny_encoder: Encoder) -> None:
    trained = method.freeze(tiny_encoder.model)
    _loss(tiny_encoder, method, method.settings({})).backward()
    gradients = [parameter.grad for parameter in trained.values() if parameter.grad is not None]
    assert gradients
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


@every_method
def test_eight_samples_can_be_overfitted(method: Method, tiny_encoder: Encoder) -> None:
    hyper = method.settings({})
    trained = method.freeze(tiny_encoder.model)
    optimiser = torch.optim.AdamW(trained.values(), lr=3e-3)
    first = _loss(tiny_encoder, method, hyper).item()
    for _ in range(60):
        optimiser.zero_grad()
        _loss(tiny_encoder, method, hyper).backward()
        optimiser.step()
    assert _loss(tiny_encoder, method, hyper).item() < 0.1 * first


def test_a_method_that_does_not_fit_the_encoder_is_refused(tiny_encoder: Encoder) -> None:
    method = dataclasses.replace(find_method("paraclip"), trains=(r"^adapter\.",))
    with pytest.raises(InputError, match="which this encoder does not have"):
        method.freeze(tiny_encoder.model)


def test_unknown_method_is_named() -> None:
    with pytest.raises(InputError, match="method 'paraclap' is unknown"):
        find_method("paraclap")
