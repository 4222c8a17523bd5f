"""Class names as the papers' released code puts them into prompts: torchvision's, to the letter, or the authors' own.

PC-CLIP (github.com/dsam99/pc_clip, data/dataset.py) has the folders' names for EuroSAT, the underscores of CUB and
SUN397, a list of its own for Flowers-102, and for CIFAR-100 the names of Hugging Face's copy of that time, which calls
the crab "cra". SemCLIP asks torchvision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from components.benchmarks.image_sets.facts import ImageSetFacts
from components.benchmarks.image_sets.image_set import ImageSet
from components.core.errors import InputError

_TORCHVISION_FLOWERS = {
    "globe flower": "globe-flower",
    "pink and yellow dahlia": "pink-yellow dahlia?",
    "air plant": "ball moss",
}
SEMCLIP: Mapping[str, Mapping[str, str]] = {"flowers102": _TORCHVISION_FLOWERS}
PC_CLIP: Mapping[str, Mapping[str, str]] = {
    "flowers102": _TORCHVISION_FLOWERS | {"colt's foot": "colts foot"},
    "cifar100": {"crab": "cra"},
}


def released_names(
    folder: Path, facts: ImageSetFacts, found: ImageSet, renamed: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Names in the order of the classes.

    Args:
        folder: the set's, for the message.
        facts: of the set.
        found: the set as it was read, with class names.
        renamed: set -> name -> what the code calls it instead.

    Raises:
        InputError: the set lies in files that do not have the names.
    """
    known: Sequence[str] | None = next(
        (names for names in (facts.class_folders, facts.class_names, found.torchvision_names) if names), None
    )
    if known is None and not any(" " in name for name in found.class_names or ()):
        known = found.class_names
    if known is None or isinstance(known, str):
        raise InputError(
            f"{folder} does not have the class names of {facts.title} letter by letter, which the released code uses: "
            "put there the files of its authors"
        )
    return [renamed.get(facts.name, {}).get(name, name) for name in known]
