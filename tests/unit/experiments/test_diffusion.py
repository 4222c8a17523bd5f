"""Images of summed features, by diffusers' own classes with random weights."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from components.benchmarks.scoring.encoding.context import EncoderUnderTest
from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.text_tower import text_features
from components.experiments.parts.diffusion import TOWERS, StableDiffusion, tower_states
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

    @pytest.mark.parametrize(
        ("tower", "other", "message"),
        [
            ("second", "first", r"24 tokens, width 48.* the second .* has 24, 32 and 16: choose a ViT-bigG-14"),
            ("first", "second", r"24 tokens, width 32.* the first .* has 24, 48 and 16: choose a ViT-L-14"),
        ],
    )
    def test_other_encoders_and_folders_are_refused(
        self, folder: Path, encoders: dict[str, Encoder], tower: str, other: str, message: str
    ) -> None:
        painter = StableDiffusion(str(folder), tower, self.STEPS)
        with pytest.raises(InputError, match=message):
            painter.paint(EncoderUnderTest(other, encoders[other], "one"), ("an apple", "red"), 0)
        with pytest.raises(InputError, match=rf"'toy' has no text tower of open_clip: choose a {TOWERS[tower]}"):
            painter.paint(EncoderUnderTest("toy", ToyEncoder({}), "one"), ("an apple", "red"), 0)
        painter = StableDiffusion(str(folder / "unet"), tower)
        with pytest.raises(InputError, match=r"--benchmark-option diffusion=.*unet is not a pipeline"):
            painter.paint(EncoderUnderTest("one", encoders[tower], "one"), ("a",), 0)
