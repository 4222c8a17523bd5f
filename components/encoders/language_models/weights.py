"""Identifies a model's weights without loading them: by a folder's content, or a revision on Hugging Face."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from components.core.system.errors import InputError
from components.core.system.progress import track
from components.core.tables.files import content_hash, file_hash

GGUF = ".gguf"
_WEIGHTS = frozenset({".safetensors", ".bin", GGUF})
_KINDS = _WEIGHTS | {".jinja"}
"""Weights and chat template. Other files are ignored: saving the same model again changes them."""
_SLOW = 4 << 30


@dataclass(frozen=True)
class Weights:
    """A causal language model that transformers and vLLM can load."""

    source: str
    revision: str
    """Hash of the folder's weights and chat template, or commit or tag of the name."""
    folder: bool

    @property
    def label(self) -> str:
        """Name and revision, the same on every machine: of a folder's path only the last part counts."""
        return f"{Path(self.source).resolve().name if self.folder else self.source}@{self.revision}"

    @property
    def commit(self) -> str | None:
        """The revision to load, None for a folder or file."""
        return None if self.folder else self.revision


def find_weights(model: str, revision: str | None = None) -> Weights:
    """The weights of a Hugging Face folder or name, or a GGUF file; a name is looked up in the local cache."""
    if model.endswith(GGUF):
        if not Path(model).is_file():
            raise InputError(f"model file {model} is missing: fetch it, or correct its path in params.yaml")
        return Weights(model, file_hash(Path(model))[:16], True)
    if Path(model).is_dir():
        return Weights(model, _folder_hash(Path(model)), True)
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(model, "config.json")
    except HFValidationError:
        raise InputError(f"model folder {model} is missing: make it, or correct its path in params.yaml") from None
    if revision is not None:
        return Weights(model, revision, False)
    if not isinstance(cached, str):
        raise InputError(
            f"model {model} is neither a folder nor in the Hugging Face cache: run `hf download {model}`, or name a "
            "`revision` next to it"
        )
    return Weights(model, Path(cached).parent.name, False)


def _folder_hash(folder: Path) -> str:
    files = sorted(path for path in folder.iterdir() if path.suffix in _KINDS and path.is_file())
    if not any(path.suffix in _WEIGHTS for path in files):
        raise InputError(f"model folder {folder} has no weights: save a model there, or correct its path")
    large = sum(path.stat().st_size for path in files) > _SLOW
    hashed = track(files, f"reading {folder.name}", len(files), "file") if large else iter(files)
    parts = [part for path in hashed for part in (path.name, file_hash(path))]
    return content_hash(*parts, *_template_in_settings(folder / "tokenizer_config.json"))[:16]


def _template_in_settings(path: Path) -> Iterator[str]:
    """The chat template in the tokenizer's settings, where some models have it instead of in a file."""
    try:
        template = json.loads(path.read_text("utf-8")).get("chat_template")
    except (OSError, ValueError, AttributeError):
        # Without readable settings the model cannot be loaded, which is reported then.
        return
    if template:
        yield json.dumps(template)


def check_weight_index(folder: str | Path) -> None:
    """Check that weights which an index file names are beside it, so that a hash of the folder covers them."""
    for path in sorted(Path(folder).rglob("*.index.json")):
        try:
            named = sorted(set(json.loads(path.read_text("utf-8"))["weight_map"].values()))
            outside = next((name for name in named if Path(name).name != name), None)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is not an index of weights ({error}): fetch or save the model again") from None
        if outside is not None:
            raise InputError(f"{path} names weights outside its folder, '{outside}': put all files beside it")
