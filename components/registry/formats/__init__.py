"""Formats that encoders are exported to, one file each; a file's name is the format's name."""

from __future__ import annotations

from components.discovery import file_names, find
from components.registry.formats.format import Format


def find_format(name: str) -> Format:
    """The format in `formats/<name>.py`.

    Raises:
        InputError: there is no such file; the message lists those that are.
    """
    found: Format = find(__name__, file_names(__path__, skip=("format", "clip_weights")), name, "FORMAT", "--format")
    return found
