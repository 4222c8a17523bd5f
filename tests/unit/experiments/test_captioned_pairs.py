"""Captions of pairs: words, scores and tokens by hand where possible; training learns, and keeps its best epoch."""

from __future__ import annotations

import math
import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from components.benchmarks.scoring.encoding.context import EncoderUnderTest
from components.benchmarks.scoring.encoding.published_context import ImageFeatures, PublishedContext
from components.core.compute.metrics import gold_ranks
from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import CLIP, Preparation
from components.experiments.parts import clip4idc_training as training
from components.experiments.parts.captioned_pairs import (
    EDGE,
    PAD,
    PicturePair,
    Vocabulary,
    caption_scores,
    has_java,
    scorers,
    split_words,
)
from components.experiments.parts.clip4idc_model import PairEncoder, SentenceDecoder, captioned_pairs, picture_tokens
from components.experiments.parts.clip4idc_training import StageSettings, learn
from tests.support.difference_examples import colour_examples, first_words
from tests.support.toy_context import picture_bytes, toy_context

needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="METEOR and the tokenizer are Java programs")
SENTENCES = (
    "The two people aren't in the parking-lot any more.",
    "there is a white car by the building; it wasn't there before!",
    "The man's jacket is 2 meters away, and he can't see it?",
    "nothing has changed .",
    "they've gone (both of them) -- she'll be back...",
    "a person in a t-shirt cannot be seen , he left",
)


def test_words_are_in_lower_case_without_punctuation() -> None:
    words = ["it", "is", "n't", "red", "it", "'s", "blue-green", "3.5", "m"]
    assert split_words("  It isn’t RED, it's blue-green: 3.5 m! ") == words
    assert split_words(" . , -- ") == []


@needs_java
def test_words_are_those_of_the_tokenizer_of_image_captioning() -> None:
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer  # type: ignore[import-untyped]

    theirs = PTBTokenizer().tokenize({row: [{"caption": one}] for row, one in enumerate(SENTENCES)})
    # It writes brackets as -lrb- and strips them only in capitals.
    expected = [[word for word in theirs[row][0].split() if word not in ("-lrb-", "-rrb-")] for row in range(6)]
    assert [split_words(one) for one in SENTENCES] == expected


def test_numbers_are_closed_and_filled_up_and_give_the_sentence_back() -> None:
    vocabulary = Vocabulary.of(["A car left.", "no car"])
    assert vocabulary.words == ("a", "car", "left", "no")
    assert len(vocabulary) == 6
    rows = vocabulary.numbers(["no car", "a new car left", ""])
    assert rows.tolist() == [[5, 3, EDGE, PAD], [2, 3, 4, EDGE], [EDGE, PAD, PAD, PAD]]
    assert [vocabulary.sentence(row) for row in rows.tolist()] == ["no car", "a car left", ""]


def test_cider_counts_rare_words_and_is_ten_for_the_reference_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # Without Java.
    references = [["the dog is gone now"], ["the cat is here now"], ["one bird flew off today"]]
    same = caption_scores([one for (one,) in references], references)
    assert same.cider == pytest.approx([10, 10, 10])
    assert same.rouge_l.tolist() == [1, 1, 1]
    assert (same.bleu_4, same.meteor) == (pytest.approx(1), None)
    found = caption_scores(["the now", "the cat is here now", ""], references)
    assert 0 < found.cider[0] < 1
    assert (found.cider[2], found.rouge_l[2]) == (0, 0)


@pytest.mark.slow
@needs_java
def test_meteor_is_one_for_the_reference_itself() -> None:
    assert has_java()
    references = [["the dog is gone"], ["a man walks in"]]
    assert caption_scores([one for (one,) in references], references).meteor == pytest.approx(1.0)


def test_a_failing_java_a_missing_package_and_missing_references(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "java"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="METEOR's Java program ended without a score"):
        caption_scores(["a"], [["a"]])
    with pytest.raises(ValueError, match="needs a reference"):
        caption_scores(["a", "b"], [["a"], []])
    for module in [name for name in sys.modules if name.startswith("pycocoevalcap")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "pycocoevalcap", None)
    with pytest.raises(InputError, match=r"pip install cliptune\[captioning\]"):
        scorers()


def _context(encoder: Encoder, folder: Path) -> PublishedContext:
    under_test = EncoderUnderTest("tiny", encoder, "tiny", "tower", Preparation(size=16))
    return PublishedContext(under_test, folder, image_features=ImageFeatures(folder / "cache"))


def test_tokens_are_the_feature_and_those_of_the_patches(tiny_encoder: Encoder, tmp_path: Path, png: Any) -> None:
    images = [png((255, 0, 0)), png((0, 80, 255))]
    pictures = [picture_bytes(str(row), image) for row, image in enumerate(images)]
    found = picture_tokens(_context(tiny_encoder, tmp_path), pictures)
    # Two by two patches of the tower are fewer than the grid's places.
    assert found.shape == (2, 5, 16)
    assert found[:, 0] == pytest.approx(tiny_encoder.embed_images(images), abs=1e-5)
    tower = tiny_encoder.model.visual
    tower.output_tokens = True
    with torch.inference_mode():
        _, patches = tower(CLIP.normalise(Preparation(size=16).decode(images)))
    assert found[:, 1:] == pytest.approx((patches @ tower.proj.detach()).numpy(), abs=1e-5)


def test_other_towers_give_one_token_and_text_encoders_none(tmp_path: Path, png: Any) -> None:
    context, pictures = toy_context(tmp_path, {}), [picture_bytes("a", png((255, 0, 0)))]
    assert picture_tokens(context, pictures).tolist() == [[[1, 0, 0]]]
    blind = EncoderUnderTest("blind", context.under_test.encoder, "blind")
    with pytest.raises(InputError, match="'blind' has no image tower"):
        picture_tokens(PublishedContext(blind, tmp_path), pictures)


