"""Tiny language models of three kinds, with tokenizers, made here from nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel, RobertaConfig, RobertaModel
from transformers import PreTrainedTokenizerFast as Fast

WORDS = ["a", "dog", "cat", "on", "the", "long", "sofa", "with", "two", "small", "hats", "and", "red"]


def _tokenizer(pad_id: int) -> Fast:
    """Whole words as tokens, between a start and an end token."""
    specials = ["<s>", "</s>", "<unk>"]
    specials.insert(pad_id, "<pad>")
    vocabulary = {word: place for place, word in enumerate([*specials, *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    ends = [(token, vocabulary[token]) for token in ("<s>", "</s>")]
    tokenizer.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    return Fast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def _model(kind: str) -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": len(WORDS) + 4, "max_position_embeddings": 40}
    bert = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, **sizes}
    if kind == "bert":
        return BertModel(BertConfig(**bert, pad_token_id=0))
    if kind == "roberta":
        return RobertaModel(RobertaConfig(**bert, pad_token_id=1))
    return DistilBertModel(DistilBertConfig(dim=16, n_layers=2, n_heads=2, hidden_dim=32, pad_token_id=0, **sizes))


@pytest.fixture(scope="session")
def language_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of tiny random BERT, RoBERTa and DistilBERT models with their tokenizers, by kind."""
    folders = {}
    for kind in ("bert", "roberta", "distilbert"):
        folders[kind] = tmp_path_factory.mktemp(kind)
        model = _model(kind)
        model.save_pretrained(folders[kind])
        _tokenizer(model.config.pad_token_id).save_pretrained(folders[kind])
    return folders


@pytest.fixture
def language_folder(language_folders: dict[str, Path], request: pytest.FixtureRequest) -> Path:
    """One of `language_folders`; a test names the kind by an indirect parameter, BERT otherwise."""
    return language_folders[getattr(request, "param", "bert")]
