"""Formats for exporting encoders, and the checks before an export; a file's name is its format's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from components.core.system.discovery import choose, file_names, find
from components.core.system.errors import InputError
from components.registry.encoder_names import check_name

if TYPE_CHECKING:
    from PIL import Image

    from components.encoders.adapter.encoder import Encoder, Vectors

S3_URL = "s3://"
_VARIANTS = {"onnx_int8": ("onnx", "INT8"), "vllm": ("huggingface", "VLLM")}
"""Formats that are in another one's file, and their constants there."""


@dataclass(frozen=True)
class ExportedVectors:
    """Unit vectors of texts `[texts, dim]` and images `[images, dim]`; no images if only the text tower is exported."""

    texts: Vectors
    images: Vectors | None = None


@dataclass(frozen=True)
class Format:
    """A folder layout that another library loads.

    Attributes:
        name: the format's name.
        refuse: raises `InputError` for an encoder that the library cannot represent.
        write: fills an empty folder.
        read: loads the folder with the library itself, including tokenizer and image preparation; returns vectors.
        usage: Python code that loads the folder; `{folder}` is its placeholder.
        notes: differences between the library's input processing and this project's.
        rounded: whether the weights are rounded, so that vectors differ and the export reports the loss.
    """

    name: str
    refuse: Callable[[Encoder], None]
    write: Callable[[Encoder, Path], None]
    read: Callable[[Path, Sequence[str], Sequence[Image.Image]], ExportedVectors]
    usage: str
    notes: tuple[str, ...] = ()
    rounded: bool = False


def format_names() -> list[str]:
    """The names of all formats, sorted."""
    return sorted([*file_names(__path__), *_VARIANTS])


def find_format(name: str) -> Format:
    """The format in `formats/<name>.py`; raises InputError with a list of the formats if there is none."""
    file, constant = _VARIANTS.get(name, (name, "FORMAT"))
    found: Format = find(__name__, format_names(), file, constant, "--format")
    return found


def check_export(name: str, format_name: str, output: str) -> None:
    """Raise InputError, before loading, if format or encoder is unknown or `output` is not new or cannot be written."""
    choose(format_names(), format_name, "--format")
    if output.startswith(S3_URL):
        from components.core.pictures.storage import S3

        if found := S3(attempts=1).etags(f"{output.rstrip('/')}/"):
            raise InputError(f"--output {output} has {len(found):,} objects, such as {min(found)}: name another prefix")
    else:
        _check_output(Path(output))
    check_name(name)


def _check_output(output: Path) -> None:
    if output.exists():
        raise InputError(f"--output {output} is there already: name a new folder, or remove it")
    try:
        # Permissions are not enough: root may write everywhere, but not to a read-only disk.
        with TemporaryDirectory(dir=next(folder for folder in output.absolute().parents if folder.exists())):
            pass
    except OSError as error:
        raise InputError(f"--output {output} cannot be written ({error.strerror}): name another place") from None
