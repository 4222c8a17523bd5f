"""Models built from open_clip's configurations."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from components.core.system.errors import InputError
from components.encoders.adapter.language_tower import LanguageClip, LanguageTower, from_config, without_dropout


def build(config: dict[str, Any], text_files: Path | None = None) -> Any:
    """A model of this configuration with random weights, in float32, without dropout.

    Args:
        config: an open_clip configuration; `text_cfg` has `language_model` if the text tower is a `LanguageTower`.
        text_files: folder with the Hugging Face configuration of the text tower; None for the source that the
            configuration names.
    """
    if "language_model" in config["text_cfg"]:
        if text_files is None:
            raise InputError("this encoder's folder lacks 'text': run `dvc repro` to make it again")
        tower = LanguageTower(from_config(text_files), config)
        return LanguageClip(image_tower(config), tower, config.get("init_logit_bias"))
    model = _open_clip(config, text_files)
    without_dropout(model)
    return _fast(model, config)


def image_tower(config: dict[str, Any]) -> nn.Module:
    """The image tower of a configuration with random weights, its linear projection to `embed_dim` included."""
    import open_clip

    # open_clip has no public constructor of only an image tower, so a whole CLIP with a minimal text tower is built.
    smallest = {"context_length": 1, "vocab_size": 1, "width": 64, "heads": 1, "layers": 1}
    whole = open_clip.CLIP(
        config["embed_dim"], _offline(config)["vision_cfg"], smallest, quick_gelu=has_quick_gelu(config)
    )
    tower: nn.Module = _fast(whole.visual, config)
    return tower


def _fast(module: nn.Module, config: dict[str, Any]) -> nn.Module:
    """The module with convolutions in the layout that is 1.5 times as fast on a CPU, if its image tower is timm's."""
    if "timm_model_name" in config["vision_cfg"]:
        visual: nn.Module = getattr(module, "visual", module)  # type: ignore[assignment]
        visual.to(memory_format=torch.channels_last)
    return module


def refuse_batch_statistics(tower: nn.Module, model: str) -> None:
    """Refuse random weights for a tower with batch normalisation, such as a ResNet.

    Training keeps the statistics fixed, so that micro-batches and ranks compute the same features; those of random
    weights are meaningless. Published weights include theirs.
    """
    if any(isinstance(module, _BatchNorm) for module in tower.modules()):
        raise InputError(
            f"the image tower of '{model}' normalises by batch statistics, which training keeps fixed, so it cannot "
            "start at random: take a vision transformer, or published weights"
        )


def has_quick_gelu(config: dict[str, Any]) -> bool:
    """Whether the configuration has QuickGELU instead of GELU."""
    return bool(config.get("quick_gelu", False))


def uses_quick_gelu(model: nn.Module) -> bool:
    """Whether the built model's towers contain QuickGELU."""
    from open_clip.transformer import QuickGELU

    return any(isinstance(module, QuickGELU) for module in model.modules())


def _open_clip(config: dict[str, Any], text_files: Path | None) -> Any:
    import open_clip

    settings = _offline(config)
    custom = settings.pop("custom_text", False)
    name = settings["text_cfg"].get("hf_model_name")
    if name:
        settings["text_cfg"]["hf_model_name"] = str(text_files or name)
        _check_language_model(settings["text_cfg"]["hf_model_name"])
    try:
        return (open_clip.CustomTextCLIP if name or custom else open_clip.CLIP)(**settings)
    except (TypeError, ValueError, KeyError, RuntimeError, AssertionError, OSError) as error:
        reason = (str(error).splitlines() or ["a value is wrong"])[0]
        raise InputError(f"open_clip does not know this configuration ({reason}): correct the model's JSON") from None


def _check_language_model(source: str) -> None:
    """Refuse a Hugging Face configuration that is missing or needs its own code, which open_clip offers to run."""
    from transformers import AutoConfig

    try:
        AutoConfig.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError) as error:
        if "trust_remote_code" in str(error):
            raise InputError(
                f"the text tower '{source}' needs its own code, which is not run: choose another"
            ) from None
        raise InputError(
            f"no language model configuration at '{source}' ({str(error).splitlines()[0]}): download it "
            "and set text_cfg.hf_model_name to its folder in a model JSON"
        ) from None


def _offline(config: dict[str, Any]) -> dict[str, Any]:
    """A copy that fetches no pretrained weights for its towers."""
    settings = deepcopy(config)
    settings["vision_cfg"]["timm_model_pretrained"] = False
    settings["text_cfg"]["hf_model_pretrained"] = False
    return settings
