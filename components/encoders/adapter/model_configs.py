"""open_clip's configurations of models by name, and the preparation of their pictures.

A name is one of open_clip, one of the files in `models/`, a JSON file, `local-dir:<folder>` or `hf-hub:<org>/<name>`.
The last two hold an `open_clip_config.json`, as open_clip and `cliptune export --format open_clip` write it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from components.core.system.errors import InputError
from components.encoders.adapter.images import Preparation

CONFIG = "open_clip_config.json"
LOCAL, HUB = "local-dir:", "hf-hub:"
_OWN_MODELS = Path(__file__).parent / "models"


def model_config(name: str) -> dict[str, Any]:
    """The configuration called `name`, of a dual encoder."""
    return _as_dual_encoder(described(name)[0])


def preprocess_config(name: str) -> dict[str, Any]:
    """The values of a configuration's `preprocess_cfg` that belong to a `Preparation`; empty if it has none."""
    return preparation_values(described(name)[1])


def preparation_values(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a `Preparation` among open_clip's facts about weights, without the size."""
    return {key: facts[key] for key in ("mean", "std", "interpolation", "resize_mode", "fill_color") if key in facts}


def plain_name(name: str) -> str:
    """The name of a configuration without the folders of its file."""
    if name.startswith(LOCAL) or name.endswith(".json"):
        path = Path(name.removeprefix(LOCAL))
        return path.parent.name if path.name == CONFIG else path.stem if path.suffix == ".json" else path.name
    return name


def own_image_tower(name: str, config: dict[str, Any]) -> str:
    """The image tower of a configuration as JSON if it differs from the known one of that name, else empty."""
    known: dict[str, Any] = {}
    if not name.startswith(HUB):
        try:
            known = model_config(name)
        except InputError:
            known = {}
    ours, theirs = (
        one.get("vision_cfg", {}) | {"quick_gelu": bool(one.get("quick_gelu", False))} for one in (config, known)
    )
    return "" if ours == theirs else json.dumps(ours, sort_keys=True)


def described(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The `model_cfg` and `preprocess_cfg` of a name, as they are written; raises as `model_config`."""
    if name.startswith(HUB):
        return _read(_fetched(name.removeprefix(HUB)))
    if name.startswith(LOCAL):
        return _read(Path(name.removeprefix(LOCAL)) / CONFIG)
    own = Path(name) if name.endswith(".json") else _OWN_MODELS / f"{name}.json"
    if own.is_file() or name.endswith(".json"):
        return _read(own)
    import open_clip

    known = open_clip.get_model_config(name)
    if known is None:
        raise InputError(
            f"model '{name}' is unknown: name an open_clip model, a JSON file, {LOCAL}<folder>, {HUB}<org>/<name>, or "
            f"add components/encoders/adapter/models/{name}.json"
        )
    return dict(known), {}


def _fetched(repository: str) -> Path:
    from open_clip.pretrained import download_pretrained_from_hf

    try:
        return Path(download_pretrained_from_hf(repository, filename=CONFIG))
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"'{HUB}{repository}' cannot be fetched ({reason}): check name and network, or download it and name "
            f"{LOCAL}<folder>"
        ) from None


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
        config = content.get("model_cfg", content)
        text, preprocess = config["text_cfg"], dict(content.get("preprocess_cfg", {}))
        for block in (text, config["vision_cfg"]):
            block.items()
        for name, size in (("embed_dim", config["embed_dim"]), ("context_length", text.get("context_length", 77))):
            if not (isinstance(size, int) and size > 0):
                raise ValueError(f"{name} is {size}")
    except FileNotFoundError:
        raise InputError(f"{path} is missing: name a folder or file with a configuration of open_clip") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not an open_clip configuration ({error}): correct it") from None
    _name_folders(text, path)
    return config, preprocess


def _name_folders(text: dict[str, Any], path: Path) -> None:
    """Replace Hugging Face names by the folders beside the configuration that hold their files."""
    files = {"hf_tokenizer_name": "tokenizer_config.json", "hf_model_name": "config.json"}
    for key, file in files.items():
        if key not in text:
            continue
        place = path.parent / text[key]
        if place.is_dir():
            if path.name == CONFIG and not place.resolve().is_relative_to(path.parent.resolve()):
                raise InputError(f"{path}: text_cfg.{key} names '{text[key]}' outside its folder: copy the files there")
            text[key] = str(place)
        elif path.name == CONFIG and (path.parent / file).is_file():
            text[key] = str(path.parent)


def _as_dual_encoder(config: dict[str, Any]) -> dict[str, Any]:
    """A CoCa model without its decoder, which writes captions; other configurations as they are."""
    if "multimodal_cfg" not in config:
        return config
    dual = {key: value for key, value in config.items() if key != "multimodal_cfg"}
    towers = {key: {**dual[key], "output_tokens": False} for key in ("vision_cfg", "text_cfg")}
    return {**dual, **towers, "custom_text": True}


def preparation_of(config: dict[str, Any], preprocess: Mapping[str, Any], model: str) -> Preparation:
    """The preparation of a configuration's pictures; `preprocess` has values that are not CLIP's."""
    size = config["vision_cfg"].get("image_size", 224)
    sides = {size} if isinstance(size, int) else set(size)
    if len(sides) > 1:
        raise InputError(f"model '{model}' takes pictures of {size} pixels, which are not square: choose another model")
    try:
        return Preparation(size=sides.pop(), **preprocess)
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(str(part) for part in fault["loc"])
        raise InputError(f"model '{model}': preprocess_cfg.{key}: {fault['msg']}") from None


def pooling_of(text: dict[str, Any]) -> str:
    """The token or tokens that the feature of a text tower with this configuration comes from."""
    if text.get("embed_cls"):
        return "class token"
    named = text.get("hf_pooler_type", "pooler") if text.get("hf_model_name") else text.get("pool_type", "argmax")
    return "mean" if "language_model" in text else str(named)


def without_folders(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration without local paths, whose files are saved in the encoder's folder."""
    text = {
        key: Path(value).name if key.startswith("hf_") and Path(str(value)).is_dir() else value
        for key, value in config["text_cfg"].items()
    }
    return {**config, "text_cfg": text}
