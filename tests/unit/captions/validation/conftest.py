"""A small validate stage: hand-made answers, a fake token counter, a fake similarity."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.captions.validation import validate
from components.captions.validation.report import TableReport
from components.captions.validation.rules.probes import Probes, find_probes
from components.captions.validation.rules.tables import find_table
from components.captions.validation.validate import REJECTED, ValidationFiles
from components.core.settings import Limits, Settings
from components.core.tables.files import write_json
from components.core.tables.folders import SUMMARY
from components.core.tables.records import GENERATIONS, PAIRS, PARAPHRASE_QUERIES
from components.data.world.scenes import Scene, Thing
from components.encoders.adapter.images import Preparation
from components.encoders.adapter.sidecar import SIDECAR, Sidecar
from tests.support.params import every_method

SCENE = Scene("pair", "red", Thing("dog", "small"), Thing("cat", "large"), relation="left")
CAPTION = "IMG_7 small dog left of large cat red bg.jpg"
OTHER_SCENE = Scene("group", "blue", Thing("bee", "small"), count="three")
OTHER_CAPTION = "blue bg: three bees (clipart) ref A12"
GOOD_1 = "A small dog sits left of a large cat, red background."
GOOD_2 = "Scarlet backdrop; a tiny hound waits to the left of one huge tabby."
EVALUATION_QUERY = "Hidden query: a little pup beside some big kitty, all scarlet."


@dataclass
class Answer:
    """One row of both paraphrase tables, accepted by default; `found_2` False leaves the second table without it."""

    text_1: str | None = GOOD_1
    text_2: str | None = GOOD_2
    sample: int = 0
    pair: int = 0
    reason_1: str | None = None
    reason_2: str | None = None
    found_2: bool = True


@dataclass
class Written:
    """The stage's files of one table."""

    files: ValidationFiles
    accepted: list[dict[str, Any]]
    quarantine: list[dict[str, Any]]
    summary: dict[str, Any]

    @property
    def reasons(self) -> set[str]:
        return {reason for row in self.quarantine for reason in row["reason"].split(";")}


def strict_settings(**limits: Any) -> Settings:
    """The project's settings without limits on shares, except those given; verdicts of judges count."""
    settings = Settings.model_validate(every_method())
    own = limits.pop("tables", {})
    wide = {"min_accepted_share": 0.0, "max_echo_share": 1.0, "max_leak_share": 1.0}
    tables = {}
    for name, known in settings.validation.tables.items():
        usual = known.model_dump(exclude_unset=True, exclude={*wide, "apply_judge", "folder"})
        kept = own.get(name, Limits()).model_dump(exclude_unset=True) if own else usual
        tables[name] = type(known).model_validate({"folder": known.folder} | kept)
    return settings.model_copy(
        update={"validation": settings.validation.model_copy(update=wide | {"tables": tables} | limits)}
    )


def fake_probes(settings: Settings, files: ValidationFiles) -> Probes:
    """The real checks of leaks and facts, with fakes in place of MiniLM and the tokenizer.

    A text with "unrelated" is far from every source, and every "verbose" has a thousand tokens.
    """
    real = find_probes(settings, files.evaluation, files.leaks)
    return Probes(
        lambda texts: np.array([2 + len(text.split()) + 1000 * text.count("verbose") for text in texts]),
        lambda texts, _others: np.array([0.1 if "unrelated" in text else 0.8 for text in texts]),
        real.find_leak,
        real.facts,
        real.languages,
        reads_all=real.reads_all,
    )


def write_world(root: Path, pairs: Sequence[int], caption: str = CAPTION) -> ValidationFiles:
    """The benchmark, the encoder, and pairs `pair<n>`, all alike; pair 0 differs unless it is among `pairs`."""
    files = ValidationFiles(
        root / "captions", root / "train.parquet",
        root / "evaluation", root / "base", root, root / "quarantine", root / "docs", root / "leaks",
    )  # fmt: skip
    numbers, other = sorted({*pairs, 0}), 0 not in pairs
    shown = [(OTHER_CAPTION, OTHER_SCENE) if other and number == 0 else (caption, SCENE) for number in numbers]
    PAIRS.write(
        files.pairs,
        {
            "id": [f"pair{number}" for number in numbers],
            "image_id": [f"image{number}" for number in numbers],
            "image": [b"png"] * len(numbers),
            "caption": [text for text, _ in shown],
            "facts": [scene.to_json() for _, scene in shown],
        },
    )
    query = {"image_id": "i", "query": "An ordinary query.", "paraphrase": EVALUATION_QUERY}
    query |= {"tier": "common", "held_out": "scene"}
    PARAPHRASE_QUERIES.write(
        files.evaluation / "paraphrase_queries.parquet", {name: [text] for name, text in query.items()}
    )
    sidecar = Sidecar(
        name="base", model="toy", architecture={}, quick_gelu=False, embed_dim=8, context_length=32,
        preparation=Preparation(size=64), method="base",
    )  # fmt: skip
    write_json(files.encoder / SIDECAR, sidecar.model_dump())
    return files


