"""open_clip model configurations, published ones and those in `models/`, and models built from them.

The `vision_cfg` of timm's image towers may have two keys besides open_clip's: `mean` and `std` of the pixels that the
tower was trained with, if they are not CLIP's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from components.core.system.errors import InputError
from components.encoders.adapter.images import MEAN, STD
from components.encoders.adapter.language_tower import LanguageClip, LanguageTower, from_config, without_dropout

_OWN_MODELS = Path(__file__).parent / "models"


def model_config(name: str) -> dict[str, Any]:
    """The open_clip configuration called `name`, or that of a JSON file.

    Raises:
        InputError: neither open_clip nor `components/encoders/adapter/models/` has it, or the file is broken.
    """
    own = Path(name) if name.endswith(".json") else _OWN_MODELS / f"{name}.json"
    if own.is_file():
        return _read(own)
    import open_clip

    known = open_clip.get_model_config(name)
    if known is None:
        raise InputError(
            f"model '{name}' is unknown: name an open_clip model, a JSON file, or add "
            f"components/encoders/adapter/models/{name}.json"
        )
    return dict(known)


def plain_name(name: str) -> str:
    """The name of a configuration, or the stem of its JSON file."""
    return Path(name).stem if name.endswith(".json") else name


def build(config: dict[str, Any], text_files: Path | None = None) -> Any:
    """A model of this configuration with random weights, in float32, without dropout.

    Args:
        config: an open_clip configuration; `text_cfg` has `language_model` if the text tower is a `LanguageTower`.
        text_files: folder with the Hugging Face configuration of the text tower; None for the source that the
            configuration names.

    Raises:
        InputError: the configuration is of an unsupported kind, or its files are missing.
    """
    text = config["text_cfg"]
    _refuse(config)
    if "language_model" in text:
        if text_files is None:
            raise InputError("this encoder's folder lacks 'text': run `dvc repro` to make it again")
        tower = LanguageTower(
            from_config(text_files),
            config["embed_dim"],
            text["strategy"],
            text.get("alignment_layers", 0),
            text.get("adapter_norm", False),
            text.get("adapter_placement", "layers"),
        )
        return LanguageClip(image_tower(config), tower)
    model = _open_clip(config, text_files)
    _expect_pixels(model.visual, config)
    without_dropout(model)
    return model


def image_tower(config: dict[str, Any]) -> nn.Module:
    """The image tower of a configuration with random weights, its linear projection to `embed_dim` included."""
    import open_clip

    # open_clip has no public constructor of only an image tower, so a whole CLIP with a minimal text tower is built.
    smallest = {"context_length": 1, "vocab_size": 1, "width": 64, "heads": 1, "layers": 1}
    whole = open_clip.CLIP(
        config["embed_dim"], _offline(config)["vision_cfg"], smallest, quick_gelu=has_quick_gelu(config)
    )
    tower: nn.Module = whole.visual
    _expect_pixels(tower, config)
    return tower


def pixel_statistics(config: dict[str, Any]) -> tuple[Sequence[float], Sequence[float]]:
    """Mean and deviation per channel of the pixels that a configuration's image tower expects."""
    vision = config["vision_cfg"]
    return vision.get("mean", MEAN), vision.get("std", STD)


def own_image_tower(name: str, config: dict[str, Any]) -> str:
    """The image tower of a configuration as JSON if it differs from the known one of that name, else empty."""
    try:
        known = model_config(name)
    except InputError:
        known = {}
    ours, theirs = (
        {key: value for key, value in one.get("vision_cfg", {}).items() if key not in ("mean", "std")}
        | {"quick_gelu": has_quick_gelu(one)}
        for one in (config, known)
    )
    return "" if ours == theirs else json.dumps(ours, sort_keys=True)


def _expect_pixels(tower: nn.Module, config: dict[str, Any]) -> None:
    """Convert pixels within the tower from CLIP's mean and deviation to its own."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in pixel_statistics(config))
    clip_mean, clip_std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    if "timm_model_name" in config["vision_cfg"]:
        # Makes convolutions 1.5 times as fast on a CPU.
        tower.to(memory_format=torch.channels_last)
    if not (torch.equal(mean, clip_mean) and torch.equal(std, clip_std)):
        tower.register_forward_pre_hook(_Change(clip_std / std, (clip_mean - mean) / std))


@dataclass(frozen=True)
class _Change:
    scale: Tensor
    shift: Tensor

    def __call__(self, _tower: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        pixels, *rest = arguments
        scale, shift = (values.to(pixels) for values in (self.scale, self.shift))
        return (pixels * scale + shift, *rest)


def refuse_batch_statistics(tower: nn.Module, model: str) -> None:
    """Refuse random weights for a tower with batch normalisation, such as a ResNet.

    Training keeps the statistics fixed, so that micro-batches and ranks compute the same features; those of random
    weights are meaningless. Published weights include theirs.

    Raises:
        InputError: the tower has such layers.
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
    try:
        return (open_clip.CustomTextCLIP if name or custom else open_clip.CLIP)(**settings)
    except TypeError as error:
        raise InputError(f"open_clip does not know this configuration ({error}): correct the model's JSON") from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"no language model configuration at '{text_files or name}' ({str(error).splitlines()[0]}): download it "
            "and set text_cfg.hf_model_name to its folder in a model JSON"
        ) from None


def _offline(config: dict[str, Any]) -> dict[str, Any]:
    """A copy that fetches no pretrained weights for its towers."""
    settings = deepcopy(config)
    settings["vision_cfg"]["timm_model_pretrained"] = False
    for own in ("mean", "std"):
        settings["vision_cfg"].pop(own, None)
    settings["text_cfg"]["hf_model_pretrained"] = False
    return settings


def _refuse(config: dict[str, Any]) -> None:
    if "multimodal_cfg" in config:
        raise InputError("a CoCa model is not supported: choose a dual encoder")
    if {"mean", "std"} & set(config["vision_cfg"]) and "timm_model_name" not in config["vision_cfg"]:
        raise InputError("vision_cfg.mean and std are only for timm's image towers: remove them")
    if config["text_cfg"].get("embed_cls"):
        raise InputError("a text tower with a class token (text_cfg.embed_cls) is not supported: choose another model")
    if config["text_cfg"].get("no_causal_mask"):
        raise InputError("a text tower that reads padding (SigLIP, CLIPA) is not supported: choose another model")
    if config["text_cfg"].get("pool_type") == "last":
        # Batches are cut after their longest text, so the last position varies.
        raise InputError("a text tower that pools the last position is not supported: choose another model")


def _read(path: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads(path.read_text("utf-8"))
        text = config["text_cfg"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not an open_clip configuration ({error}): correct it") from None
    for key in ("hf_model_name", "hf_tokenizer_name"):
        if key in text and (path.parent / text[key]).is_dir():
            text[key] = str(path.parent / text[key])
    return config
