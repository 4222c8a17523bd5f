"""Methods of texts: LEAF keeps features of misspelt ones, READ-CLIP's language model must predict a paraphrase."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.text_tower import text_features
from components.training.methods.leaf import METHOD, Search, edited, makes_word, misspelt
from components.training.methods.read_clip import reconstruct, reconstruction
from tests.support.tiny_language_model import tiny_language_model
from tests.unit.training.methods.examples import SCALE, losses_of, picking, random_columns, small_encoder, unit

TEXTS = ["a small dog left of a cat", "two red hats", "the large boat"]


def _search(encoder: Encoder, tries: int = 8) -> Search:
    return Search(encoder, METHOD.read({"tries": tries, "protocol": "own"}).settings)


def _attacked(encoder: Encoder, texts: list[str], tries: int = 8) -> list[str]:
    tokens = encoder.tokenizer(texts)
    with torch.no_grad():
        return encoder.tokenizer.texts(_search(encoder, tries)({"caption": tokens}).tokens["caption"])


def _edits(text: str, changed: str) -> int:
    """Length of the part that is left without the common start and end: at most 1 for one edit."""

    def common(one: str, other: str) -> int:
        return next((n for n in range(min(len(one), len(other))) if one[n] != other[n]), min(len(one), len(other)))

    start = common(text, changed)
    return max(len(text), len(changed)) - start - common(text[start:][::-1], changed[start:][::-1])


def test_the_loss_is_the_squared_distance_of_raw_features() -> None:
    columns = random_columns(("caption", "clean"))
    caption, clean = (columns[name].numpy() for name in ("caption", "clean"))
    expected = np.square(caption - clean).sum(axis=1).mean()
    assert losses_of({"method": "leaf"}, columns) == pytest.approx({"distance": expected})


@given(text=st.text("ab c", min_size=1, max_size=6), data=st.data())
def test_a_misspelt_text_is_one_edit_from_the_text(text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, 2 * len(text)))
    character = data.draw(st.sampled_from(["", " ", "x"]))
    assert _edits(text, misspelt(text, place, character)) <= 1


def test_misspelt_places_are_by_hand_and_errors_that_spell_a_word_refused(tiny_encoder: Encoder) -> None:
    assert [misspelt("ab", place, "x") for place in range(5)] == ["xab", "xb", "axb", "ax", "abx"]
    assert [misspelt("ab", place, "") for place in range(5)] == ["ab", "b", "ab", "a", "ab"]
    drawn = [(1, "a"), (1, "x"), (2, "a"), (3, ""), (3, "b")]
    assert [edited("ab", place, character) for place, character in drawn] == ["b", "xb", "aab", "a", "a"]
    assert [misspelt("ab", place, character) for place, character in drawn] == ["ab", "xb", "aab", "a", "ab"]
    assert makes_word("a bat", "a cat")
    assert makes_word("seashore", "sea shore")
    assert not makes_word("a bat", "a bxt")
    assert not makes_word("cat and bat", "cat and btt")
    released, own = (Search(tiny_encoder, METHOD.read({"protocol": name}).settings) for name in ("released", "own"))
    allowed = {"a bxt on the mat": (True, True), "a  bat on the mat": (False, True), "a cat on the mat": (False, False)}
    for changed, expected in (allowed | {"a bat on themat": (True, True)}).items():
        assert (released._allowed("a bat on the mat", changed), own._allowed("a bat on the mat", changed)) == expected
    draw, among = random.Random(0), list(range(50))
    assert sorted(released._drawn(draw, among)) == among
    assert len(set(own._drawn(draw, among))) < len(own._drawn(draw, among)) == 50
    assert len(released._drawn(draw, [1, 2])) == 50


def test_errors_are_near_far_in_features_and_independent_of_the_batch(tiny_encoder: Encoder) -> None:
    torch.manual_seed(0)
    found = _attacked(tiny_encoder, TEXTS)
    assert not set(found) & set(TEXTS)
    # The tokenizer sets punctuation apart.
    for text, wrong in zip(TEXTS, found, strict=True):
        assert _edits(text.replace(" ", ""), wrong.replace(" ", "")) <= 1
    torch.manual_seed(0)
    harder = _attacked(tiny_encoder, TEXTS, tries=60)

    def moved(texts: list[str]) -> float:
        clean, wrong = (tiny_encoder.embed_texts(list(part)) for part in (TEXTS, texts))
        return float(np.square(clean - wrong).sum())

    assert moved(harder) > moved([misspelt(text, 1, "x") for text in TEXTS])
    torch.manual_seed(4)
    together = _attacked(tiny_encoder, TEXTS)
    torch.manual_seed(4)
    assert _attacked(tiny_encoder, TEXTS[1:]) == together[1:]


def test_the_clean_features_are_those_before_training(tiny_encoder: Encoder) -> None:
    search, tokens = _search(tiny_encoder), tiny_encoder.tokenizer(TEXTS)
    with torch.no_grad():
        before = text_features(tiny_encoder.model, torch.from_numpy(tokens.astype(np.int64)))
        for weights in tiny_encoder.model.parameters():
            weights.add_(0.1)
        found = search({"caption": tokens})
    assert torch.allclose(found.features["clean"], before, atol=1e-5)


COLUMNS = random_columns(("image", "caption", "hard_negative", "paraphrase_1"))
TWO_TEXTS = ["a dog", "two cats on a sofa"]


def test_the_contrastive_terms() -> None:
    image, caption, negative, paraphrase = (
        unit(COLUMNS[name]) for name in ("image", "caption", "hard_negative", "paraphrase_1")
    )
    found = losses_of({"method": "read_clip"}, COLUMNS)
    assert found.pop("reconstruction") > 0
    assert found == pytest.approx(
        {
            "image_to_text": picking(image, caption, negative, scale=SCALE) / 2,
            "text_to_image": picking(caption, image, scale=SCALE) / 2,
            "alignment": picking(paraphrase, caption, scale=SCALE) * 0.5,
        }
    )


def _reconstruction(*, of_tokens: bool = False) -> torch.nn.Module:
    torch.manual_seed(0)
    return reconstruction(6, small_encoder().tokenizer, tiny_language_model(), of_tokens=of_tokens)


@pytest.mark.parametrize("of_tokens", [True, False])
def test_the_loss_is_the_language_models_of_each_text_and_its_end(of_tokens: bool) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    extra, folder = _reconstruction(of_tokens=of_tokens), tiny_language_model()
    model, words = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    features = torch.randn(2, 6)
    each, lengths = [], []
    with torch.no_grad():
        for row, text in zip(features, TWO_TEXTS, strict=True):
            ids = torch.tensor([*words(text, add_special_tokens=False)["input_ids"], words.eos_token_id])
            inputs = torch.cat([extra.first(row)[None], model.get_input_embeddings()(ids[:-1])])
            lengths.append(len(ids))
            each.append(F.cross_entropy(model(inputs_embeds=inputs[None]).logits[0], ids).item())
        found = reconstruct(extra, features, small_encoder().tokenizer(TWO_TEXTS))
    assert found.item() == pytest.approx(np.average(each, weights=lengths if of_tokens else None), rel=1e-5)


def test_ranks_with_unequal_texts_average_to_the_mean_over_all_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    extra, features, tokens = _reconstruction(of_tokens=True), torch.randn(2, 6), small_encoder().tokenizer(TWO_TEXTS)
    counts = [extra.decoder.targets(tokens[row : row + 1])[1].sum() for row in (0, 1)]
    assert counts[0] != counts[1]
    monkeypatch.setattr("torch.distributed.all_reduce", lambda total: total.copy_(sum(counts)))
    ranks = [reconstruct(extra, features[row : row + 1], tokens[row : row + 1], 2) for row in (0, 1)]
    torch.testing.assert_close(sum(ranks) / 2, reconstruct(extra, features, tokens))


def test_only_the_layer_before_the_language_model_learns_and_is_saved() -> None:
    extra = _reconstruction()
    assert set(extra.state_dict()) == {"first.weight"}
    features = torch.randn(2, 6, requires_grad=True)
    reconstruct(extra, features, small_encoder().tokenizer(TWO_TEXTS)).backward()
    assert features.grad is not None
    assert features.grad.norm() > 0
    assert all(not weights.requires_grad for weights in extra.decoder.model.parameters())
