"""The comparison of writers of captions as a table, with intervals over captions, and their answers side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from components.captions.validation.report import sample_rows
from components.captions.writers import Answers, Written
from components.core.compute.metrics import Indices, Reals, shared
from components.core.system.errors import printable
from components.core.text import content_words, new_words
from components.core.text.languages import word_count
from components.evaluation.scoring.comparisons import AllPairs
from components.evaluation.scoring.intervals import mean_interval, paired_interval
from components.evaluation.scoring.result_table import Cell, Difference, ResultRow, ResultTable, number

_SHOWN = 20
_NOTES = (
    "Shares in percent, ± half of the 95% interval over captions. An answer may have several reasons; rules that "
    "reject none are left out. New words (the share of content words that the caption lacks), similarity and words "
    "are means of usable answers.",
    "Less another writer: the difference on the same captions, ▲ better or ▼ worse if it is not 0 beside all others of "
    "the task.",
)


def table_of(found: Answers) -> ResultTable:
    """A row for each measure of each task, a column for each writer."""
    rows = [row for task, of in found.items() for row in _rows(task, of)]
    counts = ", ".join(f"{len(next(iter(of.values()))):,} captions for {task}" for task, of in found.items())
    return ResultTable("Writers of captions", ("", *next(iter(found.values()))), rows, (f"{counts}.", *_NOTES))


def values_of(table: ResultTable) -> list[dict[str, Any]]:
    """Every value of a table with the ends of its interval; shares are not in percent."""
    return [
        {"task": row.section, "measure": row.short_label, "writer": writer, **vars(cell.value)}
        for row in table.rows
        for writer, cell in zip(table.columns[1:], row.cells, strict=True)
        if isinstance(cell, Cell | Difference)
    ]


def side_by_side(found: Answers) -> ResultTable:
    """Twenty captions of each task, with each writer's answer after the verdicts on it."""
    rows = []
    for task, of in found.items():
        captions = [one.caption for one in next(iter(of.values()))]
        for place in sample_rows(len(captions), _SHOWN):
            cells = [captions[place], *(_shown(answers[place]) for answers in of.values())]
            rows.append(ResultRow(f"{task}/{place + 1}", [printable(cell) for cell in cells], task))
    return ResultTable("Answers side by side", ("", "caption", *next(iter(found.values()))), rows)


def _shown(one: Written) -> str:
    verdict = f"rejected ({', '.join(one.reasons)})" if one.reasons else "accepted"
    meaning = "" if one.same is None else ", same meaning" if one.same else ", another meaning"
    return f"{verdict}{meaning}: {one.text or ''}"


def _rows(task: str, of: Mapping[str, Sequence[Written]]) -> list[ResultRow]:
    first = next(iter(of.values()))
    images = np.unique([one.image for one in first], return_inverse=True)[1]
    # Captions of one image count as a cluster.
    pictures = images if shared(images) else None
    rules = Counter(rule for rows in of.values() for one in rows for rule in one.rules).most_common()
    shares: dict[str, list[list[bool]]] = {"accepted": [[not one.reasons for one in rows] for rows in of.values()]}
    if first[0].same is not None:
        same = [[bool(one.same) for one in rows] for rows in of.values()]
        both = [[bool(one.same and not one.reasons) for one in rows] for rows in of.values()]
        shares |= {"means the same": same, "accepted, and means the same": both}
    shares |= {f"rejected: {rule}": [[rule in one.rules for one in rows] for rows in of.values()] for rule, _ in rules}
    shown = [
        ResultRow(f"{task}/{name}", [Cell(mean_interval(np.array(hits, float), None, pictures)) for hits in each], task)
        for name, each in shares.items()
    ]
    accepted = dict(zip(of, (np.array(hits, float) for hits in shares["accepted"]), strict=True))
    means = [ResultRow(f"{task}/{name}", cells, task) for name, cells in _means(list(of.values())).items()]
    return [shown[0], *_differences(task, accepted, pictures), *shown[1:], *means]


def _means(writers: Sequence[Sequence[Written]]) -> dict[str, list[Cell | None]]:
    """Means of usable answers; None without any."""
    cells: dict[str, list[Cell | None]] = {"new words": [], "similarity": [], "words": []}
    for rows in writers:
        texts = [(one.text, one.caption) for one in rows if one.text is not None]
        new = [new_words(text, caption) / max(1, len(content_words(text))) for text, caption in texts]
        similar = [one.similarity for one in rows if one.similarity is not None]
        cells["new words"].append(number(np.mean(new).item()) if new else None)
        cells["similarity"].append(number(np.mean(similar).item(), 2, 1) if similar else None)
        cells["words"].append(number(np.mean([word_count(text) for text, _ in texts]).item(), 1, 1) if texts else None)
    return cells


def _differences(task: str, accepted: Mapping[str, Reals], pictures: Indices | None) -> list[ResultRow]:
    """The accepted share of each writer less that of each before it, on the same captions."""
    names, pairs = list(accepted), AllPairs.of(accepted, None, pictures)

    def less(one: str, other: str) -> Difference:
        value = paired_interval(accepted[one], accepted[other], None, pictures)
        return Difference(value, is_clear=pairs.found[other, one].reaching(pairs.reach).excludes_zero)

    return [
        ResultRow(
            f"{task}/accepted, less {other}",
            [less(one, other) if place > before else None for place, one in enumerate(names)],
            task,
        )
        for before, other in enumerate(names[:-1])
    ]
