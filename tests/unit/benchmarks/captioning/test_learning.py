"""Both stages learn what can be learned, keep their best epoch, and give the same again."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from components.benchmarks.captioning import learning
from components.benchmarks.captioning.learning import Course, learn
from components.benchmarks.captioning.modules import PairSeer, Writer
from components.benchmarks.captioning.pairs import Vocabulary
from components.benchmarks.protocols.caption_scores import caption_scores
from components.core.metrics import gold_ranks
from tests.support.difference_examples import colour_examples, first_words

TRAIN, VAL, TEST = (colour_examples(seed, times) for seed, times in ((0, 12), (1, 1), (2, 1)))


@pytest.fixture(autouse=True)
def one_seed() -> None:
    torch.manual_seed(0)


def _recall_at_1(seer: PairSeer) -> float:
    queries = learning.text_embeddings(seer, TEST.features, "cpu")
    pairs = learning.pair_embeddings(seer, TEST, "cpu")
    return float((gold_ranks(queries, pairs, TEST.pair, "pessimistic") < 1).mean())


def test_pairs_and_sentences_learn_to_find_each_other() -> None:
    before = _recall_at_1(PairSeer(1, 16).eval())
    seer = learning.adapted(TRAIN, VAL, 0, "cpu", replace(learning.RETRIEVAL, epochs=30, batch=48, lr=1e-2))
    # Chance is one pair of twelve.
    assert before < 0.2
    assert _recall_at_1(seer) > 0.9


def test_captions_of_unseen_pairs_are_better_than_the_most_frequent_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # METEOR takes seconds to start.
    vocabulary = Vocabulary.of(TRAIN.sentences)
    course = replace(learning.WRITING, epochs=40, batch=36, lr=1e-2)
    seer = PairSeer(1, 16)
    writer = learning.taught(seer, first_words(vocabulary), vocabulary, TRAIN, VAL, 0, "cpu", course)
    written = learning.captions(seer, writer, vocabulary, TEST, "cpu")
    references = [list(TEST.sentences[row : row + 2]) for row in range(0, len(TEST.sentences), 2)]
    frequent = Counter(TRAIN.sentences).most_common(1)[0][0]
    ours, theirs = (caption_scores(one, references) for one in (written, [frequent] * len(written)))
    assert sum(caption in told for caption, told in zip(written, references, strict=True)) >= 10
    assert ours.bleu_4 > theirs.bleu_4
    assert ours.cider.mean() > theirs.cider.mean() + 1


def test_the_same_seed_learns_the_same_and_another_something_else() -> None:
    course = replace(learning.RETRIEVAL, epochs=2, batch=48)
    found = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        found.append(learning.pair_embeddings(learning.adapted(TRAIN, VAL, seed, "cpu", course), TEST, "cpu"))
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_an_unlearned_pair_is_the_second_picture_less_the_first() -> None:
    found = learning.pair_embeddings(PairSeer(1, 16).eval(), TEST, "cpu")
    less = (TEST.after - TEST.before)[:, 0]
    assert found == pytest.approx(less / np.linalg.norm(less, axis=1, keepdims=True), abs=1e-6)


def test_what_stands_at_a_place_and_in_which_picture_is_seen() -> None:
    seer = PairSeer(3, 16).eval()
    one, other = torch.randn(2, 1, 3, 16)
    moved = one[:, [0, 2, 1]]
    assert not torch.allclose(seer(one, other)[0][:, 0], seer(moved, other)[0][:, 0])
    assert not torch.allclose(seer(one, other)[0][:, 0], seer(other, one)[0][:, 3])


def test_a_word_is_foreseen_from_those_before_it_alone() -> None:
    writer = Writer(torch.randn(9, 16)).eval()
    seen, written = torch.randn(1, 2, 16), torch.tensor([[1, 4, 5, 6]])
    scores = writer(seen, written)
    changed = writer(seen, torch.tensor([[1, 4, 5, 8]]))
    assert torch.allclose(scores[:, :3], changed[:, :3], atol=1e-6)
    assert not torch.allclose(scores[:, 3], changed[:, 3])
    assert not torch.allclose(scores, writer(seen + 1 * torch.randn(1, 2, 16), written))


def test_the_loss_is_that_of_the_next_word_and_of_the_end() -> None:
    class Sure(nn.Module):
        """Foresees number 3 with score 2, all others with 0."""

        def forward(self, seen: Tensor, written: Tensor) -> Tensor:
            assert written.tolist() == [[1, 3, 1]]
            scores = torch.zeros(1, 3, 5)
            scores[:, :, 3] = 2
            return scores

    loss = learning.next_word_loss(Sure(), torch.zeros(1, 2, 4), torch.tensor([[3, 1, 0]]))  # type: ignore[arg-type]
    total = math.exp(2) + 4
    assert float(loss) == pytest.approx((math.log(total) - 2 + math.log(total)) / 2)


def test_greedy_sentences_end_at_the_end_or_at_the_limit() -> None:
    writer = Writer(torch.zeros(5, 16)).eval()
    with torch.no_grad():
        writer.frequent.copy_(torch.tensor([9.0, 1, 2, 3, 1]))
    # Number 0 has the highest score of all and is no word.
    assert writer.greedy(torch.zeros(2, 2, 16)).tolist() == [[3] * 32] * 2
    with torch.no_grad():
        writer.frequent[1] = 5
    assert writer.greedy(torch.zeros(2, 2, 16)).tolist() == [[1]] * 2


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
    learn(module, Course("rise", 9, 2, 0.1, weight_decay=0), 1, 4, loss, lambda _: drawn, validated, 0)
    assert found == sorted(found)
    assert found[-1] > 0.5
    kept = float(module[0].weight.detach())
    assert kept == min(found, key=lambda value: abs(value - 0.25))
    assert not module.training


def test_each_pair_gives_one_of_its_own_sentences() -> None:
    assert TEST.one_each(None).tolist() == list(range(0, 24, 2))
    drawn = np.array([TEST.one_each(np.random.default_rng(seed)) for seed in range(20)])
    assert (TEST.pair[drawn] == np.arange(12)).all()
    assert {0, 1} == set((drawn % 2).ravel().tolist())
