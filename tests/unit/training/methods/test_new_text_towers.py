"""Methods with a text tower of their own: a pretrained language model, or random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.language_tower import layers as language_layers
from components.training.methods.clip_scratch import METHOD as SCRATCH
from components.training.methods.lm_text_tower import METHOD as ADAPTED
from tests.conftest import TINY


def _start(base: Encoder, **given: Any) -> tuple[Encoder, set[str]]:
    """The encoder that training starts from and the names of what trains."""
    method = ADAPTED.read(given)
    torch.manual_seed(0)
    encoder = method.start(base)
    return encoder, set(method.freeze(encoder.model))


def _places(names: set[str]) -> set[str]:
    """The parts of the encoder that hold these parameters."""
    return {".".join(name.split(".")[:2]) if name.startswith("text.") else name.split(".")[0] for name in names}


@pytest.mark.parametrize("strategy", ["finetuned", "frozen", "bottleneck", "alignment"])
def test_each_strategy_trains_its_part_of_the_language_model(tiny_encoder: Encoder, strategy: str) -> None:
    encoder, trained = _start(tiny_encoder, strategy=strategy, alignment_layers=1, image_tower="frozen")
    language = {name for name, _ in encoder.model.named_parameters() if name.startswith("text.language.")}
    parts = {
        "finetuned": language,
        "frozen": set(),
        "bottleneck": {name for name in language if ".adapter." in name},
        "alignment": {name for name in language if ".alignment_0." in name},
    }
    assert {name for name in trained if name.startswith("text.language.")} == parts[strategy]
    assert _places(trained) - {"text.language"} == {"text.projection", "logit_scale"}
    assert len(parts["bottleneck"]) == (6 * 4 if strategy == "bottleneck" else 0)


@pytest.mark.parametrize("layers", range(0, 9, 2))
def test_as_many_layers_align_as_table_1d_has(tiny_encoder: Encoder, layers: int) -> None:
    encoder, trained = _start(tiny_encoder, strategy="alignment", alignment_layers=layers, image_tower="frozen")
    added = {name.split(".alignment_")[1].split(".")[0] for name in trained if ".alignment_" in name}
    assert added == {str(number) for number in range(layers)}
    assert len(language_layers(encoder.model.text.language)) == 6 + layers


def test_adapters_with_a_norm_compute_it_first_and_come_back(tiny_encoder: Encoder, tmp_path: Path) -> None:
    encoder, trained = _start(tiny_encoder, strategy="bottleneck", adapter_norm=True, image_tower="frozen")
    adapter = next(module for name, module in encoder.model.named_modules() if name.endswith(".adapter"))
    assert len([name for name in trained if ".adapter.norm." in name]) == 6 * 2
    states = 3 + 5 * torch.randn(4, adapter.down.in_features)
    assert torch.equal(adapter(states), states)
    torch.nn.init.normal_(adapter.up.weight)
    torch.testing.assert_close(
        adapter(7 * states + 2) - (7 * states + 2), adapter(states) - states, rtol=1e-3, atol=1e-3
    )
    encoder.save(tmp_path)
    assert np.array_equal(Encoder.load(tmp_path).embed_texts(["a dog"]), encoder.embed_texts(["a dog"]))


@pytest.mark.parametrize("image_tower", ["frozen", "trained", "random"])
def test_image_towers(tiny_encoder: Encoder, image_tower: str) -> None:
    pixels = torch.rand(2, 3, 16, 16)
    before = tiny_encoder.model.encode_image(pixels)
    encoder, trained = _start(tiny_encoder, strategy="frozen", image_tower=image_tower)
    same = torch.allclose(encoder.model.encode_image(pixels), before, atol=1e-5)
    assert same == (image_tower != "random")
    assert ("visual" in _places(trained)) == (image_tower != "frozen")


@pytest.mark.parametrize("image_tower", ["frozen", "trained"])
def test_a_tower_of_timms_keeps_its_normalisation_of_pixels(image_tower: str) -> None:
    vision = {"timm_model_name": "test_vit", "timm_pool": "", "image_size": 160}
    statistics = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
    base = Encoder.create("base", "timm", {**TINY, "embed_dim": 16, "vision_cfg": vision}, "timm:test_vit", statistics)
    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (2, 3, 160, 160), dtype=np.uint8))
    expected = base.embed_pixels(pixels)
    encoder, trained = _start(base, strategy="frozen", image_tower=image_tower)
    np.testing.assert_array_equal(encoder.embed_pixels(pixels), expected)
    assert any(name.startswith("visual.trunk.") for name in trained) == (image_tower == "trained")


def test_settings_are_those_of_the_adapted_models() -> None:
    defaults = vars(ADAPTED.read({}).settings)
    assert vars(SCRATCH.read({}).settings).items() <= defaults.items()


def test_everything_is_new_and_everything_trains(tiny_encoder: Encoder) -> None:
    before = {name: weights.clone() for name, weights in tiny_encoder.model.state_dict().items()}
    tiny_encoder.model.logit_scale.data.fill_(4.0)
    method = SCRATCH.read({})
    torch.manual_seed(9)
    encoder = method.start(tiny_encoder)
    after = encoder.model.state_dict()
    assert {name: weights.shape for name, weights in after.items()} == {n: w.shape for n, w in before.items()}
    assert not any(weights.ndim > 1 and torch.equal(weights, before[name]) for name, weights in after.items())
    assert float(encoder.model.logit_scale.detach()) == pytest.approx(2.6593, abs=1e-4)
    assert set(method.freeze(encoder.model)) == set(after)


def test_a_base_with_a_language_model_can_start_at_random(tmp_path: Path, tiny_encoder: Encoder) -> None:
    base = ADAPTED.read({"strategy": "frozen"}).start(tiny_encoder)
    fresh = SCRATCH.read({"image_tower": "frozen"}).start(base)
    new, old = (encoder.model.text.language.embeddings.word_embeddings.weight for encoder in (fresh, base))
    assert new.shape == old.shape
    assert not torch.equal(new, old)
    fresh.save(tmp_path / "fresh")
    assert Encoder.load(tmp_path / "fresh").tokenizer.identity == base.tokenizer.identity


def test_a_tower_of_batch_statistics_starts_only_from_published_weights(tiny_encoder: Encoder) -> None:
    resnet = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None}
    config = tiny_encoder.sidecar.architecture | {"vision_cfg": resnet}
    base = Encoder.create("base", "tiny-resnet", config, "clip")
    with pytest.raises(InputError, match=r"'tiny-resnet' normalises by batch statistics.* cannot start at random"):
        SCRATCH.read({}).start(base)
    SCRATCH.read({"image_tower": "frozen"}).start(base)
