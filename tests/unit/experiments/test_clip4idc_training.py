"""Both stages learn what can be learned, keep their best epoch, and give the same again."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from components.core.compute.metrics import gold_ranks
from components.experiments.parts import clip4idc_training as training
from components.experiments.parts.captioned_pairs import Vocabulary, caption_scores
from components.experiments.parts.clip4idc_model import PairEncoder, SentenceDecoder
from components.experiments.parts.clip4idc_training import StageSettings, learn
from tests.support.difference_examples import colour_examples, first_words

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
