"""Generated images and their judge, with a stand-in for diffusers."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from components.benchmarks.encoding.encoder_under_test import EncoderUnderTest
from components.benchmarks.judging import diffusion
from components.benchmarks.judging.diffusion import Xl, painted
from components.benchmarks.judging.judge import Judge
from components.benchmarks.judging.tower_states import tower_states
from components.benchmarks.published import find_published
from components.captions.request import Reply, Request
from components.core.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.texts.text_tower import text_features
from tests.support.toy_context import ToyEncoder, toy_context


@dataclass
class Crayon:
    """Paints one colour: the second text."""

    name: str = "crayon"
    painted: list[tuple[str, ...]] = field(default_factory=list)

    def paint(self, under_test: EncoderUnderTest, texts: tuple[str, ...], seed: int) -> Image.Image:
        self.painted.append(texts)
        return Image.new("RGB", (8, 8), texts[1])


@dataclass
class Eye:
    """Gives an image of the colour that was asked for 5, of another 1."""

    model: str = "eye"
    asked: list[Request] = field(default_factory=list)

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        for request in requests:
            self.asked.append(request)
            with Image.open(io.BytesIO(request.pictures[0].data)) as image:
                red = image.getpixel((0, 0))[0] > 200 and image.getpixel((0, 0))[2] < 50  # type: ignore[index]
            yield [Reply(request, f'{{"explanation": "", "score": {5 if red else 1}}}')]


def test_scores_of_every_class_in_every_colour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fine_label_names.txt").write_text("apple\naquarium_fish\n")
    crayon, eye = Crayon(), Eye()
    options = {"diffusion": crayon, "judge": Judge(eye, f"sqlite:///{tmp_path}/store.db")}
    context = toy_context(tmp_path, {}, allow_partial=True, options=options)
    found = find_published("text_to_image").score(context).values
    assert len(found["text_to_image/score"]) == 16
    assert found["text_to_image/red/score"].tolist() == [5, 5]
    assert found["text_to_image/blue/score"].tolist() == [1, 1]
    assert ("This is a photo of aquarium fish", "black") in crayon.painted
    assert any("a photo of a red aquarium fish" in request.chat[-1][1] for request in eye.asked)
    # Neither painted nor asked again.
    find_published("text_to_image").score(context)
    assert (len(crayon.painted), len(eye.asked)) == (16, 16)
    assert context.notes[0] == "fine_label_names.txt: 2 found, 100 published"


def test_it_is_off_by_default_and_says_what_it_wants(tmp_path: Path) -> None:
    benchmark = find_published("text_to_image")
    with pytest.raises(InputError, match=r"fine_label_names.txt \(100 names"):
        benchmark.check_files(tmp_path)
    (tmp_path / "fine_label_names.txt").write_text("apple")
    with pytest.raises(InputError, match="extra `diffusion` and give --option diffusion="):
        benchmark.score(toy_context(tmp_path, {}))
    with pytest.raises(InputError, match="give --option judge="):
        benchmark.score(toy_context(tmp_path, {}, options={"diffusion": "sdxl"}))


def test_another_encoder_or_seed_is_painted_anew(tmp_path: Path) -> None:
    crayon, under_test = Crayon(), EncoderUnderTest("toy", ToyEncoder({}), "one")
    for one, seed in [(under_test, 0), (under_test, 0), (under_test, 1), (replace(under_test, sha256="two"), 0)]:
        painted(crayon, one, ("apple", "red"), seed, tmp_path)
    assert len(crayon.painted) == 3


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(InputError, match=r"pip install cliptune\[diffusion\]"):
        Xl("sdxl").paint(EncoderUnderTest("toy", ToyEncoder({}), "one"), ("apple", "red"), 0)


def test_tower_states_lead_to_the_features_of_the_tower(tiny_encoder: Encoder) -> None:
    tokens = tiny_encoder.tokenizer(["a red cat", "a much longer text about a blue dog"])
    states, pooled = tower_states(tiny_encoder.model, tokens, "tiny")
    width = tiny_encoder.model.token_embedding.weight.shape[1]
    assert states.shape == (*tokens.shape, width)
    torch.testing.assert_close(pooled, text_features(tiny_encoder.model, torch.from_numpy(tokens).long()))
    with pytest.raises(InputError, match="'toy' has no causal text tower"):
        tower_states(SimpleNamespace(), tokens, "toy")


class Pipeline:
    """What `Xl` uses of the pipeline of Stable Diffusion XL, of toy size; its images are made of what it was given."""

    def __init__(self, width: int, context: int) -> None:
        self.device, self.dtype = torch.device("cpu"), torch.float32
        self.text_encoder_2 = SimpleNamespace(config=SimpleNamespace(hidden_size=width))
        self.context, self.given = context, {}

    def tokenizer(self, text: str, max_length: int, **_: Any) -> Any:
        return SimpleNamespace(input_ids=torch.full((1, max_length), len(text)))

    def text_encoder(self, ids: torch.Tensor, output_hidden_states: bool) -> Any:
        state = ids[..., None].float()
        return SimpleNamespace(hidden_states=[state * 0, state, state * 0])

    def __call__(self, **given: Any) -> Any:
        self.given = given
        return SimpleNamespace(images=[Image.new("RGB", (4, 4))])


def _diffusers(monkeypatch: pytest.MonkeyPatch, pipeline: Any) -> None:
    def load(source: str, **_: Any) -> Any:
        if source != "sdxl":
            raise OSError("no such folder")
        return pipeline

    module = ModuleType("diffusers")
    module.StableDiffusionXLPipeline = SimpleNamespace(from_pretrained=load)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "diffusers", module)
    monkeypatch.setattr(diffusion.torch.cuda, "is_available", lambda: False)


def test_the_pipeline_is_given_the_sum_of_both_towers_states(
    monkeypatch: pytest.MonkeyPatch, tiny_encoder: Encoder
) -> None:
    context, width = tiny_encoder.model.context_length, tiny_encoder.model.token_embedding.weight.shape[1]
    pipeline = Pipeline(width, context)
    Pipeline.tokenizer.model_max_length = context  # type: ignore[attr-defined]
    _diffusers(monkeypatch, pipeline)
    under_test = EncoderUnderTest("tiny", tiny_encoder, "one")
    Xl("sdxl").paint(under_test, ("an apple", "red"), 0)
    tokens = pipeline.given["prompt_embeds"]
    states, pooled = tower_states(tiny_encoder.model, tiny_encoder.tokenizer(["an apple", "red"]), "tiny")
    assert tokens.shape == (1, context, 1 + width)
    assert tokens[0, :, 0].unique().tolist() == [len("an apple") + len("red")]
    torch.testing.assert_close(tokens[0, :, 1:], states.sum(dim=0))
    torch.testing.assert_close(pipeline.given["pooled_prompt_embeds"][0], pooled.sum(dim=0))
    pipeline.text_encoder_2.config.hidden_size = 1280
    with pytest.raises(InputError, match=rf"text tower {width} wide, Stable Diffusion XL wants one of 1280"):
        Xl("sdxl").paint(under_test, ("an apple", "red"), 0)
    with pytest.raises(InputError, match="--option diffusion=nowhere is no pipeline"):
        Xl("nowhere").paint(under_test, ("an apple", "red"), 0)
    with pytest.raises(InputError, match=r"'toy' has no text tower of open_clip"):
        Xl("sdxl").paint(EncoderUnderTest("toy", ToyEncoder({}), "one"), ("an apple", "red"), 0)
