"""Checks the arguments of an export before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from components.core.discovery import choose
from components.core.errors import InputError
from components.registry.encoder_names import check_name
from components.registry.formats import format_names

S3_URL = "s3://"


def check_export(name: str, format_name: str, output: str) -> None:
    """Refuse what an export would fail on at its end.

    Raises:
        InputError: the format or the encoder is unknown, or `output` is there already or cannot be written.
    """
    choose(format_names(), format_name, "--format")
    if not output.startswith(S3_URL):
        _check_place(Path(output))
    check_name(name)


def _check_place(output: Path) -> None:
    if output.exists():
        raise InputError(f"--output {output} is there already: name a new folder, or remove it")
    try:
        # Rights alone do not tell: root may write everywhere, but not to a read-only disk.
        with TemporaryDirectory(dir=next(folder for folder in output.absolute().parents if folder.exists())):
            pass
    except OSError as error:
        raise InputError(f"--output {output} cannot be written ({error.strerror}): name another place") from None
