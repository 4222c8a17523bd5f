"""Captions of pairs: words, scores and tokens by hand where possible; training learns, and keeps its best epoch."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from components.core.compute.metrics import gold_ranks
from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import CLIP, Preparation
from components.encoders.under_test import EncoderUnderTest
from components.evaluation.scoring.published_context import ImageFeatures, PublishedContext
from research.experiments.parts import clip4idc
from research.experiments.parts.clip4idc import CaptionedPairs, PairEncoder, SentenceDecoder, StageSettings
from research.experiments.parts.sentences import EDGE, PAD, Vocabulary, caption_scores, split_words
from tests.support.published import refused, scored
from tests.support.toy_context import drawn_from, picture_bytes, unit
from tests.unit.data.test_sets.writing import write_files

DIM = 16


def _examples(seed: int, times: int) -> CaptionedPairs:
    """Every change of four colours `times` times; pictures are noisy, sentences the same in every split."""
    rng = np.random.default_rng(seed)
    changes = list(permutations(("red", "green", "blue", "white"), 2)) * times
    sides = [unit([drawn_from(change[side], DIM) for change in changes]) for side in (0, 1)]
    before, after = ((side + 0.1 * rng.normal(size=side.shape)).astype(np.float32)[:, None] for side in sides)
    templates = "the {} wall is {} now", "it turned from {} to {}"
    sentences = tuple(template.format(*change) for change in changes for template in templates)
    features = unit([drawn_from(sentence, DIM) for sentence in sentences])
    return CaptionedPairs(before, after, sentences, features, np.repeat(np.arange(len(changes), dtype=np.int64), 2))


TRAIN, VAL, TEST = (_examples(seed, times) for seed, times in ((0, 12), (1, 1), (2, 1)))


@pytest.fixture(autouse=True)
def one_seed() -> None:
    torch.manual_seed(0)


def test_words_are_in_lower_case_without_punctuation_and_have_numbers() -> None:
    words = ["it", "is", "n't", "red", "it", "'s", "blue-green", "3.5", "m"]
    assert split_words("  It isn’t RED, it's blue-green: 3.5 m! ") == words
    assert split_words(" . , -- ") == []
    rows = Vocabulary.of(["A car left.", "no car"]).numbers(["no car", "a new car left", ""])
    assert rows.tolist() == [[5, 3, EDGE, PAD], [2, 3, 4, EDGE], [EDGE, PAD, PAD, PAD]]


def test_tokens_are_the_feature_and_those_of_the_patches(tiny_encoder: Encoder, tmp_path: Path, png: Any) -> None:
    images = [png((255, 0, 0)), png((0, 80, 255))]
    pictures = [picture_bytes(str(row), image) for row, image in enumerate(images)]
    under_test = EncoderUnderTest("tiny", tiny_encoder, "tiny", "tower", Preparation(size=16))
    context = PublishedContext(under_test, tmp_path, image_features=ImageFeatures(tmp_path / "cache"))
    found = clip4idc.picture_tokens(context, pictures)
    assert found.shape == (2, 5, 16)
    assert found[:, 0] == pytest.approx(tiny_encoder.embed_images(images), abs=1e-5)
    tower = tiny_encoder.model.visual
    tower.output_tokens = True
    with torch.inference_mode():
        _, patches = tower(CLIP.normalise(Preparation(size=16).decode(images)))
    assert found[:, 1:] == pytest.approx((patches @ tower.proj.detach()).numpy(), abs=1e-5)


def test_the_best_epoch_by_validation_is_kept() -> None:
    module = nn.ModuleList([nn.Linear(1, 1, bias=False)])
    nn.init.zeros_(module[0].weight)
    found: list[float] = []

    def loss(split: CaptionedPairs, rows: object, chosen: object) -> Tensor:
        assert module.training == (split is TRAIN)
        if split is TRAIN:
            return -module[0].weight.sum()
        found.append(float(module[0].weight.detach()))
        return torch.tensor(abs(found[-1] - 0.05))

    clip4idc.learn(module, StageSettings("rise", 9, 72, 0.01), TRAIN, VAL, loss, 0)
    assert found == sorted(found)
    assert found[-1] > 0.08
    assert float(module[0].weight.detach()) == min(found, key=lambda value: abs(value - 0.05))


def test_scores_of_captions_and_a_failing_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # Without Java.
    references = [["the dog is gone now"], ["the cat is here now"], ["one bird flew off today"]]
    scores = caption_scores([one for (one,) in references], references)
    assert {name: float(np.mean(value)) for name, value in scores.items()} == pytest.approx(
        {"bleu_4": 1, "rouge_l": 1, "cider": 10}
    )
    (tmp_path / "java").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "java").chmod(0o755)
    with pytest.raises(InputError, match="METEOR's Java program ended without a score"):
        caption_scores(["a"], [["a"]])


def test_unseen_pairs_are_found_by_their_sentences_and_described() -> None:
    settings = replace(clip4idc.RETRIEVAL, epochs=30, batch=48, lr=1e-2)
    encoder = PairEncoder(1, DIM)
    loss = clip4idc.retrieval_loss(encoder, "cpu")
    clip4idc.learn(nn.ModuleList([encoder]), settings, TRAIN, VAL, loss, 0)
    ranks = gold_ranks(*clip4idc.embeddings(encoder, TEST, "cpu"), TEST.pair, "pessimistic")
    assert (ranks < 1).mean() > 0.9
    vocabulary = Vocabulary.of(TRAIN.sentences)
    words = unit([drawn_from(word, DIM) for word in vocabulary.words])
    decoder = SentenceDecoder(torch.from_numpy(np.pad(words, ((2, 0), (0, 0)))))
    settings = replace(clip4idc.WRITING, epochs=40, batch=36, lr=1e-2)
    loss = clip4idc.writing_loss(encoder, decoder, vocabulary, "cpu")
    clip4idc.learn(nn.ModuleList([encoder, decoder]), settings, TRAIN, VAL, loss, 0)
    written = clip4idc.captions(encoder, decoder, vocabulary, TEST, "cpu")
    assert sum(caption in TEST.sentences[2 * row : 2 * row + 2] for row, caption in enumerate(written)) >= 10


def test_greedy_sentences_end_and_the_loss_is_that_of_the_next_word_and_of_the_end() -> None:
    decoder, seen = SentenceDecoder(torch.zeros(5, DIM)).eval(), torch.zeros(1, 2, DIM)
    decoder.frequent.data = torch.tensor([0.0, 0, 0, 2, 0])
    loss = clip4idc.next_word_loss(decoder, seen, torch.tensor([[3, 1, 0]]))
    assert float(loss.detach()) == pytest.approx(math.log(math.exp(2) + 4) - 1)
    # Number 0 has the highest score of all and is no word.
    decoder.frequent.data[0] = 9
    assert decoder.greedy(seen).tolist() == [[3] * 32]
    decoder.frequent.data[1] = 5
    assert decoder.greedy(seen).tolist() == [[1]]


COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}
CHANGES = list(permutations(COLOURS, 2))
NAME = "difference_captioning"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java, which takes seconds to start, and few epochs."""
    monkeypatch.setenv("PATH", "")
    for stage in ("RETRIEVAL", "WRITING"):
        monkeypatch.setattr(clip4idc, stage, replace(getattr(clip4idc, stage), epochs=2))


