"""The words for splits, and the images that are held out where no split is published."""

from __future__ import annotations

import re

from components.core.files import content_hash
from components.data.source import UnusableError

HELD_OUT_FIRST = ("test", "val", "train")
_WORDS = {
    "train": ("train", "training", "restval"),
    "val": ("val", "validation", "valid", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
"""Those by which Hugging Face's `datasets` knows a file's split (data_files.py), and Karpathy's `restval`."""
_SPLITS = {word: split for split, words in _WORDS.items() for word in words}
_IN_NAME = re.compile(rf"(?:^|[^a-z])({'|'.join(_SPLITS)})(?:[^a-z]|$)")


def split_said(place: str, word: object) -> str:
    """The split that a publisher's word means; empty where there is no word.

    >>> split_said("row 1", "Validation "), split_said("row 1", None)
    ('val', '')

    Raises:
        UnusableError: it means no split; the message begins with `place`.
    """
    found = {"": "", **_SPLITS}.get(str("" if word is None else word).strip().lower())
    if found is None:
        raise UnusableError(f"{place} has split '{str(word)[:40]}': write train, val or test, or nothing")
    return found


def split_named(path: str) -> str:
    """The split that a file's name, or else its folder's, has in it as a word; empty where neither has.

    >>> split_named("s3://bucket/val2017/00000.tar"), split_named("Test_0.parquet"), split_named("trained/0.tar")
    ('val', 'test', '')
    """
    *_, folder, name = ("", *path.split("/"))
    named = _IN_NAME.search(name.lower()) or _IN_NAME.search(folder.lower())
    return _SPLITS[named[1]] if named else ""


def drawing_order(seed: int, image: str) -> str:
    """The key by whose order images are drawn: the first test, the next validate, and all others train.

    It is the image's own. One image more moves at most one from `val` to `train` and one from `test` to `val`, and none
    that trained can test.
    """
    return content_hash(str(seed), image)
