"""Sources of image-caption pairs, one file each; a file's name is the source's name."""

from __future__ import annotations

from components.core.system.discovery import file_names, find
from components.data.source import Source


def find_source(name: str) -> Source:
    """The source in `sources/<name>.py`."""
    source: Source = find(__name__, file_names(__path__), name, "SOURCE", "params.yaml: prepare.source")
    return source
