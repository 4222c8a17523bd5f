"""What the tests of training share: a small world with a base, and a small language model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from components.encoders.adapter.encoder import Encoder
from tests.conftest import TINY
from tests.support.synthetic_training import CAUSAL, WORDS
from tests.support.tiny_language_model import save_tiny_language_model
from tests.support.toy_world import World, make_world, world_settings


def make_language_model(folder: Path) -> Path:
    """A BERT of two layers with random weights and a tokenizer that knows the synthetic words; a causal one below."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt"), model_max_length=24).save_pretrained(folder)
    save_tiny_language_model(folder / CAUSAL)
    torch.manual_seed(5)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=32,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_language_model(tmp_path_factory.mktemp("language-model"))


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("world")
    torch.manual_seed(0)
    return make_world(folder, Encoder.create("base", "tiny", TINY, "test"), world_settings(folder / "state"))
