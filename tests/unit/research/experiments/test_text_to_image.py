"""Images of summed features by an encoder's tower, and scores of generated images with a stand-in for the model."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from PIL import Image
from transformers import CLIPTextConfig, CLIPTextModel

from components.captions.prompting.request import PICTURE
from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import Preparation
from components.encoders.under_test import EncoderUnderTest
from research.experiments.parts.diffusion import StableDiffusion
from research.experiments.parts.judge import Judge
from research.experiments.text_to_image import read_score
from tests.support.fake_engine import FakeEngine
from tests.support.published import refused, scored
from tests.support.toy_context import ToyEncoder

NAME, CLIP_SCORE = "text_to_image", "text_to_image_clip_score"
TOY = EncoderUnderTest("toy", ToyEncoder({}), "one")


def _crayon(painted: list[tuple[str, ...]]) -> Any:
    """Paints one colour, the second text, and notes the texts."""
    paint = lambda _, texts, seed: painted.append(texts) or Image.new("RGB", (8, 8), texts[1])  # noqa: E731
    return SimpleNamespace(name="crayon", paint=paint)


def _eye() -> FakeEngine:
    """Scores a red image 5, another one 1."""
    return FakeEngine(lambda request: f'{{"score": {5 if " red" in request.chat[-1][1][-60:] else 1}}}')


@pytest.fixture(autouse=True)
def classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder with the names of two classes is the current one: images are cached there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fine_label_names.txt").write_text("apple\naquarium_fish\n")


def test_both_scores_of_every_class_in_every_colour(tmp_path: Path) -> None:
    painted: list[tuple[str, ...]] = []
    crayon, eye = _crayon(painted), _eye()
    found = scored(
        NAME, tmp_path, options={"diffusion": crayon, "judge": Judge(eye, f"sqlite:///{tmp_path}/store.db")}
    ).values
    assert len(found["score"]) == 16
    assert (found["colour_red/score"], found["colour_blue/score"]) == ([5, 5], [1, 1])
    assert ("This is a photo of aquarium fish", "black") in painted
    asked = next(request.chat[-1][1] for request in eye.asked if "photo of a red aquarium fish" in request.chat[-1][1])
    assert asked.startswith("You are an expert image judge. Please judge how well the corresponding generated image")
    assert asked.endswith(f"image of the following: This is a photo of a red aquarium fish\nImage: {PICTURE}\n")
    prompts = {"This is a photo of a red apple": (0.6, 0.8, 0), "This is a photo of a blue apple": (0.6, 0, -0.8)}
    scorer = EncoderUnderTest("scorer", ToyEncoder(prompts), "scorer", "scorer tower", Preparation(size=8))
    found = scored(CLIP_SCORE, tmp_path, options={"diffusion": crayon, "scorer": scorer}).values
    assert found["colour_red/clip_score"][0] == pytest.approx(2.5 * 0.6)
    assert found["colour_blue/clip_score"][0] == 0
    assert (len(painted), len(eye.asked)) == (16, 16), "images and answers come from their caches"


def test_the_users_texts_and_wrong_options_and_answers(tmp_path: Path) -> None:
    texts = tmp_path / "texts.tsv"
    texts.write_text("a photo of a dog\tred\na house\tblue\n")
    good = {"diffusion": _crayon([]), "judge": Judge(_eye(), f"sqlite:///{tmp_path}/store.db"), "texts": texts}
    found = scored(NAME, tmp_path, options=good)
    assert found.values == {"score": [5, 1]}
    assert [row[:2] for row in found.context.lists["generated_images"]] == [
        ("a photo of a dog", "red"),
        ("a house", "blue"),
    ]
    texts.write_text("a dog\tred\n\tblue\n")
    for name, options, message in (
        (NAME, good, r"texts\.tsv: each line needs a prompt, a tab"),
        (NAME, {"diffusion": "sdxl"}, "give --benchmark-option judge="),
        (CLIP_SCORE, {"scorer": TOY}, "give --benchmark-option diffusion="),
        (CLIP_SCORE, {"scorer": "ViT-B-32:no"}, "--benchmark-option scorer.*weights 'no' of"),
        (CLIP_SCORE, {"diffusion": "sdxl", "diffusion_tower": "third", "scorer": TOY}, "'third' is unknown.*second"),
    ):
        refused(name, tmp_path, message, allow_partial=True, options=options)
    assert read_score('{"score": 1} ```{"explanation": "a {blue} cat", "score": 4.5}```') == 4.5, "the last one counts"
    for answer in ('{"score": 6}', '{"score": 0}', '{"score": "5"}', '{"score": 1e9}', '{"a":' * 3000):
        assert read_score(answer) is None, answer[:20]


def test_the_sum_of_both_texts_is_painted_with_the_encoders_tower(tiny_encoder: Encoder) -> None:
    sizes = {"vocab_size": 100, "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
    first = CLIPTextModel(CLIPTextConfig(**sizes, num_hidden_layers=2, max_position_embeddings=24)).eval()
    pipeline = MagicMock(device="cpu", dtype=torch.float32, text_encoder=first)
    pipeline.tokenizer.return_value.input_ids = torch.ones(1, 24).long()
    pipeline.tokenizer_2.configure_mock(model_max_length=24, pad_token_id=0)
    pipeline.text_encoder_2.config.configure_mock(hidden_size=32, projection_dim=16)
    tested, texts = EncoderUnderTest("tiny", tiny_encoder, "tiny"), ("a photo of a small apple", "red")
    painter, model = StableDiffusion("sdxl"), tiny_encoder.model
    painter.pipeline = pipeline
    painter.paint(tested, texts, 3)
    given = pipeline.call_args.kwargs
    ids = torch.from_numpy(tiny_encoder.tokenizer(texts)).long()
    states = model.token_embedding(ids) + model.positional_embedding
    states = model.transformer.resblocks[0](states, attn_mask=model.attn_mask).sum(dim=0)
    torch.testing.assert_close(given["prompt_embeds"][0, :, 8:], states)
    pooled = tiny_encoder.raw_texts(texts).sum(axis=0)
    assert given["pooled_prompt_embeds"][0].numpy() == pytest.approx(pooled, abs=1e-5)
    assert given["generator"].initial_seed() == 3
    pipeline.text_encoder_2.config.hidden_size = 48
    with pytest.raises(InputError, match=r"24 tokens, width 32.* the second .* has 24, 48 and 16: choose a ViT-bigG"):
        painter.paint(tested, texts, 3)
