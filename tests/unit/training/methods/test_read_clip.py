"""READ-CLIP: NegCLIP's loss, an alignment of paraphrases, and a language model that must predict one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from components.training.methods.read_clip import reconstruct, reconstruction
from tests.support.tiny_language_model import tiny_language_model
from tests.unit.training.methods.examples import SCALE, losses_of, picking, random_columns, small_encoder, unit

COLUMNS = random_columns(("image", "caption", "hard_negative", "paraphrase_1"))
TEXTS = ["a dog", "two cats on a sofa"]


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
        for row, text in zip(features, TEXTS, strict=True):
            ids = torch.tensor([*words(text, add_special_tokens=False)["input_ids"], words.eos_token_id])
            inputs = torch.cat([extra.first(row)[None], model.get_input_embeddings()(ids[:-1])])
            lengths.append(len(ids))
            each.append(F.cross_entropy(model(inputs_embeds=inputs[None]).logits[0], ids).item())
        found = reconstruct(extra, features, small_encoder().tokenizer(TEXTS))
    assert found.item() == pytest.approx(np.average(each, weights=lengths if of_tokens else None), rel=1e-5)


def test_ranks_with_unequal_texts_average_to_the_mean_over_all_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    extra, features, tokens = _reconstruction(of_tokens=True), torch.randn(2, 6), small_encoder().tokenizer(TEXTS)
    counts = [extra.decoder.targets(tokens[row : row + 1])[1].sum() for row in (0, 1)]
    assert counts[0] != counts[1]
    monkeypatch.setattr("torch.distributed.all_reduce", lambda total: total.copy_(sum(counts)))
    ranks = [reconstruct(extra, features[row : row + 1], tokens[row : row + 1], 2) for row in (0, 1)]
    torch.testing.assert_close(sum(ranks) / 2, reconstruct(extra, features, tokens))


def test_only_the_layer_before_the_language_model_learns_and_is_saved() -> None:
    extra = _reconstruction()
    assert set(extra.state_dict()) == {"first.weight"}
    features = torch.randn(2, 6, requires_grad=True)
    reconstruct(extra, features, small_encoder().tokenizer(TEXTS)).backward()
    assert features.grad is not None
    assert features.grad.norm() > 0
    assert all(not weights.requires_grad for weights in extra.decoder.model.parameters())
