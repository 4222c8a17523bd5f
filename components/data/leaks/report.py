"""Keys by which published pictures and texts are known, and what stage `prepare` found of published test sets."""

from __future__ import annotations

import re
from hashlib import blake2b
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from components.core.errors import InputError
from components.core.records import PUBLISHED_TEXTS
from components.core.words import normalised

_BELOW = r"(?:^|/){folder}/(?:[^/]+/)*0*{digits}(?:_[a-z])?\.\w+$"
_NAMES = tuple(
    (owner, re.compile(pattern))
    for owner, pattern in (
        ("coco", r"(?:^|/)coco_(?:train|val|test)\d{4}_0*(\d+)\.\w+$"),
        ("coco", r"(?:^|/)(?:train|val|test|unlabeled)20(?:14|15|17)/0*(\d+)\.\w+$"),
        ("coco", r"(?:^|/)(?:ms-?)?coco[^/]*/(?:[^/]+/)*(?=\d{12}\.)0*(\d+)\.\w+$"),
        ("flickr", r"(?:^|/)([1-9]\d{4,10})_[0-9a-f]{10}(?:_[a-z])?\.\w+$"),
        ("flickr", _BELOW.format(folder=r"flickr_?(?:8|30)k[^/]*", digits=r"([1-9]\d*)")),
        ("vg", _BELOW.format(folder=r"(?:vg_100k(?:_2)?|visual_?genome[^/]*|gqa[^/]*)", digits=r"([1-9]\d*)")),
        ("cc3m", _BELOW.format(folder=r"cc3m_subset_images[^/]*", digits=r"(\d+)")),
        ("imagenet", r"(?:^|/)(ilsvrc\d{4}_(?:val|test)_\d+)\.\w+$"),
    )
)


def name_key(path: str) -> bytes | None:
    """16 bytes that all names of one published picture share; None where a name does not say which picture it is.

    Args:
        path: the picture's path with as many folders as are known, separated by `/`.
    """
    folded = path.casefold()
    for owner, pattern in _NAMES:
        if found := pattern.search(folded):
            return _digest(f"{owner} {found[1]}".encode())
    return None


def picture_key(encoded: bytes) -> bytes:
    """16 bytes that equal files of a picture share."""
    return _digest(encoded)


def text_key(text: str) -> bytes | None:
    """16 bytes that texts of the same letters and digits share; None for a text that has neither."""
    letters = normalised(text)
    return _digest(letters.encode()) if letters else None


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


FOLDER = Path("data/leaks")
COUNTS, TEXTS = "counts.json", "texts.parquet"


class LeakCounts(BaseModel):
    """Pairs that were dropped because a published test set holds them.

    Attributes:
        benchmarks: the folder of the test sets; None where none was given.
        checked: the test sets that no pair is in.
        unread: test sets that are there and cannot be read, and why.
        found: test set -> way (`name`, `content` or `text`) -> dropped pairs; one pair may count in several.
        dropped: split -> pairs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    benchmarks: str | None
    checked: list[str]
    unread: dict[str, str]
    found: dict[str, dict[str, int]]
    dropped: dict[str, int]

    @property
    def told(self) -> str:
        """All of it in one line."""
        if self.benchmarks is None:
            return "no published test set was looked for (prepare.benchmarks names no folder)"
        split = " and ".join(f"{count} {split}" for split, count in sorted(self.dropped.items())) or "no"
        sets = ", ".join(
            f"{name}: {', '.join(f'{count} by {way}' for way, count in ways.items())}"
            for name, ways in self.found.items()
        )
        unread = "".join(f"; not looked for: {name} ({why})" for name, why in self.unread.items())
        return (
            f"{split} pairs dropped that are in published test sets{f' ({sets})' if sets else ''}; "
            f"looked for: {', '.join(self.checked) or 'none'}{unread}"
        )

    def tags(self) -> dict[str, str]:
        """Tags of an MLflow run."""
        counts = {f"leaks.{name}.{way}": str(n) for name, ways in self.found.items() for way, n in ways.items()}
        dropped = {f"leaks.dropped.{split}": str(count) for split, count in self.dropped.items()}
        # MLflow takes tags of 5,000 characters.
        return {"leaks": self.told[:5000]} | counts | dropped


def read_counts(folder: Path = FOLDER) -> LeakCounts | None:
    """What was found; None where stage `prepare` has not written it.

    Raises:
        InputError: the file is damaged.
    """
    path = folder / COUNTS
    if not path.is_file():
        return None
    try:
        return LeakCounts.model_validate_json(path.read_bytes())
    except ValidationError:
        raise InputError(f"{path} is damaged: run `dvc repro -f prepare`") from None


def leak_tags(folder: Path = FOLDER) -> dict[str, str]:
    """Tags of a run that trains on what stage `prepare` left; none where it has not written what it found.

    Raises:
        InputError: the file is damaged.
    """
    counts = read_counts(folder)
    return {} if counts is None else counts.tags()


def read_texts(folder: Path = FOLDER) -> dict[bytes, str]:
    """Key of each published test text (`text_key`) -> a test set that it is in.

    Raises:
        InputError: the file is damaged.
    """
    path = folder / TEXTS
    if not path.exists():
        return {}
    rows = PUBLISHED_TEXTS.read(path)
    return dict(zip(rows.column("key").to_pylist(), rows.column("test_set").to_pylist(), strict=True))


def find_text(text: str, known: dict[bytes, str]) -> str | None:
    """The test set of `known` that holds `text`, if one does."""
    key = text_key(text) if known else None
    return None if key is None else known.get(key)
