"""The numbers of all formats that cliptune writes and reads: raise one where an older reader would misread a file.

A file without a number has format 1. A reader takes the formats of the last two releases, and refuses a newer one.
Records of format 1 carry no number, so that 0.2.0 reads them.
"""

from __future__ import annotations

from pathlib import Path

from components.core.system.errors import InputError

ENCODER = 2
"""`encoder.json` and the weights beside it. 1 had the size of pictures in place of their preparation."""
CHECKPOINT = 2
"""Of a training; 1 lacks the early metrics."""
INDEX = 2
"""Of image indexes. 1 is not read: its pictures were not upright."""
STORE = "0003"
"""Tables of the store of answers. 0001 has only `generations`; 0002 had a table `claims`, which nothing reads."""
REVIEWS = 1
DECISION = 1
RESULTS = 1
"""Results of an encoder, in `reports/` and beside a registered version."""
TEST_SET = 1
EMBEDDINGS = 1


class NewerFormatError(InputError):
    """A file is of a later version. It is not damaged, and must not be replaced or deleted."""


def refuse_newer(subject: str | Path, found: object, newest: int | str) -> None:
    """Raise `NewerFormatError` if the format `found` of a file is a higher number than this version reads."""
    if isinstance(found, type(newest)) and found > newest:  # type: ignore[operator]
        raise newer(subject, f"it has format {found}, this one reads {newest}")


def newer(subject: str | Path, reason: str) -> NewerFormatError:
    """The error about a file of a later version."""
    return NewerFormatError(f"{subject} was made by a newer cliptune ({reason}): update cliptune")
