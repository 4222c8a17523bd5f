"""Images of summed features: a stand-in for the pipeline, and diffusers' own classes with random weights."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from components.benchmarks.scoring.encoding.context import EncoderUnderTest
from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.text_tower import text_features
from components.experiments.parts import diffusion
from components.experiments.parts.diffusion import StableDiffusion, tower_states
from tests.conftest import TINY
from tests.support.tiny_diffusion import tiny_pipeline
from tests.support.toy_context import ToyEncoder


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(InputError, match=r"pip install cliptune\[diffusion\]"):
        StableDiffusion("sdxl").paint(EncoderUnderTest("toy", ToyEncoder({}), "one"), ("apple", "red"), 0)


def test_tower_states_lead_to_the_features_of_the_tower(tiny_encoder: Encoder) -> None:
    tokens = tiny_encoder.tokenizer(["a red cat", "a much longer text about a blue dog"])
    states, pooled = tower_states(tiny_encoder.model, tokens, "tiny")
    width = tiny_encoder.model.token_embedding.weight.shape[1]
    assert states.shape == (*tokens.shape, width)
    torch.testing.assert_close(pooled, text_features(tiny_encoder.model, torch.from_numpy(tokens).long()))
    with pytest.raises(InputError, match="'toy' has no causal text tower"):
        tower_states(SimpleNamespace(), tokens, "toy")


class Tokenizer:
    """Gives every place of a text the number of its letters."""

    pad_token_id = 0

    def __init__(self, length: int) -> None:
        self.model_max_length = length

    def __call__(self, text: str, max_length: int, **_: Any) -> Any:
        return SimpleNamespace(input_ids=torch.full((1, max_length), len(text)))


class Given(NamedTuple):
    """What a text tower of transformers gives."""

    text_embeds: torch.Tensor
    hidden_states: list[torch.Tensor]


class Tower:
    """States of one number, that of the tokens, before its last block."""

    def __init__(self, width: int, dim: int) -> None:
        self.config = SimpleNamespace(hidden_size=width, projection_dim=dim)

    def __call__(self, ids: torch.Tensor, output_hidden_states: bool) -> Any:
        state = ids[..., None].float()
        return Given(10 * state[:, 0], [state * 0, state, state * 0])


class Pipeline:
    """What `StableDiffusion` uses of the pipeline of Stable Diffusion XL, of toy size."""

    def __init__(self, length: int, width: int, dim: int) -> None:
        self.device, self.dtype = torch.device("cpu"), torch.float32
        self.tokenizer = self.tokenizer_2 = Tokenizer(length)
        self.text_encoder, self.text_encoder_2 = Tower(width, dim), Tower(width, dim)
        self.given: dict[str, Any] = {}

    def __call__(self, **given: Any) -> Any:
        self.given = given
        return SimpleNamespace(images=[Image.new("RGB", (4, 4))])


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch, tiny_encoder: Encoder) -> Pipeline:
    """A stand-in that diffusers, a stand-in too, loads as `sdxl`; the tiny encoder fits into both its places."""
    model = tiny_encoder.model
    made = Pipeline(model.context_length, model.token_embedding.embedding_dim, model.text_projection.shape[1])

    def load(source: str, **_: Any) -> Any:
        if source != "sdxl":
            raise OSError("no such folder")
        return made

    module = ModuleType("diffusers")
    module.StableDiffusionXLPipeline = SimpleNamespace(from_pretrained=load)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "diffusers", module)
    monkeypatch.setattr(diffusion.torch.cuda, "is_available", lambda: False)
    return made


TEXTS = ("an apple", "red")
LETTERS = [float(len("an apple") + len("red"))]


def test_in_the_second_place_the_encoder_gives_the_last_states_and_what_is_pooled(
    pipeline: Pipeline, tiny_encoder: Encoder
) -> None:
    StableDiffusion("sdxl").paint(EncoderUnderTest("tiny", tiny_encoder, "one"), TEXTS, 0)
    tokens = pipeline.given["prompt_embeds"]
    states, pooled = tower_states(tiny_encoder.model, tiny_encoder.tokenizer(TEXTS), "tiny")
    assert tokens[0, :, 0].unique().tolist() == LETTERS
    torch.testing.assert_close(tokens[0, :, 1:], states.sum(dim=0))
    torch.testing.assert_close(pipeline.given["pooled_prompt_embeds"][0], pooled.sum(dim=0))


def test_in_the_first_place_it_gives_the_first_states_alone(pipeline: Pipeline, tiny_encoder: Encoder) -> None:
    StableDiffusion("sdxl", "first").paint(EncoderUnderTest("tiny", tiny_encoder, "one"), TEXTS, 0)
    tokens = pipeline.given["prompt_embeds"]
    states, _ = tower_states(tiny_encoder.model, tiny_encoder.tokenizer(TEXTS), "tiny")
    assert tokens[0, :, -1].unique().tolist() == LETTERS
    torch.testing.assert_close(tokens[0, :, :-1], states.sum(dim=0))
    assert pipeline.given["pooled_prompt_embeds"].tolist() == [[10 * LETTERS[0]]]


def test_images_of_either_place_are_kept_apart() -> None:
    assert StableDiffusion("sdxl").name != StableDiffusion("sdxl", "first").name


@pytest.mark.parametrize(("tower", "model"), [("second", "ViT-bigG-14"), ("first", "ViT-L-14")])
def test_an_encoder_that_does_not_fit_is_told_which_would(
    pipeline: Pipeline, tiny_encoder: Encoder, tower: str, model: str
) -> None:
    under_test = EncoderUnderTest("tiny", tiny_encoder, "one")
    with pytest.raises(InputError, match=rf"'toy' has no text tower of open_clip: choose a {model}"):
        StableDiffusion("sdxl", tower).paint(EncoderUnderTest("toy", ToyEncoder({}), "one"), TEXTS, 0)
    pipeline.text_encoder = pipeline.text_encoder_2 = Tower(1280, 16)
    with pytest.raises(InputError, match=rf"24 tokens, width 32 .* the {tower} .* has 24, 1280 and 16: .* {model}"):
        StableDiffusion("sdxl", tower).paint(under_test, TEXTS, 0)
    with pytest.raises(InputError, match="--benchmark-option diffusion=nowhere is not a pipeline"):
        StableDiffusion("nowhere", tower).paint(under_test, TEXTS, 0)


def test_the_second_place_also_wants_pooled_features_of_its_size(pipeline: Pipeline, tiny_encoder: Encoder) -> None:
    pipeline.text_encoder = pipeline.text_encoder_2 = Tower(32, 1280)
    under_test = EncoderUnderTest("tiny", tiny_encoder, "one")
    StableDiffusion("sdxl", "first").paint(under_test, TEXTS, 0)
    with pytest.raises(InputError, match=r"dimension 16; the second .* has 24, 32 and 1280"):
        StableDiffusion("sdxl").paint(under_test, TEXTS, 0)


@pytest.mark.slow
class TestRealPipeline:
    """The whole path through diffusers' own classes: with the pipeline's own tower as encoder, nothing may change."""

    STEPS = 2

    @pytest.fixture(scope="class")
    def encoders(self) -> dict[str, Encoder]:
        """The text towers of the pipeline, by place."""
        torch.manual_seed(0)
        wider = TINY | {"text_cfg": TINY["text_cfg"] | {"width": 48}}
        return {
            "first": Encoder.create("first", "tiny", wider, "test"),
            "second": Encoder.create("second", "tiny", TINY, "test"),
        }

    @pytest.fixture(scope="class")
    def folder(self, encoders: dict[str, Encoder], tmp_path_factory: pytest.TempPathFactory) -> Path:
        """The pipeline's folder."""
        pytest.importorskip("diffusers", reason="extra `diffusion` is not installed: pip install cliptune[diffusion]")
        return tiny_pipeline(tmp_path_factory.mktemp("sdxl"), encoders["first"].model, encoders["second"].model)

    @pytest.mark.parametrize("tower", ["first", "second"])
    def test_the_towers_own_weights_paint_what_the_pipeline_paints(
        self, folder: Path, encoders: dict[str, Encoder], tower: str
    ) -> None:
        under_test, text = EncoderUnderTest(tower, encoders[tower], tower), "a photo of a small apple"
        painter = StableDiffusion(str(folder), tower, self.STEPS)
        image = painter.paint(under_test, (text,), 3)
        pipeline = painter._loaded()
        seeded = torch.Generator().manual_seed(3)
        expected = pipeline(text, num_inference_steps=self.STEPS, guidance_scale=5.0, generator=seeded).images[0]
        assert image.size == expected.size
        np.testing.assert_allclose(np.asarray(image, float), np.asarray(expected, float), atol=1)
        other = painter.paint(under_test, (text, "red"), 3)
        assert np.abs(np.asarray(other, float) - np.asarray(image, float)).max() > 5

    @pytest.mark.parametrize("tower", ["first", "second"])
    def test_the_towers_own_weights_give_the_embeddings_that_the_pipeline_gives(
        self, folder: Path, encoders: dict[str, Encoder], tower: str
    ) -> None:
        pipeline, text = StableDiffusion(str(folder), tower)._loaded(), "a photo of a small apple"
        tokens, pooled = diffusion._states(pipeline, EncoderUnderTest(tower, encoders[tower], tower), text, tower)
        expected, _, summed, _ = pipeline.encode_prompt(text, do_classifier_free_guidance=False)
        torch.testing.assert_close(tokens, expected.detach(), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(pooled, summed.detach(), atol=1e-5, rtol=1e-4)

    def test_an_encoder_of_the_other_place_is_refused(self, folder: Path, encoders: dict[str, Encoder]) -> None:
        with pytest.raises(InputError, match=r"24 tokens, width 48.* has 24, 32 and 16: choose a ViT-bigG-14"):
            StableDiffusion(str(folder), "second", self.STEPS).paint(
                EncoderUnderTest("first", encoders["first"], "one"), TEXTS, 0
            )

    def test_a_folder_that_is_no_pipeline_is_one_line(self, folder: Path, encoders: dict[str, Encoder]) -> None:
        with pytest.raises(InputError, match=r"--benchmark-option diffusion=.*unet is not a pipeline"):
            StableDiffusion(str(folder / "unet")).paint(EncoderUnderTest("one", encoders["second"], "one"), TEXTS, 0)
