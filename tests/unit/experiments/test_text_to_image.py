"""Images of summed features by diffusers' own classes, and scores of generated images with a stand-in for the model."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from components.benchmarks.published import find_published
from components.benchmarks.scoring.encoding.context import EncoderUnderTest
from components.captions.prompting.request import Request
from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import Preparation
from components.encoders.adapter.text_tower import text_features
from components.experiments.parts.diffusion import TOWERS, StableDiffusion, tower_states
from tests.conftest import TINY
from tests.support.tiny_diffusion import tiny_pipeline
from tests.support.toy_context import ToyEncoder, toy_context
from tests.unit.experiments.conftest import ScriptedModel


@dataclass
class Crayon:
    """Paints one colour: the second text."""

    name: str = "crayon"
    painted: list[tuple[str, ...]] = field(default_factory=list)

    def paint(self, under_test: EncoderUnderTest, texts: tuple[str, ...], seed: int) -> Image.Image:
        self.painted.append(texts)
        return Image.new("RGB", (8, 8), texts[1])


def _eye() -> ScriptedModel:
    """Scores a red image 5, another one 1."""

    def reply(request: Request) -> str:
        with Image.open(io.BytesIO(request.pictures[0].data)) as image:
            red, _, blue = np.asarray(image)[0, 0].tolist()
        return f'{{"explanation": "", "score": {5 if red > 200 and blue < 50 else 1}}}'

    return ScriptedModel(reply)


@pytest.fixture(autouse=True)
def classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder with the names of two classes is the current one: images are cached there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fine_label_names.txt").write_text("apple\naquarium_fish\n")


def test_scores_of_every_class_in_every_colour(tmp_path: Path) -> None:
    crayon, eye = Crayon(), _eye()
    options = {"diffusion": crayon, "judge": eye.judge(tmp_path)}
    context = toy_context(tmp_path, {}, allow_partial=True, options=options)
    found = find_published("text_to_image").score(context).values
    assert len(found["text_to_image/score"]) == 16
    assert found["text_to_image/red/score"].tolist() == [5, 5]
    assert found["text_to_image/blue/score"].tolist() == [1, 1]
    assert ("This is a photo of aquarium fish", "black") in crayon.painted
    assert any("a photo of a red aquarium fish" in request.chat[-1][1] for request in eye.asked)
    # Images and answers come from their caches.
    find_published("text_to_image").score(context)
    assert (len(crayon.painted), len(eye.asked)) == (16, 16)
    assert context.notes[0] == "fine_label_names.txt: 2 found, 100 published"


def test_images_of_the_users_texts_are_listed_and_not_compared_with_the_published_score(tmp_path: Path) -> None:
    texts = tmp_path / "texts.tsv"
    texts.write_text("a photo of a dog\tred\na house\tblue\n")
    options = {"diffusion": Crayon(), "judge": _eye().judge(tmp_path), "texts": texts}
    context = toy_context(tmp_path, {}, options=options)
    found = find_published("text_to_image").score(context).values
    assert {name: values.tolist() for name, values in found.items()} == {"text_to_image/score": [5, 1]}
    assert context.notes == ["texts.tsv: 2 texts of the user, not the published 800"]
    (dog, house) = context.lists["generated_images"]
    assert (dog[:2], house[:2]) == (("a photo of a dog", "red"), ("a house", "blue"))
    with Image.open(house[2]) as image:
        assert image.getpixel((0, 0)) == (0, 0, 255)
    for content, message in (("a dog\n", "line 'a dog' does not have a prompt"), ("", "texts.tsv is empty")):
        texts.write_text(content)
        with pytest.raises(InputError, match=message):
            find_published("text_to_image").score(context)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("text_to_image", {}, "extra `diffusion` and give --benchmark-option diffusion="),
        ("text_to_image", {"diffusion": "sdxl"}, "give --benchmark-option judge="),
        ("text_to_image", {"diffusion": "sdxl", "diffusion_tower": "third"}, "tower 'third' is unknown.*second, first"),
        ("text_to_image_clip_score", {"diffusion": Crayon(), "scorer": "ViT-B-32"}, "scorer=ViT-B-32 names no weights"),
        ("text_to_image_clip_score", {"diffusion": Crayon(), "scorer": "ViT-B-32:nothing"},
         "scorer=ViT-B-32:nothing: weights 'nothing' of ViT-B-32 are unknown"),
    ],
)  # fmt: skip
def test_missing_options_are_named_before_any_image_is_made(
    tmp_path: Path, name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        find_published(name).score(toy_context(tmp_path, {}, allow_partial=True, options=options))
    assert not getattr(options.get("diffusion"), "painted", [])


def test_clip_score_is_by_another_encoder_between_image_and_prompt(tmp_path: Path) -> None:
    # A picture's feature is its colour: red (1, 0, 0), blue (0, 0, 1); cosines of 0.6 and below 0.
    prompts = {"This is a photo of a red apple": (0.6, 0.8, 0), "This is a photo of a blue apple": (0.6, 0, -0.8)}
    scorer = EncoderUnderTest("scorer", ToyEncoder(prompts), "scorer", "scorer tower", Preparation(size=8))
    crayon = Crayon()
    context = toy_context(tmp_path, {}, allow_partial=True, options={"diffusion": crayon, "scorer": scorer})
    found = find_published("text_to_image_clip_score").score(context).values
    assert found["text_to_image_clip_score/red/clip_score"][0] == pytest.approx(2.5 * 0.6)
    assert found["text_to_image_clip_score/blue/clip_score"][0] == 0
    assert len(found["text_to_image_clip_score/clip_score"]) == len(crayon.painted) == 16
    # The judge's benchmark shows the same images.
    context.options = {"diffusion": crayon, "judge": _eye().judge(tmp_path)}
    find_published("text_to_image").score(context)
    assert len(crayon.painted) == 16


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
