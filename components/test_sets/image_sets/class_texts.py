"""LLM-written texts about classes: descriptions of one class, differences between two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.core.compute.metrics import Indices
from components.core.system.errors import InputError
from components.core.tables.records import CLASS_DESCRIPTIONS, CLASS_DIFFERENCES
from components.test_sets.image_sets.image_set import lines

ASKED_CLASSES, ASKED_PAIRS = "class_names", "class_pairs"
"""Names, in `PublishedContext.lists`, of the rows that the tasks `class_description` and `class_difference` read."""


@dataclass(frozen=True)
class ClassDifferences:
    """Texts about how classes differ.

    Attributes:
        texts: how a thing of class `described` looks different from one of class `other`.
        described: class numbers `[texts]`.
        other: class numbers `[texts]`.
    """

    texts: Sequence[str]
    described: Indices
    other: Indices


def class_descriptions(path: Path, classes: Sequence[str]) -> list[list[str]] | None:
    """Descriptions of each class, in the order of the classes; None if the file is about other classes.

    A `.txt` file has a line for each class, as PC-CLIP's `extended_classes` do; other files are tables of
    class descriptions, of which every sample counts.
    """
    if path.suffix == ".txt":
        descriptions = lines(path)
        if len(descriptions) != len(classes):
            raise InputError(
                f"{path} has {len(descriptions)} lines for {len(classes)} classes: write one description per line"
            )
        return [[line] for line in descriptions]
    table = CLASS_DESCRIPTIONS.read(path)
    texts: dict[str, list[str]] = {}
    for name, description in zip(table["class_name"].to_pylist(), table["description"].to_pylist(), strict=True):
        texts.setdefault(_key(name), []).append(description)
    missing = [name for name in classes if _key(name) not in texts]
    if len(missing) == len(classes):
        return None
    if missing:
        raise InputError(
            f"{path} has no description of '{missing[0]}' ({len(missing)} such): run task class_description"
        )
    return [texts[_key(name)] for name in classes]


def class_differences(path: Path, *names: Sequence[str]) -> ClassDifferences | None:
    """Differences between classes of the set; rows about other classes are skipped, None if no row remains.

    Args:
        path: a table of class differences.
        names: of all classes in their order; several lists if classes have several names.
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
    texts, described, others = zip(*rows, strict=True)
    return ClassDifferences(texts, np.array(described, dtype=np.int64), np.array(others, dtype=np.int64))


def _key(name: str) -> str:
    return " ".join(name.lower().replace("_", " ").split())
