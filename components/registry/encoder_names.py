"""Recognises the form of an encoder's name, without heavy imports."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from components.core.settings import load_settings
from components.core.system.discovery import choose
from components.core.system.errors import InputError
from components.core.system.project import from_root
from components.encoders.adapter.model_configs import CONFIG, HUB, LOCAL
from components.encoders.adapter.sidecar import SIDECAR
from components.evaluation.scoring.results import DEFAULT

ALIAS = re.compile(r"^(?:models:/)?(?P<model>[^/@:]+)(?:@(?P<alias>[\w.-]+)|/(?P<version>\d+))$")
"""A registry's model with an alias or a version."""

RUN = re.compile(r"^(?:runs:/)?(?P<run>[0-9a-f]{32})$")
"""An MLflow run."""

_FORMS = (
    "an encoder's folder (models/paraclip, or paraclip), a sentence encoder's folder, an MLflow run id, "
    "text-encoder@champion or text-encoder/3, open_clip's ViT-B-32-quickgelu:openai, ViT-B-32:weights.safetensors, "
    "hf-hub:<org>/<name> or local-dir:<folder>"
)
_OWN_MODELS = Path(__file__).parents[1] / "encoders" / "adapter" / "models"


def folders_of(name: str) -> tuple[Path, Path]:
    """The folders that `name` may refer to, the likelier first."""
    return Path(name), DEFAULT.models / name


def is_sentence_encoder(folder: Path) -> bool:
    """Whether Hugging Face or sentence-transformers wrote a folder."""
    has = (folder / "config.json").is_file() or (folder / "modules.json").is_file()
    return has and not (folder / CONFIG).is_file()


def is_encoder(folder: Path) -> bool:
    """Whether a folder holds an encoder of this project, an open_clip model or a sentence encoder."""
    return any((folder / name).is_file() for name in (SIDECAR, CONFIG)) or is_sentence_encoder(folder)


def name_from_root(name: str) -> str:
    """A name from the command line with its folder or file relative to the project."""
    if name.startswith(LOCAL):
        return f"{LOCAL}{from_root(Path(name.removeprefix(LOCAL)))}"
    folder = from_root(Path(name))
    if is_encoder(folder):
        return str(folder)
    model, colon, weights = name.partition(":")
    file = from_root(Path(weights)) if colon else folder
    return f"{model}:{file}" if colon and file.is_file() else name


def check_name(name: str) -> None:
    """Refuse a name that cannot be an encoder's, without loading anything."""
    if name.startswith((HUB, LOCAL)) or any(map(is_encoder, folders_of(name))):
        return
    model, colon, _ = name.partition(":")
    if RUN.match(name) or ALIAS.match(name):
        return
    if colon:
        if not model.endswith(".json"):
            spec = importlib.util.find_spec("open_clip")
            places = (spec.submodule_search_locations or ()) if spec else ()
            folders = [*(Path(place) / "model_configs" for place in places), _OWN_MODELS]
            models = sorted(path.stem for folder in folders for path in folder.glob("*.json"))
            choose(models, model, f"--encoder '{name}': open_clip's model")
        return
    if name in (made := _made_here()):
        raise InputError(
            f"--encoder '{name}': {DEFAULT.models / name} does not exist: `dvc repro {made[name]}` makes it; if it is "
            "running, wait for its end"
        )
    raise InputError(f"--encoder '{name}' is unknown: give {_FORMS}")


def _made_here() -> dict[str, str]:
    """The encoders of params.yaml, each with its stage."""
    try:
        settings = load_settings()
        made = {name: f"train@{name}" for name in settings.methods} | {name: f"mix@{name}" for name in settings.mixes}
        return {"base": "base"} | made
    except InputError:
        return {}
