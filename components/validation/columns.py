"""What is measured of every answer; the suites only set limits to these columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from components.captions.tasks import find_task
from components.validation.echoes import find_echo, prompt_phrases
from components.validation.words import new_words, normalised

SIDES = (("caption", "paraphrase_1", 1), ("paraphrase_1", "paraphrase_2", 2))
"""Source column, answer column and suffix of the columns derived from the two."""


@dataclass(frozen=True)
class Probes:
    """What the measuring of texts needs from outside.

    Attributes:
        token_lengths: tokens of each text before it is cut, start and end token included.
        similarities: cosine of each text with the one at the same place in the second list.
        find_leak: how a text gives evaluation away, or None.
        find_fault: what a text says wrongly about the facts given as JSON, or None.
    """

    token_lengths: Callable[[Sequence[str]], npt.NDArray[np.int64]]
    similarities: Callable[[Sequence[str], Sequence[str]], npt.NDArray[np.float64]]
    find_leak: Callable[[str], str | None]
    find_fault: Callable[[str, str], str | None]


def add_columns(joined: pd.DataFrame, probes: Probes) -> pd.DataFrame:
    """`joined` with its derived columns; each is null where the answer is missing.

    Numbers: `words_*`, `tokens_*`, `similarity_*`, `new_words_2`. Texts that name a fault, null where there is
    none: `copied_*`, `echo_*`, `leak_*`, `fault_*` and `duplicate`.
    """
    derived: dict[str, pd.Series[Any]] = {}
    for source, answer, side in SIDES:
        present = _present(joined, source, answer)
        for name, values in _measure(present, source, answer, probes).items():
            derived[f"{name}_{side}"] = pd.Series(values, index=present.index).reindex(joined.index)
    derived |= _similarities(joined, probes)
    derived["duplicate"] = _duplicates(joined)
    return joined.assign(**{name: _nullable(column) for name, column in derived.items()})


def _measure(rows: pd.DataFrame, source: str, answer: str, probes: Probes) -> dict[str, Any]:
    texts, sources = rows[answer].tolist(), rows[source].tolist()
    pairs = list(zip(texts, sources, strict=True))
    phrases = prompt_phrases(find_task(answer))
    return {
        "words": [float(len(text.split())) for text in texts],
        "tokens": probes.token_lengths(texts).astype(np.float64),
        "new_words": [float(new_words(text, other)) for text, other in pairs],
        "copied": _texts(["source" if normalised(text) == normalised(other) else None for text, other in pairs]),
        "echo": _texts([find_echo(text, other, phrases) for text, other in pairs]),
        "leak": _texts([probes.find_leak(text) for text in texts]),
        "fault": _texts([probes.find_fault(text, facts) for text, facts in zip(texts, rows["facts"], strict=True)]),
    }


def _present(joined: pd.DataFrame, source: str, answer: str) -> pd.DataFrame:
    return joined[joined[source].notna() & joined[answer].notna()]


def _similarities(joined: pd.DataFrame, probes: Probes) -> dict[str, pd.Series[Any]]:
    """Both sides in one call, because a first answer is also the source of the second."""
    sides = [(side, _present(joined, source, answer), source, answer) for source, answer, side in SIDES]
    texts = [text for _, rows, _, answer in sides for text in rows[answer]]
    sources = [text for _, rows, source, _ in sides for text in rows[source]]
    values = np.split(probes.similarities(texts, sources), [len(sides[0][1])])
    return {
        f"similarity_{side}": pd.Series(cosines, index=rows.index).reindex(joined.index)
        for (side, rows, _, _), cosines in zip(sides, values, strict=True)
    }


def _texts(values: list[str | None]) -> npt.NDArray[np.object_]:
    return np.array(values, dtype=object)


def _duplicates(joined: pd.DataFrame) -> pd.Series[Any]:
    """`sample` for every row but the first whose two answers say what another sample of the same pair says."""
    whole = joined[joined["paraphrase_1"].notna() & joined["paraphrase_2"].notna()]
    keys = pd.DataFrame({name: whole[name].map(normalised) for name in ("paraphrase_1", "paraphrase_2")})
    repeated = keys.assign(id=whole["id"]).duplicated()
    return pd.Series("sample", index=whole.index[repeated], dtype=object).reindex(joined.index)


def _nullable(column: pd.Series[Any]) -> pd.Series[Any]:
    return column if column.dtype == np.float64 else column.astype(object).where(column.notna(), None)
