"""Sources of images: pictures in folders or shards, and vectors of this project, of other indexes or of other tools."""

from __future__ import annotations

from collections.abc import Mapping

from components.core.settings import PARAMS, Counts, Prepare, load_settings
from components.core.system.discovery import choose
from components.core.system.errors import InputError
from components.serving.index.sources import pictures, vectors
from components.serving.index.sources.source import ImageSource

SOURCES = {
    "embeddings": vectors.EMBEDDINGS,
    "folder": pictures.FOLDER,
    "index": vectors.INDEX,
    "project": vectors.PROJECT,
    "shards": pictures.SHARDS,
}


def find_source(name: str) -> ImageSource:
    """The source of this name."""
    return SOURCES[choose(list(SOURCES), name, "--source")]


def source_of(given: str) -> str:
    """The name of the source that fits a path or pattern."""
    fitting = [name for name, source in SOURCES.items() if source.fits(given)]
    if not fitting:
        raise InputError(
            f"--from {given} is not a project's data folder, a folder of pictures, shards, embeddings or an index: "
            "correct the path"
        )
    # An index has vectors, and any folder may have pictures in it.
    fitting = ["index"] if "index" in fitting else [name for name in fitting if name != "folder"] or fitting
    if len(fitting) > 1:
        raise InputError(f"--from {given} may be {' or '.join(fitting)}: choose one with --source")
    return fitting[0]


def reading(fields: Mapping[str, str | None]) -> Prepare:
    """The bounds of params.yaml, or their defaults outside a project, and the fields `text`, `item` and `image`."""
    usual = Prepare(source="folder", counts=Counts(train=1, val=1, test=1))
    return (load_settings().prepare if PARAMS.is_file() else usual).model_copy(update=dict(fields))
