"""The pictures in a user's folder; no other code looks for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from components.core.pictures.rgb import HEIC_FIX, is_heic, reads_heic
from components.core.system.errors import InputError
from components.core.system.user_files import Bound, RefusedError, checked_file, open_file, read_file

ENDINGS = frozenset(
    (
        ".jpg", ".jpeg", ".jfif", ".jpe", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".ppm", ".pgm",
        ".heic", ".heif", ".hif",
    )
)  # fmt: skip
"""Endings of pictures that no file lists."""
PICTURE_BOUND = Bound.of(64, "prepare.max_picture_mb")
"""The default bound of a picture's file."""
_COPIES = frozenset({"__macosx", "thumbs.db", "desktop.ini", "@eadir", "@recycle", "#recycle", "#snapshot"})


def is_ignored(name: str) -> bool:
    """Whether a path below a user's folder is not the user's file but one of the system's.

    Such files are hidden (`._photo.jpg`, `.thumbnails/`), or thumbnails and copies of a file system, such as `@eaDir/`
    of a NAS and `__MACOSX/` of an archive.

    >>> is_ignored("shop/._cup.jpg"), is_ignored("@eaDir/cup.jpg/SYNOPHOTO_THUMB_M.jpg"), is_ignored("./shop/cup.jpg")
    (True, True, False)
    """
    return is_copy(name) or any(part.startswith(".") and part != ".." for part in PurePosixPath(name).parts)


def is_copy(name: str) -> bool:
    """Whether a path is of a system's copy or thumbnail of a file; other hidden files in an archive are the user's."""
    return any(part.startswith("._") or part.lower() in _COPIES for part in PurePosixPath(name).parts)


@dataclass(frozen=True)
class FolderPictures:
    """The pictures in a folder and its subfolders.

    Attributes:
        names: their paths relative to the folder, with `/`, sorted.
        refused: one line for each file that may not be opened, with the fix.
        heic: number of HEIC files that cannot be read; 0 with `pillow-heif`.
    """

    folder: Path
    names: list[str]
    refused: list[str]
    heic: int

    @property
    def notes(self) -> list[str]:
        """The files that are left out, counted in one line for each reason, with the fix."""
        refused = [f"{len(self.refused):,} of its files, the first: {self.refused[0]}"] if self.refused else []
        return [*([heic_note(self.heic)] if self.heic else []), *refused]

    def require(self) -> None:
        """Raise `InputError` if there is no picture; the message has the notes."""
        if not self.names:
            kinds = ", ".join(sorted(ENDINGS))
            raise InputError("; ".join([f"{self.folder} has no pictures ({kinds}): correct the path", *self.notes]))


def pictures_in(folder: Path, most: Bound = PICTURE_BOUND) -> FolderPictures:
    """The pictures in a folder and its subfolders by their endings; links to folders are not followed.

    Files of the system (`is_ignored`) are skipped. Links to files outside, other than plain files, and files larger
    than `most` are left out and counted, as are HEIC files under any name while `pillow-heif` is not installed.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder: give the folder of the pictures")
    names, refused, heic = list[str](), list[str](), 0
    for name in sorted(picture_names(folder)):
        try:
            check_picture_file(folder / name, folder, most)
            names.append(name)
        except HeicError:
            heic += 1
        except RefusedError as error:
            refused.append(str(error))
    return FolderPictures(folder, names, refused, heic)


def files_in(folder: Path, *patterns: str) -> list[Path]:
    """The user's files in a folder whose paths match one of the patterns, such as `*.tar` and `*/*.tar`, sorted.

    Raises:
        RefusedError: one is a link to a file outside the folder, or not a plain file.
    """
    found = sorted(path for pattern in patterns for path in folder.glob(pattern) if not path.is_dir())
    found = [path for path in found if not is_ignored(path.relative_to(folder).as_posix())]
    for path in found:
        checked_file(path, folder, None)
    return found


def heic_note(count: int) -> str:
    """The line about HEIC files that cannot be read."""
    return f"{count:,} HEIC file{'s' if count > 1 else ''}: {HEIC_FIX}"


def picture_names(folder: Path) -> Iterator[str]:
    """The paths of files with a picture's ending, relative to the folder, in no order; the files are not looked at."""
    for place, folders, files in os.walk(folder):
        below = Path(place).relative_to(folder)
        folders[:] = [name for name in folders if not is_ignored(name)]
        for name in files:
            if not is_ignored(name) and Path(name).suffix.lower() in ENDINGS:
                yield (below / name).as_posix()


class HeicError(RefusedError):
    """A HEIC file, which cannot be read without `pillow-heif`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, f"is a HEIC file: {HEIC_FIX}")


def check_picture_file(path: Path, folder: Path | None, most: Bound = PICTURE_BOUND) -> None:
    """Check a user's picture without decoding it; for arguments see `components.core.system.user_files.checked_file`.

    Raises:
        RefusedError: it may not be opened, or it is a HEIC file that cannot be read.
    """
    if reads_heic():
        checked_file(path, folder, most)
        return
    with open_file(path, folder, most) as stream:
        _refuse_heic(path, stream.read(64))


def read_picture(path: Path, folder: Path | None, most: Bound = PICTURE_BOUND) -> bytes:
    """The encoded bytes of a user's picture; for arguments and errors see `check_picture_file`."""
    encoded = read_file(path, folder, most)
    _refuse_heic(path, encoded)
    return encoded


def _refuse_heic(path: Path, first: bytes) -> None:
    if is_heic(first) and not reads_heic():
        raise HeicError(path)
