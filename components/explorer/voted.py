"""Results of the votes: wins per encoder, and rows for paraphrased retrieval."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel

from components.core.system.errors import InputError
from components.core.tables.files import atomic_file
from components.data.listed_images import Listing
from components.registry.votes import Vote, Wins, wins


class Standing(BaseModel):
    """Wins of one encoder against another; a pair of encoders has two standings."""

    encoder: str
    against: str
    wins: Wins


def standings(votes: Sequence[Vote]) -> list[Standing]:
    """All pairs with votes, those with most votes first; different weights of one name get their hash as suffix."""
    names, pairs = dict[str, str](), dict[tuple[str, str], int]()
    for vote in votes:
        names |= {vote.first_sha256: vote.first, vote.second_sha256: vote.second}
        low, high = sorted((vote.first_sha256, vote.second_sha256))
        pairs[low, high] = pairs.get((low, high), 0) + 1
    called = {
        sha256: name if list(names.values()).count(name) == 1 else f"{name} {sha256[:8]}"
        for sha256, name in names.items()
    }
    found = []
    for low, high in sorted(pairs, key=lambda pair: -pairs[pair]):
        for one, other in ((low, high), (high, low)):
            found.append(Standing(encoder=called[one], against=called[other], wins=wins(votes, one, other)))
    return found


def write_captions(votes: Sequence[Vote], path: Path, folder: Path | None = None) -> tuple[int, int]:
    """Write `captions.tsv` for source `folder`.

    Every query with a marked picture is a test caption of that picture, and its other wording is the paraphrase for
    paraphrased retrieval.

    Args:
        path: the file, in the folder of the pictures.
        folder: another folder of pictures, `prepare.folder`.

    Returns:
        Number of rows written, and of rows left out because their picture is not a file of these folders.
    """
    marked = dict.fromkeys(
        (vote.image, _flat(vote.query), _flat(vote.paraphrase)) for vote in votes if vote.image and vote.paraphrase
    )
    folders = [Listing(path, place, []) for place in (path.parent, folder) if place is not None]
    rows = [row for row in marked if _is_field(row[0]) and any(place.has_image(row[0]) for place in folders)]
    if not rows:
        raise InputError(
            f"no row for {path}: {len(marked)} queries have a paraphrase and a marked picture, and no such picture is "
            f"a file in {' or '.join(str(place.folder) for place in folders)}: write to the folder of the pictures"
        )
    with atomic_file(path) as temporary:
        lines = [("image", "caption", "paraphrase", "split"), *((*row, "test") for row in rows)]
        temporary.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")
    return len(rows), len(marked) - len(rows)


def _is_field(image: str) -> bool:
    return "\t" not in image and image.splitlines() == [image]


def _flat(text: str) -> str:
    return " ".join(text.split())