def _write_rows(folder: Path, split: str, *rows: tuple[str, list[str]]) -> None:
    content = [{"img_id": image, "sentences": sentences} for image, sentences in rows]
    write_files(folder, {f"annotations/{split}.json": content})


def _write_pairs(folder: Path) -> None:
    """Six pairs in each split; the first of a split comes in two rows, and each has one more without a description."""
    for split in ("train", "val", "test"):
        rows = []
        for number, (old, new) in enumerate(CHANGES):
            rows.append((f"{split}{number}", [f"the {old} wall is {new} now .", " . "]))
            pair = {f"{split}{number}.png": COLOURS[old], f"{split}{number}_2.png": COLOURS[new]}
            write_files(folder / "resized_images", pair)
        _write_rows(folder, split, *rows, (f"{split}0", ["Nothing else has changed."]), ("train0", []))


@pytest.mark.usefixtures("quick")
def test_sentences_are_queries_and_pairs_get_captions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write_pairs(tmp_path)
    found, again, other = (scored(NAME, tmp_path, ks=(1, 7), seed=seed) for seed in (0, 0, 1))
    assert set(found.values) == {"recall_at_1", "recall_at_7", "rouge_l", "cider"}
    assert set(found.scalars) == {"bleu_4"}
    # Seven sentences, two of the first pair; seven pairs, one without description; a full stop is not a sentence.
    assert found.values["recall_at_7"] == [1] * 7
    assert found.pictures["recall_at_1"] == [0, 0, 1, 2, 3, 4, 5]
    assert len(found.values["cider"]) == 6
    assert "METEOR is skipped, because it needs Java" in capsys.readouterr().err
    assert found.values == again.values != other.values


@pytest.mark.usefixtures("quick")
def test_missing_sentences_and_damaged_pictures_are_named(tmp_path: Path) -> None:
    for split in ("test", "val", "train"):
        _write_pairs(tmp_path)
        _write_rows(tmp_path, split, ("val0", [" . "]))
        refused(NAME, tmp_path, rf"{split}\.json: no pair has a sentence", allow_partial=True)
    _write_pairs(tmp_path)
    (tmp_path / "resized_images/train0.png").write_bytes(b"no picture")
    refused(NAME, tmp_path, r"train0\.png cannot be decoded", allow_partial=True)
