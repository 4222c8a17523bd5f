"""Formats that encoders are exported to, one file each; a file's name is the format's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from components.core.discovery import file_names, find

if TYPE_CHECKING:
    from components.registry.formats.format import Format


def format_names() -> list[str]:
    """The names of all formats, sorted."""
    return file_names(__path__, skip=("format", "clip_weights", "onnx_graph"))


def find_format(name: str) -> Format:
    """The format in `formats/<name>.py`.

    Raises:
        InputError: there is no such file; the message lists those that are.
    """
    found: Format = find(__name__, format_names(), name, "FORMAT", "--format")
    return found
