"""Folders as open_clip publishes them, with random weights and small tokenizers, that need no network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import open_clip
from safetensors.torch import save_file
from tokenizers import Tokenizer, normalizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from transformers import BertConfig, PreTrainedTokenizerFast

from components.encoders.adapter.language_tower import packaged_model
from components.encoders.adapter.model_configs import CONFIG

WEIGHTS = "open_clip_model.safetensors"
_TEXT = {"width": 32, "heads": 2, "layers": 2}
FAMILIES: dict[str, dict[str, Any]] = {
    "SigLIP 2": {
        "model_cfg": {
            "embed_dim": 32,
            "init_logit_bias": -10,
            "custom_text": True,
            "vision_cfg": {
                "image_size": 160,
                "timm_model_name": "test_vit3",
                "timm_pool": "map",
                "timm_proj": "linear",
            },
            "text_cfg": _TEXT
            | {"context_length": 16, "vocab_size": 512, "hf_tokenizer_name": "timm/ViT-B-16-SigLIP2"}
            | {"tokenizer_kwargs": {"clean": "canonicalize"}, "no_causal_mask": True, "proj_bias": True}
            | {"pool_type": "last", "norm_kwargs": {"eps": 1e-6}, "act_kwargs": {"approximate": "tanh"}},
        },
        "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "resize_mode": "squash"},
    },
    "CoCa": {
        "model_cfg": {
            "embed_dim": 32,
            "custom_text": True,
            "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "head_width": 32, "patch_size": 8}
            | {"attentional_pool": True, "attn_pooler_heads": 2, "output_tokens": True},
            "text_cfg": _TEXT | {"context_length": 16, "vocab_size": 49_408, "embed_cls": True, "output_tokens": True},
            "multimodal_cfg": _TEXT | {"context_length": 16, "vocab_size": 49_408, "attn_pooler_heads": 2},
        },
        "preprocess_cfg": {},
    },
    "MobileCLIP 2": {
        "model_cfg": {
            "embed_dim": 32,
            "custom_text": True,
            "vision_cfg": {"image_size": 64, "timm_model_name": "fastvit_t8", "timm_pool": "avg", "timm_proj": None},
            "text_cfg": _TEXT | {"context_length": 77, "vocab_size": 49_408, "no_causal_mask": True},
        },
        "preprocess_cfg": {"mean": [0.0] * 3, "std": [1.0] * 3, "interpolation": "bilinear", "resize_mode": "shortest"},
    },
}
"""Small models with the parts of three families: `open_clip_config.json` by family."""


def write_folder(folder: Path, content: str) -> None:
    """A folder of the configuration `content` with random weights, and the tokenizer and language model it needs."""
    folder.mkdir()
    (folder / CONFIG).write_text(content)
    settings = json.loads(content)
    text = settings["model_cfg"]["text_cfg"]
    if "SigLIP2" in text.get("hf_tokenizer_name", ""):
        write_gemma_tokenizer(folder, text["vocab_size"])
    elif "hf_tokenizer_name" in text:
        for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
            (folder / name).write_bytes((packaged_model() / name).read_bytes())
    if "hf_model_name" in text:
        BertConfig(hidden_size=64, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64).save_pretrained(
            folder
        )
        text["hf_model_name"] = str(folder)
        (folder / CONFIG).write_text(json.dumps(settings))
    model = open_clip.create_model(f"local-dir:{folder}", pretrained_text=False)
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(tensors, folder / WEIGHTS)


def write_gemma_tokenizer(folder: Path, size: int) -> None:
    """Byte pairs of transformers' Gemma class, which ends texts but does not begin them, as SigLIP 2's tokenizer."""
    specials = ["<pad>", "<eos>", "<bos>", "<unk>"]
    raw = Tokenizer(BPE(unk_token="<unk>", byte_fallback=True))
    raw.normalizer = normalizers.Replace(" ", "▁")
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    letters = [chr(letter) for letter in range(ord("a"), ord("z") + 1)]
    trainer = BpeTrainer(
        vocab_size=size, special_tokens=specials + bytes_, initial_alphabet=letters, show_progress=False
    )
    raw.train_from_iterator(["a red square of something blue", "two green squares with yellow"] * 3, trainer)
    raw.add_tokens([f"<unused{number}>" for number in range(size - raw.get_vocab_size())])
    raw.post_processor = TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    names = dict(zip(("pad_token", "eos_token", "bos_token", "unk_token"), specials, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=raw, **names).save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"tokenizer_class": "GemmaTokenizer"}))
