"""Where a comparison's numbers come from: code, packages, data and parameters."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import yaml

from components.benchmarks.embedded import find_benchmark, table_files
from components.core.files import file_hash
from components.core.provenance import git_commit
from components.core.settings import Settings
from components.evaluation.results import Folders

PACKAGES = (
    "cliptune", "numpy", "torch", "torchvision", "open_clip_torch", "transformers", "safetensors", "pillow", "pyarrow",
    "mlflow", "dvc", "plotly",
)  # fmt: skip
_SECRET_KEY = re.compile(r"(^|_)(password|secret|token|api_key|credentials?)$", re.IGNORECASE)
_SECRET_IN_URL = re.compile(r"(?<=://)[^/@\s]*(?=@)|(?<=password=)[^&\s]*", re.IGNORECASE)


@dataclass(frozen=True)
class Origin:
    """Everything that the page tells of its own making.

    Attributes:
        commit: the code that compared, empty outside a repository.
        dirty: whether tracked files differed from it.
        packages: name -> version.
        data: file -> SHA-256.
        protocols: benchmark -> protocol version.
        params: params.yaml as read, without secrets.
    """

    commit: str = ""
    dirty: bool = False
    packages: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    protocols: Mapping[str, str] = field(default_factory=dict)
    params: str = ""


def trace_origin(settings: Settings, protocol: str, folders: Folders) -> Origin:
    """The origin of a comparison that is made now.

    Args:
        settings: all parameters.
        protocol: benchmarks with their versions as an encoder's results give them.
        folders: of the test pairs and the benchmark tables, whose files are hashed.

    Raises:
        InputError: a benchmark table is missing.
    """
    commit = git_commit()
    tables = table_files(map(find_benchmark, settings.evaluate.benchmarks), folders.evaluation)
    return Origin(
        commit=commit.removesuffix("-dirty"),
        dirty=commit.endswith("-dirty"),
        packages={"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        data={str(path): file_hash(path) for path in (folders.test_pairs, *tables) if path.is_file()},
        protocols=dict(part.split("=", 1) for part in protocol.split() if "=" in part),
        params=yaml.safe_dump(without_secrets(settings.model_dump(mode="json", by_alias=True)), sort_keys=False),
    )


def without_secrets(value: Any, key: str = "") -> Any:
    """The same structure with `***` for secrets: values of keys such as `password`, and passwords within URLs."""
    if isinstance(value, Mapping):
        return {name: without_secrets(entry, str(name)) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(entry, key) for entry in value]
    if isinstance(value, str):
        return "***" if value and _SECRET_KEY.search(key) else _SECRET_IN_URL.sub("***", value)
    return value


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
