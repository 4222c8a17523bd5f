"""Formats for exporting encoders, one file each; the file's name is the format's name."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from components.core.system.discovery import choose, file_names, find
from components.core.system.errors import InputError
from components.registry.encoder_names import check_name

if TYPE_CHECKING:
    from components.registry.formats.format import Format

S3_URL = "s3://"


def format_names() -> list[str]:
    """The names of all formats, sorted."""
    return file_names(__path__, skip=("format",))


def find_format(name: str) -> Format:
    """The format in `formats/<name>.py`; raises InputError with a list of the formats if there is none."""
    export_format: Format = find(__name__, format_names(), name, "FORMAT", "--format")
    return export_format


def check_export(name: str, format_name: str, output: str) -> None:
    """Raise InputError, before loading, if format or encoder is unknown or `output` is not new or cannot be written."""
    choose(format_names(), format_name, "--format")
    if output.startswith(S3_URL):
        _check_prefix(output)
    else:
        _check_output(Path(output))
    check_name(name)


def _check_prefix(url: str) -> None:
    from components.core.pictures.storage import S3

    if found := S3(attempts=1).etags(f"{url.rstrip('/')}/"):
        raise InputError(f"--output {url} has {len(found):,} objects, such as {min(found)}: name another prefix")


def _check_output(output: Path) -> None:
    if output.exists():
        raise InputError(f"--output {output} is there already: name a new folder, or remove it")
    try:
        # Permissions are not enough: root may write everywhere, but not to a read-only disk.
        with TemporaryDirectory(dir=next(folder for folder in output.absolute().parents if folder.exists())):
            pass
    except OSError as error:
        raise InputError(f"--output {output} cannot be written ({error.strerror}): name another place") from None
