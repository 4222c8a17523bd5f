"""Sources of images: pictures in folders or shards, and vectors of this project, of other indexes or of other tools."""

from __future__ import annotations

from components.core.system.discovery import choose
from components.core.system.errors import InputError
from components.index.sources import pictures, vectors
from components.index.sources.source import ImageSource

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
    # Any folder may also have pictures in it.
    fitting = [name for name in fitting if name != "folder"] or fitting
    if len(fitting) > 1:
        raise InputError(f"--from {given} may be {' or '.join(fitting)}: choose one with --source")
    return fitting[0]
