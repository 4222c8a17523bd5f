"""Texts about how two classes of AwA2 differ, by the rules of PC-CLIP's paper and by those of its released code.

The two differ in which attributes are left out as not visual and in which row of the matrix a class has
(github.com/dsam99/pc_clip, data/dataset.py): the code takes numbers that are counted from 1 for numbers counted from 0,
and it looks up the row of an alphabetical label, although rows follow `classes.txt`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from components.benchmarks.image_sets.attributes.awa2 import PREDICATES, Awa2
from components.core.metrics import Indices

Text = Callable[[int, int], str]
"""Text about the classes of two labels."""

NOT_VISUAL = (
    "smelly", "tunnels", "fast", "slow", "agility", "fish", "meat", "plankton", "insects", "forager", "grazer",
    "hunter", "scavenger", "skimmer", "stalker", "solitary",
)  # fmt: skip
"""Attributes that tell nothing about a picture; appendix A.4 names some, the comments of the released code all."""
RELEASED_LEFT_OUT = (34, 38, 40, 41, 51, 52, 53, 54, 56, 57, 58, 59, 60, 61, 62, 83)
"""The released code's places in `predicates.txt`, taken as counted from 0: each leaves out the next attribute."""
RELEASED_BIG = 15
"""Where the released code looks for "big"; counted from 0 it is "small"."""


def paper_text(awa2: Awa2) -> Text:
    """Sentences of appendix A.4: rows and attributes are found by name."""
    kept = np.array([name not in NOT_VISUAL for name in awa2.predicates])
    return _told(awa2, awa2.matrix[awa2.test_rows], kept, "{}.")


def released_text(awa2: Awa2) -> Text:
    """Sentences of the released code: rows by alphabetical label, attributes one place off, no full stop."""
    kept = ~np.isin(np.arange(PREDICATES), RELEASED_LEFT_OUT)
    return _told(awa2, awa2.matrix, kept, "{}")


def big_by_name(awa2: Awa2) -> Indices:
    """Whether each test class is big `[test classes]`.

    Raises:
        ValueError: no attribute is called "big".
    """
    return np.asarray(awa2.matrix[awa2.test_rows, awa2.predicates.index("big")])


def big_as_released(awa2: Awa2) -> Indices:
    """What the released code takes for it: another attribute of other classes `[test classes]`."""
    return np.asarray(awa2.matrix[: len(awa2.test_classes), RELEASED_BIG])


def _told(awa2: Awa2, rows: Indices, kept: npt.NDArray[np.bool_], ending: str) -> Text:
    def names(label: int, other: int) -> str:
        own = (rows[label] == 1) & (rows[other] == 0) & kept
        return ", ".join(np.array(awa2.predicates)[own])

    def text(first: int, second: int) -> str:
        told = f"The first image has attributes of {names(first, second)}, while the second image has attributes of "
        return told + ending.format(names(second, first))

    return text
