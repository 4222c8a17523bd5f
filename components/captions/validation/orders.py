"""PC-CLIP's training texts in both orders: each difference again with its pictures and its ordinals exchanged.

Language models nearly always name the first picture first. A text tower that is trained on those sentences alone learns
the order of the words in the place of their meaning.
"""

from __future__ import annotations

import re

import pandas as pd

from components.captions.validation.rules.world.checks import ORDINAL


def with_other_order(rows: pd.DataFrame) -> pd.DataFrame:
    """A table of differences with another row after each: the pictures and the two ordinals are exchanged.

    Only texts that have "first" once and "second" once are exchanged.
    """
    chosen = rows[rows["difference"].map(_has_both_once).astype(bool)]
    columns = {name: f"other_{name}" for name in ("id", "caption")}
    exchanged = chosen.rename(columns=columns | {other: name for name, other in columns.items()})
    exchanged["difference"] = chosen["difference"].map(exchange_ordinals)
    # One after the other, so that the order of the rows does not depend on the shards.
    return pd.concat([rows, exchanged]).sort_index(kind="stable")


def exchange_ordinals(text: str) -> str:
    """`text` with "first" in the place of "second" and the reverse, in the same case.

    >>> exchange_ordinals("First a dog, the second a cat.")
    'Second a dog, the first a cat.'
    """
    return ORDINAL.sub(_other, text)


def _has_both_once(text: str) -> bool:
    return sorted(word.lower() for word in ORDINAL.findall(text)) == ["first", "second"]


def _other(match: re.Match[str]) -> str:
    word = "second" if match[0].lower() == "first" else "first"
    return word.capitalize() if match[0][0].isupper() else word