def write_answers(files: ValidationFiles, table: str, task: str, rows: Sequence[dict[str, Any]]) -> None:
    """The answers to one task; a row gives the columns that differ from an accepted answer about `CAPTION`."""
    usual = dict.fromkeys(GENERATIONS.schema.names) | {"sample": 0, "source": CAPTION, "key": "k", "accepted": True}
    path = files.captions / table / f"{task}.parquet"
    GENERATIONS.write(path, pa.Table.from_pylist([usual | row for row in rows], GENERATIONS.schema))


def write_paraphrases(root: Path, answers: Sequence[Answer]) -> ValidationFiles:
    """The stage's inputs with both paraphrase tables."""
    files = write_world(root, [answer.pair for answer in answers])
    first, second = [], []
    for answer in answers:
        row = {"id": f"pair{answer.pair}", "sample": answer.sample}
        first.append(row | {"text": answer.text_1, "reason": answer.reason_1, "accepted": answer.reason_1 is None})
        if answer.found_2:
            source = {"source": answer.text_1 or "lost text", "accepted": answer.reason_2 is None}
            second.append(row | source | {"text": answer.text_2, "reason": answer.reason_2})
    write_answers(files, "paraphrases", "paraphrase_1", first)
    write_answers(files, "paraphrases", "paraphrase_2", second)
    return files


def write_rows(root: Path, table: str, rows: Sequence[dict[str, Any]], caption: str = CAPTION) -> ValidationFiles:
    """The stage's inputs with these answers to the only task of a table, about pairs 1, 2, ..."""
    files = write_world(root, range(1, len(rows) + 1), caption)
    (answer,) = find_table(table).answers
    two = "other_id" in find_table(table).table.schema.names
    usual = {"other_id": "pair0", "other_source": OTHER_CAPTION} if two else {}
    numbered = [{"id": f"pair{pair}", "source": caption} | usual | row for pair, row in enumerate(rows, start=1)]
    write_answers(files, table, answer.task, numbered)
    return files


def write_texts(root: Path, table: str, texts: Sequence[str], caption: str = CAPTION) -> ValidationFiles:
    """`write_rows` of accepted texts."""
    return write_rows(root, table, [{"text": text} for text in texts], caption)


def write_steps(root: Path, table: str, rows: Sequence[tuple[str, str]]) -> ValidationFiles:
    """The stage's inputs with two answers to each pair, the second about the caption or about the first."""
    files = write_world(root, range(1, len(rows) + 1))
    for step, answer in enumerate(find_table(table).answers):
        about_caption = step == 0 or answer.source == "caption"
        texts = [{"source": CAPTION if about_caption else row[0], "text": row[step]} for row in rows]
        numbered = [{"id": f"pair{pair}"} | text for pair, text in enumerate(texts, start=1)]
        write_answers(files, table, answer.task, numbered)
    return files


def validated(
    files: ValidationFiles,
    table: str = "paraphrases",
    *,
    docs: bool = False,
    run: Callable[..., None] = validate.run,
    **limits: Any,
) -> Written:
    """Run the stage over a table, by default without Data Docs, which take longest."""
    settings = strict_settings(**limits)
    with nullcontext() if docs else patch.object(TableReport, "write_docs"):
        run(settings, table, files, fake_probes(settings, files))
    return Written(
        files,
        pq.read_table(files.project / settings.validation.file(table)).to_pylist(),
        pq.read_table(files.quarantine / table / REJECTED).to_pylist(),
        json.loads((files.quarantine / table / SUMMARY).read_text("utf-8")),
    )


def missed(faults: Sequence[tuple[str, ...]], quarantine: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Reasons, the first of each fault, that the quarantined row at the same place lacks."""
    return [
        (reason, row["reason"])
        for (reason, *_), row in zip(faults, quarantine, strict=True)
        if reason not in row["reason"].split(";")
    ]
