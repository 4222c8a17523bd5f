"""Scores of generated images: a judge's and CLIPScore, with a stand-in for the diffusion model."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from components.benchmarks.published import find_published
from components.benchmarks.scoring.encoding.context import EncoderUnderTest
from components.captions.prompting.request import Request
from components.core.system.errors import InputError
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
    scorer = EncoderUnderTest("scorer", ToyEncoder(prompts), "scorer", "scorer tower", 8)
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