def test_examples_keep_the_order_of_pictures_and_the_pair_of_each_sentence(tmp_path: Path, png: Any) -> None:
    axes = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    red, green, blue = (picture_bytes(str(axis), png(tuple(255 * part for part in axis))) for axis in axes)
    pairs = [PicturePair(red, green, ("one", "two")), PicturePair(blue, red, ()), PicturePair(green, blue, ("three",))]
    found = captioned_pairs(toy_context(tmp_path, dict(zip(("one", "two", "three"), axes, strict=True))), pairs)
    assert found.before[:, 0].tolist() == [axes[0], axes[2], axes[1]]
    assert found.after[:, 0].tolist() == [axes[1], axes[0], axes[2]]
    assert (found.sentences, found.pair.tolist()) == (("one", "two", "three"), [0, 0, 2])
    assert found.features.tolist() == axes


TRAIN, VAL, TEST = (colour_examples(seed, times) for seed, times in ((0, 12), (1, 1), (2, 1)))


@pytest.fixture(autouse=True)
def one_seed() -> None:
    torch.manual_seed(0)


def _recall_at_1(encoder: PairEncoder) -> float:
    queries = training.text_embeddings(encoder, TEST.features, "cpu")
    pairs = training.pair_embeddings(encoder, TEST, "cpu")
    return float((gold_ranks(queries, pairs, TEST.pair, "pessimistic") < 1).mean())


def test_pairs_and_sentences_learn_to_find_each_other() -> None:
    before = _recall_at_1(PairEncoder(1, 16).eval())
    encoder = training.train_retrieval(TRAIN, VAL, 0, "cpu", replace(training.RETRIEVAL, epochs=30, batch=48, lr=1e-2))
    # Chance is one pair of twelve.
    assert before < 0.2
    assert _recall_at_1(encoder) > 0.9


def test_captions_of_unseen_pairs_are_better_than_the_most_frequent_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # METEOR takes seconds to start.
    vocabulary = Vocabulary.of(TRAIN.sentences)
    settings = replace(training.WRITING, epochs=40, batch=36, lr=1e-2)
    encoder = PairEncoder(1, 16)
    decoder = training.train_writing(encoder, first_words(vocabulary), vocabulary, TRAIN, VAL, 0, "cpu", settings)
    written = training.captions(encoder, decoder, vocabulary, TEST, "cpu")
    references = [list(TEST.sentences[row : row + 2]) for row in range(0, len(TEST.sentences), 2)]
    frequent = Counter(TRAIN.sentences).most_common(1)[0][0]
    ours, theirs = (caption_scores(one, references) for one in (written, [frequent] * len(written)))
    assert sum(caption in sentences for caption, sentences in zip(written, references, strict=True)) >= 10
    assert ours.bleu_4 > theirs.bleu_4
    assert ours.cider.mean() > theirs.cider.mean() + 1


def test_a_word_is_predicted_from_earlier_words_only() -> None:
    decoder = SentenceDecoder(torch.randn(9, 16)).eval()
    seen, written = torch.randn(1, 2, 16), torch.tensor([[1, 4, 5, 6]])
    scores = decoder(seen, written)
    changed = decoder(seen, torch.tensor([[1, 4, 5, 8]]))
    assert torch.allclose(scores[:, :3], changed[:, :3], atol=1e-6)
    assert not torch.allclose(scores[:, 3], changed[:, 3])
    assert not torch.allclose(scores, decoder(seen + 1 * torch.randn(1, 2, 16), written))


def test_the_loss_is_that_of_the_next_word_and_of_the_end() -> None:
    class Sure(nn.Module):
        """Foresees number 3 with score 2, all others with 0."""

        def forward(self, seen: Tensor, written: Tensor) -> Tensor:
            assert written.tolist() == [[1, 3, 1]]
            scores = torch.zeros(1, 3, 5)
            scores[:, :, 3] = 2
            return scores

    loss = training.next_word_loss(Sure(), torch.zeros(1, 2, 4), torch.tensor([[3, 1, 0]]))  # type: ignore[arg-type]
    total = math.exp(2) + 4
    assert float(loss) == pytest.approx((math.log(total) - 2 + math.log(total)) / 2)


def test_greedy_sentences_end_at_the_end_or_at_the_limit() -> None:
    decoder = SentenceDecoder(torch.zeros(5, 16)).eval()
    with torch.no_grad():
        decoder.frequent.copy_(torch.tensor([9.0, 1, 2, 3, 1]))
    # Number 0 has the highest score of all and is no word.
    assert decoder.greedy(torch.zeros(2, 2, 16)).tolist() == [[3] * 32] * 2
    with torch.no_grad():
        decoder.frequent[1] = 5
    assert decoder.greedy(torch.zeros(2, 2, 16)).tolist() == [[1]] * 2


def test_the_best_epoch_by_validation_is_kept() -> None:
    module = nn.ModuleList([nn.Linear(1, 1, bias=False)])
    nn.init.zeros_(module[0].weight)
    found: list[float] = []

    def validated() -> float:
        assert not module.training
        found.append(float(module[0].weight.detach()))
        return abs(found[-1] - 0.25)

    def loss(rows: object, chosen: object) -> Tensor:
        assert module.training
        return -module[0].weight.sum()

    drawn = np.zeros(4, dtype=np.int64)
    learn(module, StageSettings("rise", 9, 2, 0.1, weight_decay=0), 1, 4, loss, lambda _: drawn, validated, 0)
    assert found == sorted(found)
    assert found[-1] > 0.5
    kept = float(module[0].weight.detach())
    assert kept == min(found, key=lambda value: abs(value - 0.25))
    assert not module.training
