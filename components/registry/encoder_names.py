"""Tells by its form what kind of encoder a name means, without loading or importing anything heavy."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from components.core.discovery import choose
from components.core.errors import InputError
from components.core.project import from_root
from components.core.settings import load_settings
from components.encoders.adapter.sidecar import SIDECAR
from components.evaluation.results import DEFAULT

ALIAS = re.compile(r"^(?:models:/)?(?P<model>[^/@:]+)(?:@(?P<alias>[\w.-]+)|/(?P<version>\d+))$")
"""A registry's model with an alias or a version."""

RUN = re.compile(r"^(?:runs:/)?(?P<run>[0-9a-f]{32})$")
"""An MLflow run."""

_FORMS = (
    "an encoder's folder (models/paraclip, or paraclip), a sentence encoder's folder, an MLflow run id, "
    "text-encoder@champion or text-encoder/3, open_clip's ViT-B-32-quickgelu:openai, or ViT-B-32:weights.safetensors"
)
_OWN_MODELS = Path(__file__).parents[1] / "encoders" / "adapter" / "models"


def folders_of(name: str, models: Path = DEFAULT.models) -> tuple[Path, Path]:
    """The folders that `name` may mean, the likelier first."""
    return Path(name), models / name


def is_sentence_encoder(folder: Path) -> bool:
    """Whether a folder holds what Hugging Face or sentence-transformers wrote."""
    return (folder / "config.json").is_file() or (folder / "modules.json").is_file()


def name_from_root(name: str) -> str:
    """A name as the user typed it, as it is called in the project's folder: folders and files are seen from there."""
    folder = from_root(Path(name))
    if (folder / SIDECAR).is_file() or is_sentence_encoder(folder):
        return str(folder)
    model, colon, weights = name.partition(":")
    file = from_root(Path(weights)) if colon else folder
    return f"{model}:{file}" if colon and file.is_file() else name


def check_name(name: str, models: Path = DEFAULT.models) -> None:
    """Refuse a name that cannot be an encoder's, as far as looking tells.

    Raises:
        InputError: it has none of the forms there are, names a model that open_clip does not have, or an encoder of
            params.yaml that is not made yet.
    """
    if any((folder / SIDECAR).is_file() or is_sentence_encoder(folder) for folder in folders_of(name, models)):
        return
    model, colon, _ = name.partition(":")
    if RUN.match(name) or ALIAS.match(name):
        return
    if colon:
        if not model.endswith(".json"):
            choose(_open_clip_models(), model, f"--encoder '{name}': open_clip's model")
        return
    if name in (made := _made_here()):
        raise InputError(
            f"--encoder '{name}': {models / name} is not there: `dvc repro {made[name]}` makes it; if that is running "
            "now, wait for its end"
        )
    raise InputError(f"--encoder '{name}' is nothing that is known here: give {_FORMS}")


def _open_clip_models() -> list[str]:
    spec = importlib.util.find_spec("open_clip")
    folders = [Path(place) / "model_configs" for place in (spec.submodule_search_locations or ())] if spec else []
    return sorted(path.stem for folder in (*folders, _OWN_MODELS) for path in folder.glob("*.json"))


def _made_here() -> dict[str, str]:
    """The encoders of params.yaml, each with the stage that makes it."""
    try:
        settings = load_settings()
        made = {name: f"train@{name}" for name in settings.methods} | {name: f"mix@{name}" for name in settings.mixes}
        return {"base": "base"} | made
    except InputError:
        return {}
