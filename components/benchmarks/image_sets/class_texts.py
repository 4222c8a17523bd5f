"""What a language model says about classes: descriptions of one, differences between two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.benchmarks.image_sets.image_set import lines
from components.core.errors import InputError
from components.core.metrics import Indices
from components.core.records import CLASS_DESCRIPTIONS, CLASS_DIFFERENCES

ASKED_CLASSES, ASKED_PAIRS = "class_names", "class_pairs"
"""What `PublishedContext.lists` calls the rows that the tasks `class_description` and `class_difference` read."""


@dataclass(frozen=True)
class Differences:
    """How classes differ.

    Attributes:
        texts: how a thing of class `described` looks different from one of class `other`.
        described: class numbers `[texts]`.
        other: class numbers `[texts]`.
    """

    texts: Sequence[str]
    described: Indices
    other: Indices


def class_descriptions(path: Path, classes: Sequence[str]) -> list[list[str]] | None:
    """Descriptions of each class, in the order of the classes; None where the file is about other classes.

    A `.txt` file has a line for each class, as PC-CLIP's `extended_classes` do; others are tables of class
    descriptions, of which every sample counts.

    Raises:
        InputError: the file is missing or damaged, or describes some of the classes and not all.
    """
    if path.suffix == ".txt":
        found = lines(path)
        if len(found) != len(classes):
            raise InputError(f"{path} has {len(found)} lines for {len(classes)} classes: put one on a line each")
        return [[line] for line in found]
    table = CLASS_DESCRIPTIONS.read(path)
    texts: dict[str, list[str]] = {}
    for name, description in zip(table["class_name"].to_pylist(), table["description"].to_pylist(), strict=True):
        texts.setdefault(_key(name), []).append(description)
    missing = [name for name in classes if _key(name) not in texts]
    if len(missing) == len(classes):
        return None
    if missing:
        raise InputError(
            f"{path} has no description of '{missing[0]}' ({len(missing)} such): have task class_description write them"
        )
    return [texts[_key(name)] for name in classes]


def class_differences(path: Path, *names: Sequence[str]) -> Differences | None:
    """Differences between classes of the set; rows about other classes are left out, None where no row remains.

    Args:
        path: a table of class differences.
        names: of all classes in their order; several lists where classes have several names.

    Raises:
        InputError: the file is missing or damaged.
    """
    table = CLASS_DIFFERENCES.read(path)
    numbers = {_key(name): number for classes in names for number, name in enumerate(classes)}
    columns = (table[name].to_pylist() for name in ("class_name", "other_class_name", "difference"))
    rows = [
        (text, numbers[_key(name)], numbers[_key(other)])
        for name, other, text in zip(*columns, strict=True)
        if {_key(name), _key(other)} <= numbers.keys() and _key(name) != _key(other)
    ]
    if not rows:
        return None
    texts, described, other_ones = zip(*rows, strict=True)
    return Differences(texts, np.array(described, dtype=np.int64), np.array(other_ones, dtype=np.int64))


def _key(name: str) -> str:
    return " ".join(name.lower().replace("_", " ").split())
