"""A causal language model with random weights, as a Hugging Face folder small enough for unit tests."""

from __future__ import annotations

import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import torch

_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@cache
def tiny_language_model() -> Path:
    """The folder of one that is there until the tests end."""
    folder = Path(mkdtemp(prefix="language-model-"))
    atexit.register(shutil.rmtree, folder)
    return save_tiny_language_model(folder)


def save_tiny_language_model(folder: Path, seed: int = 0) -> Path:
    """Write a two-layer Llama over bytes, whose tokenizer puts <s> in front and whose template does so too."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(["<s>", "</s>", *letters])}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = _TEMPLATE
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"num_key_value_heads": 2, "max_position_embeddings": 512, "vocab_size": len(vocabulary)}
    config = LlamaConfig(**sizes, initializer_range=0.3, bos_token_id=0, eos_token_id=1, pad_token_id=None)
    LlamaForCausalLM(config).save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder
