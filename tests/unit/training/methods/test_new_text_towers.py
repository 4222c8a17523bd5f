"""Methods with a text tower of their own: a language model, random weights, or another encoder's tower."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.language_tower import layers as language_layers
from components.training.methods.clip_scratch import METHOD as SCRATCH
from components.training.methods.contract.losses import has_sigmoid_loss
from components.training.methods.lm_text_tower import METHOD as ADAPTED
from components.training.methods.proclip import METHOD as PROCLIP
from components.training.methods.query_adapter import METHOD as QUERY_ADAPTER
from components.training.methods.registry import find_method
from components.training.new_text_towers import with_language_tower, with_text_tower_of
from tests.conftest import TINY
from tests.unit.training.methods.examples import SCALE, as_features, picking, random_columns, unit


def _start(base: Encoder, **given: Any) -> tuple[Encoder, set[str]]:
    """The encoder that training starts from and the names of what trains."""
    method = ADAPTED.read(given)
    torch.manual_seed(0)
    encoder = method.start(base)
    return encoder, set(method.freeze(encoder.model))


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
    assert any(name.startswith("visual.") for name in trained) == (image_tower != "frozen")


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


def test_all_is_new_and_random_also_on_a_language_model(tiny_encoder: Encoder, tmp_path: Path) -> None:
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
    base = ADAPTED.read({"strategy": "frozen"}).start(tiny_encoder)
    fresh = SCRATCH.read({"image_tower": "frozen"}).start(base)
    new, old = (encoder.model.text.language.embeddings.word_embeddings.weight for encoder in (fresh, base))
    assert new.shape == old.shape
    assert not torch.equal(new, old)
    fresh.save(tmp_path / "fresh")
    assert Encoder.load(tmp_path / "fresh").tokenizer.identity == base.tokenizer.identity
    resnet = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None}
    config = tiny_encoder.sidecar.architecture | {"vision_cfg": resnet}
    base = Encoder.create("base", "tiny-resnet", config, "clip")
    with pytest.raises(InputError, match=r"'tiny-resnet' normalises by batch statistics.* cannot start at random"):
        SCRATCH.read({}).start(base)
    SCRATCH.read({"image_tower": "frozen"}).start(base)


COLUMNS = random_columns(("image", "caption", "base.image", "base.caption"))


def _losses(columns: dict[str, Any], epoch: int | None, **given: Any) -> dict[str, float]:
    method = PROCLIP.read({"epochs": 4, **given})
    features = replace(as_features(columns), epoch=epoch)
    return {name: loss.item() for name, loss in method.losses(features).items()}


def _near_base(column: str, weight: float = 1.0) -> dict[str, float]:
    """Instance and structure terms over pairs i < j, by the batch size."""
    rows, base = unit(COLUMNS[column]), unit(COLUMNS[f"base.{column}"])
    upper = np.triu_indices(len(rows), 1)
    here, there = (np.linalg.norm(one[:, None] - one, axis=2)[upper] for one in (rows, base))
    apart = np.abs(here - there)
    structure = np.where(apart < 1, apart**2 / 2, apart - 0.5).sum()
    return {"instance": weight * ((rows - base) ** 2).sum() / len(rows), "structure": weight * structure / len(rows)}


@pytest.mark.parametrize("epoch", [0, 1])
def test_in_proclips_first_phase_captions_are_drawn_to_the_bases(epoch: int) -> None:
    assert _losses(COLUMNS, epoch) == pytest.approx(_near_base("caption"))


@pytest.mark.parametrize("epoch", [2, 3, None])
def test_in_the_second_a_contrast_joins_what_holds_a_trained_image_tower(epoch: int | None) -> None:
    image, caption = unit(COLUMNS["image"]), unit(COLUMNS["caption"])
    contrast = (picking(image, caption, scale=SCALE) + picking(caption, image, scale=SCALE)) / 2
    found = _losses(COLUMNS, epoch, distil_weight=0.3)
    assert found == pytest.approx({"infonce": contrast} | _near_base("image", 0.3))
    frozen = {name: rows for name, rows in COLUMNS.items() if name != "base.image"}
    found = _losses(frozen, epoch, distil_weight=0.3)
    assert found == pytest.approx({"infonce": contrast} | _near_base("caption", 0.3))


def test_proclips_second_phase_contrasts_after_a_single_epoch(tiny_encoder: Encoder) -> None:
    assert "infonce" in _losses(COLUMNS, 0, epochs=1)
    for given, inside in (({}, set()), ({"strategy": "alignment", "alignment_layers": 1}, {"alignment_0"})):
        method = PROCLIP.read({"image_tower": "frozen", **given})
        trained = set(method.freeze(method.start(tiny_encoder).model))
        top = {name for name in trained if not name.startswith("text.language.")}
        assert top == {
            "logit_scale",
            *(f"text.projection.{place}.{kind}" for place in (0, 2) for kind in ("weight", "bias")),
        }
        assert {name.split(".")[4] for name in trained - top} == inside


TEXTS = ["a dog", "two cats on a sofa", "a red car"]


def _other(**changes: Any) -> Encoder:
    torch.manual_seed(5)
    text = TINY["text_cfg"] | {"context_length": 20}
    return Encoder.create("other", "other", TINY | {"text_cfg": text} | changes, "test")


def test_a_query_adapter_has_the_other_text_tower_and_keeps_pictures(tiny_encoder: Encoder, tmp_path: Path) -> None:
    other = _other()
    other.save(tmp_path / "other")
    adapted = QUERY_ADAPTER.read({"encoder": str(tmp_path / "other")}).start(tiny_encoder)
    assert adapted.sidecar.embed_dim == tiny_encoder.sidecar.embed_dim
    assert adapted.sidecar.context_length == 20
    assert adapted.image_tower_hash() == tiny_encoder.image_tower_hash()
    trained = QUERY_ADAPTER.read({}).freeze(adapted.model)
    assert set(trained) == {"text.text_projection.weight", "text.text_projection.bias"}
    # An affine map that is the other one's projection gives its features.
    own = _other().model.text_projection
    with torch.no_grad():
        adapted.model.text.text_projection = torch.nn.Linear(*own.shape)
        adapted.model.text.text_projection.weight.copy_(own.T)
        adapted.model.text.text_projection.bias.zero_()
    np.testing.assert_allclose(adapted.embed_texts(TEXTS), other.embed_texts(TEXTS), atol=1e-5)
    adapted.save(tmp_path / "adapted")


@pytest.mark.parametrize("built", ["query_adapter", "lm_text_tower", "clip_scratch", "base.fit"])
def test_a_new_text_tower_keeps_a_logit_bias(built: str, tmp_path: Path, language_folders: dict[str, Path]) -> None:
    base = _other(init_logit_bias=-10.0)
    base.sidecar = base.sidecar.model_copy(update={"image_tower_sha256": base.image_tower_hash()})
    model = str(language_folders["bert"])
    given = {"language_model": model} if built == "lm_text_tower" else {}
    if built == "base.fit":
        encoder = with_language_tower(base, model, "finetuned")
    else:
        method = find_method(built)
        encoder = method.read({"image_tower": "frozen"} | given).start(base)
        learns = method.read({"image_tower": "frozen", "learn_logit_scale": True} | given)
        assert "logit_bias" in learns.freeze(encoder.model)
    assert has_sigmoid_loss(encoder.model)
    encoder.save(tmp_path / "saved")
    loaded = Encoder.load(tmp_path / "saved")
    assert loaded.sidecar.logit_bias
    assert loaded.model.logit_bias.item() == -10.0


def test_towers_that_cannot_be_combined_are_refused(tiny_encoder: Encoder, language_folders: dict[str, Path]) -> None:
    for other, words in (
        (_other(quick_gelu=True), "has QuickGELU: an encoder has one activation"),
        (
            with_language_tower(_other(), str(language_folders["bert"]), "frozen"),
            "is a language model: take an encoder",
        ),
    ):
        with pytest.raises(InputError, match=words):
            with_text_tower_of(tiny_encoder, other)
