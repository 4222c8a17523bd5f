"""Stable Diffusion XL at toy size, of diffusers' own classes with random weights: it needs no download."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import open_clip
import torch
from torch import Tensor, nn


def tiny_pipeline(folder: Path, first: Any, second: Any) -> Path:
    """Write a pipeline whose text towers are those of two open_clip models, and return its folder.

    Nothing of it is this project's: the towers are transformers' classes, and diffusers puts them together.
    """
    import diffusers
    from transformers import CLIPTextModel, CLIPTextModelWithProjection

    width = first.token_embedding.embedding_dim + second.token_embedding.embedding_dim
    torch.manual_seed(0)
    down, up = ["DownEncoderBlock2D"] * 2, ["UpDecoderBlock2D"] * 2
    sizes = {"block_out_channels": [8, 8], "norm_num_groups": 4, "sample_size": 16}
    vae = diffusers.AutoencoderKL(down_block_types=down, up_block_types=up, **sizes)
    unet = diffusers.UNet2DConditionModel(
        **{"sample_size": 8, "block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4},
        **{"attention_head_dim": (2, 4), "transformer_layers_per_block": (1, 1), "use_linear_projection": True},
        **{"addition_embed_type": "text_time", "addition_time_embed_dim": 8, "cross_attention_dim": width},
        projection_class_embeddings_input_dim=6 * 8 + second.text_projection.shape[1],
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )
    pipeline = diffusers.StableDiffusionXLPipeline(
        text_encoder=_tower(CLIPTextModel, first),
        text_encoder_2=_tower(CLIPTextModelWithProjection, second),
        # As published: the first tower's texts are padded with the end token, the second's with the token of id 0.
        tokenizer=_tokenizer(folder / "first", first.context_length, "<|endoftext|>"),
        tokenizer_2=_tokenizer(folder / "second", second.context_length, "!"),
        scheduler=diffusers.EulerDiscreteScheduler(timestep_spacing="leading", steps_offset=1),
        **{"vae": vae, "unet": unet},
    )
    pipeline.save_pretrained(folder / "pipeline")
    return folder / "pipeline"


def _tokenizer(folder: Path, length: int, pad: str) -> Any:
    """transformers' CLIP tokenizer with the vocabulary that open_clip carries."""
    from transformers import CLIPTokenizer

    published = open_clip.SimpleTokenizer(context_length=length)
    folder.mkdir(parents=True)
    vocabulary = {{"<start_of_text>": "<|startoftext|>", "<end_of_text>": "<|endoftext|>"}.get(token, token): number
                  for token, number in published.encoder.items()}  # fmt: skip
    (folder / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
    merges = sorted(published.bpe_ranks, key=published.bpe_ranks.__getitem__)
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(map(" ".join, merges)) + "\n", "utf-8")
    return CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=length, pad_token=pad)


def _tower(kind: Any, model: Any) -> Any:
    """The text tower of an open_clip model as one of transformers' text models."""
    from transformers import CLIPTextConfig

    words, width = model.token_embedding.weight.shape
    blocks = model.transformer.resblocks
    config = CLIPTextConfig(
        **{"vocab_size": words, "bos_token_id": words - 2, "eos_token_id": words - 1, "hidden_act": "gelu"},
        **{"hidden_size": width, "intermediate_size": blocks[0].mlp.c_fc.out_features},
        **{"num_hidden_layers": len(blocks), "num_attention_heads": blocks[0].attn.num_heads},
        **{"max_position_embeddings": model.context_length, "projection_dim": model.text_projection.shape[1]},
    )
    tower = kind(config)
    own = dict(tower.state_dict())
    given = _named(model)
    prefix = "text_model." if any(name.startswith("text_model.") for name in own) else ""
    state = {name if name == "text_projection.weight" else f"{prefix}{name}": value for name, value in given.items()}
    loaded = tower.load_state_dict({name: value for name, value in state.items() if name in own}, strict=False)
    assert not [name for name in loaded.missing_keys if "position_ids" not in name]
    return tower.eval()


def _named(model: Any) -> dict[str, Tensor]:
    found = {
        "embeddings.token_embedding.weight": model.token_embedding.weight,
        "embeddings.position_embedding.weight": model.positional_embedding,
        "text_projection.weight": model.text_projection.T.contiguous(),
        **_pair("final_layer_norm", model.ln_final),
    }
    for number, block in enumerate(model.transformer.resblocks):
        layer = f"encoder.layers.{number}"
        weights, biases = block.attn.in_proj_weight.chunk(3), block.attn.in_proj_bias.chunk(3)
        for name, weight, bias in zip("qkv", weights, biases, strict=True):
            found |= {f"{layer}.self_attn.{name}_proj.weight": weight, f"{layer}.self_attn.{name}_proj.bias": bias}
        found |= _pair(f"{layer}.self_attn.out_proj", block.attn.out_proj)
        found |= _pair(f"{layer}.layer_norm1", block.ln_1) | _pair(f"{layer}.layer_norm2", block.ln_2)
        found |= _pair(f"{layer}.mlp.fc1", block.mlp.c_fc) | _pair(f"{layer}.mlp.fc2", block.mlp.c_proj)
    return {name: tensor.detach().clone() for name, tensor in found.items()}


def _pair(name: str, module: nn.Module) -> dict[str, Tensor]:
    return {f"{name}.weight": module.weight, f"{name}.bias": module.bias}  # type: ignore[dict-item]
