"""Keys by which a pair is found in a published test set: of its picture's name, its picture's bytes, its text.

A name identifies a picture only if it has a number of one publisher. `0001.jpg` is in many folders, and bare numbers as
in COCO and Visual Genome are ambiguous, as shards of img2dataset also have nine to twelve digits. So a number counts if
the name or a parent folder shows the publisher:

- COCO: `COCO_val2014_000000391895.jpg`, `train2017/000000391895.jpg`, twelve digits below a folder `coco...`. An image
  has the same number in all of COCO's years and parts; those of `val2014` are also in `train2017`.
- Flickr: `1000268201_693b08cb0e.jpg`, a photo's number and its secret, or a number below `flickr8k...`, `flickr30k...`.
- Visual Genome: a number below `VG_100K`, `visual_genome...` or `gqa...`.
- CC-Neg: a number below `cc3m_subset_images...`, its published folder.
- ImageNet: `ILSVRC2012_val_00000001.JPEG`.

Pictures without such a name are still found by their bytes and their text.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from components.core.text import normalised

_END = r"(?:\.\w+)?$"
_BELOW = rf"(?:^|/){{folder}}/(?:[^/]+/)*0*{{digits}}(?:_[a-z])?{_END}"
_NAMES = tuple(
    (owner, re.compile(pattern))
    for owner, pattern in (
        ("coco", rf"(?:^|/)coco_(?:train|val|test)\d{{4}}_0*(\d+){_END}"),
        ("coco", rf"(?:^|/)(?:train|val|test|unlabeled)20(?:14|15|17)/0*(\d+){_END}"),
        ("coco", rf"(?:^|/)(?:ms-?)?coco[^/]*/(?:[^/]+/)*(?=\d{{12}}\b)0*(\d+){_END}"),
        ("flickr", rf"(?:^|/)([1-9]\d{{4,10}})_[0-9a-f]{{10}}(?:_[a-z])?{_END}"),
        ("flickr", _BELOW.format(folder=r"flickr_?(?:8|30)k[^/]*", digits=r"([1-9]\d*)")),
        ("vg", _BELOW.format(folder=r"(?:vg_100k(?:_2)?|visual_?genome[^/]*|gqa[^/]*)", digits=r"([1-9]\d*)")),
        ("cc3m", _BELOW.format(folder=r"cc3m_subset_images[^/]*", digits=r"(\d+)")),
        ("imagenet", rf"(?:^|/)(ilsvrc\d{{4}}_(?:val|test)_\d+){_END}"),
    )
)


def name_key(path: str) -> bytes | None:
    """16 bytes that all names of one published picture share; None for a name that does not identify a picture.

    Args:
        path: the picture's path with all known folders, separated by `/`; the ending may be missing, as in shards.
    """
    # Numbers in a shard belong to the shard, whatever its name is.
    folded = path.casefold().rpartition(".tar/")[2]
    for owner, pattern in _NAMES:
        if found := pattern.search(folded):
            return _digest(f"{owner} {found[1]}".encode())
    return None


def picture_key(encoded: bytes) -> bytes:
    """16 bytes that equal files share."""
    return _digest(encoded)


def text_key(text: str) -> bytes | None:
    """16 bytes that texts of the same letters and digits share; None for a text without any."""
    letters = normalised(text)
    return _digest(letters.encode()) if letters else None


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()
