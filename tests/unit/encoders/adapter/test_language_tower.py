"""A pretrained language model as a text tower, in four ways, whatever its kind."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.language_tower import Placement, Strategy, layers, trained
from components.encoders.adapter.text_tower import text_features
from components.encoders.adapter.tokens import trimmed
from components.training.new_text_towers import with_language_tower

TEXTS = ["a dog", "two small hats on the long red sofa with a cat", "hats"]
STRATEGIES: list[tuple[Strategy, int]] = [("finetuned", 0), ("frozen", 0), ("bottleneck", 0), ("alignment", 2)]

every_kind = pytest.mark.parametrize("language_folder", ["bert", "roberta", "distilbert"], indirect=True)
every_strategy = pytest.mark.parametrize(("strategy", "added"), STRATEGIES, ids=[name for name, _ in STRATEGIES])


Make = Callable[..., Encoder]


@pytest.fixture
def make(tiny_encoder: Encoder, language_folder: Path) -> Make:
    """Makes an encoder with the language model, from a strategy and a number of added layers."""

    def made(strategy: Strategy, added: int = 0, **options: Any) -> Encoder:
        torch.manual_seed(1)
        return with_language_tower(tiny_encoder, str(language_folder), strategy, added, **options)

    return made


def _features(encoder: Encoder, texts: list[str] = TEXTS) -> Tensor:
    tokens = encoder.tokenizer(texts)
    return text_features(encoder.model, trimmed(tokens, encoder.tokenizer.lengths(tokens)))


def _freeze(encoder: Encoder, strategy: Strategy, added: int) -> dict[str, torch.nn.Parameter]:
    for name, parameter in encoder.model.named_parameters():
        parameter.requires_grad_(any(re.search(pattern, name) for pattern in trained(strategy, added)))
    return {name: parameter for name, parameter in encoder.model.named_parameters() if parameter.requires_grad}


@every_kind
def test_texts_of_like_lengths_go_together_with_the_same_features(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = make("finetuned")
    texts = [" ".join(["dog", "hats"] * (1 + number % 5)) for number in range(70)]
    tokens = torch.from_numpy(encoder.tokenizer(texts).astype("int64"))
    at_once = encoder.model.text(tokens)
    shapes, forward = [], type(encoder.model.text).forward

    def watched(tower: Any, tokens: Tensor) -> Tensor:
        shapes.append(tuple(tokens.shape))
        return forward(tower, tokens)

    monkeypatch.setattr(type(encoder.model.text), "forward", watched)
    assert torch.allclose(text_features(encoder.model, tokens), at_once, atol=1e-6)
    # The first 28 are the two shortest kinds; each word is one token, and each text has two more.
    assert shapes == [(32, 8), (32, 12), (6, 12)]


@every_kind
@every_strategy
def test_training_moves_exactly_the_weights_of_the_strategy(make: Make, strategy: Strategy, added: int) -> None:
    encoder = make(strategy, added)
    chosen = _freeze(encoder, strategy, added)
    language = {name for name, _ in encoder.model.named_parameters() if name.startswith("text.language.")}
    marks = {"finetuned": ".language.", "frozen": "nothing", "bottleneck": ".adapter.", "alignment": ".alignment_"}
    assert language & chosen.keys() == {name for name in language if marks[strategy] in name}
    before = {name: value.clone() for name, value in encoder.model.state_dict().items()}
    optimiser = torch.optim.SGD(encoder.model.parameters(), lr=1.0)
    for _ in range(2):
        optimiser.zero_grad()
        _features(encoder).square().sum().backward()
        # Distributed training waits for the gradient of every parameter that wants one.
        assert [name for name, parameter in chosen.items() if parameter.grad is None] == []
        optimiser.step()
    moved = {name for name, value in encoder.model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved <= set(chosen)
    parts = {"projection"} if strategy == "frozen" else {"projection", "language"}
    assert {name.split(".")[1] for name in moved} == parts


@pytest.mark.parametrize(("placement", "each"), [("layers", 1), ("residuals", 2)])
@every_kind
def test_adapters_start_as_the_identity(placement: Placement, each: int, make: Make, tmp_path: Path) -> None:
    frozen, adapted = make("frozen"), make("bottleneck", adapter_placement=placement)
    adapted.model.text.projection.load_state_dict(frozen.model.text.projection.state_dict())
    assert torch.equal(_features(adapted), _features(frozen))
    adapters = [module for name, module in adapted.model.named_modules() if name.endswith(".adapter")]
    assert len(adapters) == 2 * each
    assert adapters[0].down.weight.shape == (8, 16)
    for adapter in adapters:
        torch.nn.init.normal_(adapter.up.weight)
    assert not torch.allclose(_features(adapted), _features(frozen), atol=1e-3)
    adapted.save(tmp_path / "saved")
    assert torch.equal(_features(Encoder.load(tmp_path / "saved")), _features(adapted))


def test_houlsbys_adapters_are_inside_the_residuals(make: Make) -> None:
    layer = layers(make("bottleneck", adapter_placement="residuals").model.text.language)[0]
    states, before = torch.randn(2, 3, 16), torch.randn(2, 3, 16)
    for block in (layer.attention.output, layer.output):
        torch.nn.init.normal_(block.dense.adapter.up.weight)
        inner = before if block is layer.attention.output else torch.randn(2, 3, block.dense.layer.in_features)
        changed = block.dense.adapter(block.dense.layer(inner))
        torch.testing.assert_close(block(inner, states), block.LayerNorm(changed + states))


@every_kind
def test_alignment_adds_layers_above_the_pretrained_ones(make: Make, language_folder: Path) -> None:
    """How many it adds is tested with the method, in `tests/unit/training/methods/test_new_text_towers.py`."""
    frozen, published = make("frozen"), load_file(language_folder / "model.safetensors")
    for added in (0, 2):
        aligned = make("alignment", added)
        held = aligned.model.text.language.state_dict()
        kept = {name: value for name, value in published.items() if not name.startswith("pooler.")}
        assert all(torch.equal(held[name], value) for name, value in kept.items())
        aligned.model.text.projection.load_state_dict(frozen.model.text.projection.state_dict())
        assert torch.equal(_features(aligned), _features(frozen)) == (added == 0)


@every_kind
def test_padding_changes_nothing_and_dropout_is_off_even_in_training_mode(make: Make) -> None:
    encoder = make("alignment", 2)
    tokens = encoder.tokenizer(TEXTS)
    full = text_features(encoder.model, torch.from_numpy(tokens.astype("int64")))
    assert tokens.shape == (3, 24)
    assert torch.allclose(_features(encoder), full, atol=1e-6)
    for row, text in enumerate(TEXTS):
        assert torch.allclose(_features(encoder, [text])[0], full[row], atol=1e-6)
    encoder.model.train()
    assert torch.equal(_features(encoder), _features(encoder))


@every_kind
@every_strategy
def test_saved_encoder_comes_back_bit_for_bit(
    make: Make, tiny_encoder: Encoder, language_folder: Path, strategy: Strategy, added: int, tmp_path: Path
) -> None:
    encoder = make(strategy, added)
    for parameter in encoder.model.text.parameters():
        torch.nn.init.normal_(parameter.data, std=0.3)
    sidecar = encoder.save(tmp_path)
    loaded = Encoder.load(tmp_path)
    assert loaded.sidecar == sidecar
    assert sidecar.image_tower_sha256 == tiny_encoder.image_tower_hash()
    np.testing.assert_array_equal(loaded.tokenizer(TEXTS), encoder.tokenizer(TEXTS))
    np.testing.assert_array_equal(loaded.embed_texts(TEXTS), encoder.embed_texts(TEXTS))
    saved = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in saved} <= {".json", ".txt", ".safetensors"}
    assert not any(str(language_folder).encode() in path.read_bytes() for path in saved)


def _stored(encoder: Encoder) -> int:
    """How many distinct activations the backward pass would need."""
    weights = {parameter.data_ptr() for parameter in encoder.model.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in weights and tensor.is_floating_point():
            kept[tensor.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        features = _features(encoder)
    assert features.requires_grad
    return len(kept)


def test_frozen_layers_store_no_activations(make: Make) -> None:
    stored = {}
    for strategy, added in [*STRATEGIES, ("alignment", 4)]:
        encoder = make(strategy, added)
        _freeze(encoder, strategy, added)
        stored[strategy, added] = _stored(encoder)
    # The projection alone: its input, what its first layer gives, and that after the activation.
    assert stored["frozen", 0] == 3
    assert stored["frozen", 0] < stored["bottleneck", 0]
    # Two pretrained layers below add nothing to the two on top, and each further pair costs the same.
    per_pair = stored["alignment", 4] - stored["alignment", 2]
    assert stored["alignment", 2] - stored["frozen", 0] <= per_pair + 2
    assert stored["finetuned", 0] >= per_pair


def test_the_default_is_packaged_and_incomplete_files_named(
    tiny_encoder: Encoder, monkeypatch: pytest.MonkeyPatch, make: Make, language_folder: Path, tmp_path: Path
) -> None:
    encoder = with_language_tower(tiny_encoder, None, "frozen")
    assert encoder.sidecar.architecture["text_cfg"]["language_model"] == "all-MiniLM-L6-v2"
    assert encoder.model.text.language.config.hidden_size == 384
    assert encoder.tokenizer.context_length == 24
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=r"no language model at 'someone/some-model'.*give its folder"):
        with_language_tower(tiny_encoder, "someone/some-model", "frozen")
    folder = shutil.copytree(language_folder, tmp_path / "incomplete")
    tensors: dict[str, Any] = load_file(folder / "model.safetensors")
    del tensors["encoder.layer.1.output.dense.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"lacks 'encoder\.layer\.1\.output\.dense\.weight'"):
        with_language_tower(tiny_encoder, str(folder), "alignment", 2)
    make("frozen").save(tmp_path / "saved")
    tokenizer = tmp_path / "saved" / "text" / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"dog"', '"fox"'))
    with pytest.raises(InputError, match="holds another tokenizer"):
        Encoder.load(tmp_path / "saved")
    tokenizer.unlink()
    with pytest.raises(InputError, match="no tokenizer at"):
        Encoder.load(tmp_path / "saved")
