"""A small validate stage: hand-made answers, a fake token counter, a fake similarity."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from components.core.files import write_json
from components.core.folders import SUMMARY
from components.core.records import GENERATIONS, PAIRS, PARAPHRASE_QUERIES
from components.core.settings import Limits, Settings
from components.data.world.description.scenes import Scene, Thing
from components.encoders.adapter.sidecar import SIDECAR, Sidecar
from components.validation import validate
from components.validation.joining.answers import join_answers
from components.validation.measuring.probes import Probes, find_probes
from components.validation.reporting import report
from components.validation.reporting.report import Tally
from components.validation.suites import SuiteResult
from components.validation.tables import find_table
from components.validation.validate import REJECTED, Files
from tests.support.params import every_method

SCENE = Scene("pair", "red", Thing("dog", "small"), Thing("cat", "large"), relation="left")
CAPTION = "IMG_7 small dog left of large cat red bg.jpg"
OTHER_SCENE = Scene("group", "blue", Thing("bee", "small"), count="three")
OTHER_CAPTION = "blue bg: three bees (clipart) ref A12"
GOOD_1 = "A small dog sits left of a large cat, red background."
GOOD_2 = "Scarlet backdrop; a tiny hound waits to the left of one huge tabby."
_ABSENT = ("other_id", "other_source", "verdict", "written_by")
EVALUATION_QUERY = "Hidden query: a little pup beside some big kitty, all scarlet."


@dataclass
class Answer:
    """One row of both generation tables; `found_2` False leaves the second table without it."""

    text_1: str | None = GOOD_1
    text_2: str | None = GOOD_2
    sample: int = 0
    pair: int = 0
    reason_1: str | None = None
    reason_2: str | None = None
    found_2: bool = True


@dataclass
class Outcome:
    """What the stage wrote of one table."""

    files: Files
    accepted: list[dict[str, Any]] = field(default_factory=list)
    quarantine: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def reasons(self) -> set[str]:
        return {reason for row in self.quarantine for reason in row["reason"].split(";")}


Stage = Callable[..., Outcome]


def strict_settings(**limits: Any) -> Settings:
    """Own settings with no limits on shares but those given."""
    settings = Settings.model_validate(every_method())
    known, own = settings.validation.tables, limits.pop("tables", None) or _own_limits(settings)
    tables = {name: known[name].model_validate({"folder": known[name].folder} | _given(own, name)) for name in known}
    wide = {"min_accepted_share": 0.0, "max_echo_share": 1.0, "max_leak_share": 1.0, "tables": tables}
    return settings.model_copy(update={"validation": settings.validation.model_copy(update=wide | limits)})


def _given(own: dict[str, Limits], name: str) -> dict[str, Any]:
    return own[name].model_dump(exclude_unset=True) if name in own else {}


def _own_limits(settings: Settings) -> dict[str, Limits]:
    """The limits of single tables without those on shares; what judges say counts."""
    shares = {"min_accepted_share", "max_echo_share", "max_leak_share", "judged", "folder"}
    tables = settings.validation.tables.items()
    return {name: Limits(**own.model_dump(exclude_unset=True, exclude=shares)) for name, own in tables}


def fake_similarity(texts: Any, _others: Any) -> Any:
    """A text that says "unrelated" is far from everything, any other is close."""
    return np.array([0.1 if "unrelated" in text else 0.8 for text in texts], dtype=np.float64)


def fake_token_lengths(texts: Any) -> Any:
    """Two tokens around one per word, and a thousand for every "verbose"."""
    return np.array([2 + len(text.split()) + 1000 * text.count("verbose") for text in texts], dtype=np.int64)


def write_inputs(root: Path, answers: list[Answer]) -> Files:
    """The stage's inputs with both paraphrase tables."""
    files = write_world(root, [answer.pair for answer in answers])
    first = [(a, CAPTION, a.text_1, a.reason_1) for a in answers]
    second = [(a, a.text_1 or "lost text", a.text_2, a.reason_2) for a in answers if a.found_2]
    for name, rows in (("paraphrase_1", first), ("paraphrase_2", second)):
        columns: dict[str, list[object]] = {
            "id": [f"pair{answer.pair}" for answer, *_ in rows],
            "sample": [answer.sample for answer, *_ in rows],
            "source": [source for _, source, _, _ in rows],
            "key": ["key"] * len(rows),
            "accepted": [reason is None for *_, reason in rows],
            "text": [text for _, _, text, _ in rows],
            "reason": [reason for *_, reason in rows],
            **dict.fromkeys(_ABSENT, [None] * len(rows)),
        }
        GENERATIONS.write(files.captions / "paraphrases" / f"{name}.parquet", columns)
    return files


def write_texts(root: Path, table: str, texts: list[str], source: str = CAPTION) -> Files:
    """The stage's inputs with one answer per pair to the task of a table that has one; pair 0 is the other scene."""
    count = len(texts)
    files = write_world(root, list(range(1, count + 1)), source)
    (answer,) = find_table(table).answers
    two = answer.task == "difference"
    columns: dict[str, list[object]] = {
        "id": [f"pair{pair}" for pair in range(1, count + 1)],
        "sample": [0] * count,
        "source": [source] * count,
        "key": ["key"] * count,
        "accepted": [True] * count,
        "text": list(texts),
        "reason": [None] * count,
        **dict.fromkeys(_ABSENT, [None] * count),
    }
    if two:
        columns |= {"other_id": ["pair0"] * count, "other_source": [OTHER_CAPTION] * count}
    GENERATIONS.write(files.captions / table / f"{answer.task}.parquet", columns)
    return files


def write_steps(root: Path, table: str, rows: list[tuple[str, str]], source: str = CAPTION) -> Files:
    """The stage's inputs with two answers per pair, the second asked about the caption or about the first."""
    files, count = write_world(root, list(range(1, len(rows) + 1)), source), len(rows)
    for step, answer in enumerate(find_table(table).answers):
        asked = [source if step == 0 or answer.source == "caption" else row[0] for row in rows]
        columns: dict[str, list[object]] = {
            "id": [f"pair{pair}" for pair in range(1, count + 1)],
            "sample": [0] * count,
            "source": list(asked),
            "key": ["key"] * count,
            "accepted": [True] * count,
            "text": [row[step] for row in rows],
            "reason": [None] * count,
            **dict.fromkeys(_ABSENT, [None] * count),
        }
        GENERATIONS.write(files.captions / table / f"{answer.task}.parquet", columns)
    return files


def write_world(root: Path, pairs: list[int], caption: str = CAPTION) -> Files:
    """Pairs `pair<n>`, all alike but for pair 0 of a table whose tasks see two, the benchmark and the encoder."""
    files = Files(
        root / "captions", root / "train.parquet",
        root / "evaluation", root / "base", root, root / "quarantine", root / "docs",
    )  # fmt: skip
    other, numbers = 0 not in pairs, sorted({*pairs, 0})
    PAIRS.write(
        files.pairs,
        {
            "id": [f"pair{number}" for number in numbers],
            "image_id": [f"image{number}" for number in numbers],
            "image": [b"png"] * len(numbers),
            "caption": [OTHER_CAPTION if other and number == 0 else caption for number in numbers],
            "facts": [(OTHER_SCENE if other and number == 0 else SCENE).to_json() for number in numbers],
        },
    )
    PARAPHRASE_QUERIES.write(
        files.evaluation / "paraphrase_queries.parquet",
        {
            "image_id": ["i"], "query": ["An ordinary query."], "paraphrase": [EVALUATION_QUERY],
            "tier": ["common"], "held_out": ["scene"],
        },
    )  # fmt: skip
    sidecar = Sidecar(
        name="base", model="toy", architecture={}, quick_gelu=False, embed_dim=8, context_length=32, image_size=64,
        method="base",
    )  # fmt: skip
    write_json(files.encoder / SIDECAR, sidecar.model_dump())
    return files


def accepted_file(files: Files, table: str = "paraphrases") -> Path:
    """Where the stage writes a table's accepted rows."""
    return files.project / Settings.model_validate(every_method()).validation.file(table)


def read_outcome(files: Files, table: str = "paraphrases") -> Outcome:
    """What the stage wrote of one table."""
    return Outcome(
        files,
        pq.read_table(accepted_file(files, table)).to_pylist(),
        pq.read_table(files.quarantine / table / REJECTED).to_pylist(),
        json.loads((files.quarantine / table / SUMMARY).read_text("utf-8")),
    )


def fake_probes(settings: Settings, files: Files) -> Probes:
    """The real checks of leaks and facts with fakes in place of MiniLM and the tokenizer."""
    real = find_probes(settings, files.evaluation, files.leaks)
    return Probes(fake_token_lengths, fake_similarity, real.find_leak, real.facts)


def run_stage(root: Path, answers: list[Answer], run: Callable[..., None] = validate.run, **limits: Any) -> Outcome:
    """Run the stage over paraphrases."""
    files, settings = write_inputs(root, answers), strict_settings(**limits)
    run(settings, "paraphrases", files, fake_probes(settings, files))
    return read_outcome(files)


def run_texts(root: Path, table: str, texts: list[str], **limits: Any) -> Outcome:
    """Run the stage over texts of another table."""
    files, settings = write_texts(root, table, texts), strict_settings(**limits)
    validate.run(settings, table, files, fake_probes(settings, files))
    return read_outcome(files, table)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """`stage(answers, **limits)`; Data Docs are left out, they take the longest."""
    monkeypatch.setattr("components.validation.validate.write_docs", lambda *_: None)
    return lambda answers, **limits: run_stage(tmp_path, answers, **limits)


@pytest.fixture
def tracked_stage(tmp_path: Path) -> Stage:
    """`stage` with its Data Docs, as an MLflow run."""
    return lambda answers, **limits: run_stage(tmp_path, answers, validate.run_tracked, **limits)


@pytest.fixture
def counted() -> Callable[[dict[str, int]], report.Outcome]:
    """The outcome of a table `table` whose rows were rejected for these reasons."""

    def count(reasons: dict[str, int]) -> report.Outcome:
        tally = Tally(rows=sum(reasons.values()), marked=Counter(accepted=0), reasons=Counter(reasons))
        return report.Outcome("table", tally, SuiteResult("shares", True, {}, []), {})

    return count


@pytest.fixture
def text_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """`text_stage(table, texts, **limits)` for a table of one task."""
    monkeypatch.setattr("components.validation.validate.write_docs", lambda *_: None)
    return lambda table, texts, **limits: run_texts(tmp_path, table, texts, **limits)


@pytest.fixture
def inputs_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """`inputs_of(table, texts, source)`: `text_stage` about another caption."""
    monkeypatch.setattr("components.validation.validate.write_docs", lambda *_: None)

    def run(table: str, texts: list[str], source: str) -> Outcome:
        files, settings = write_texts(tmp_path, table, texts, source), strict_settings()
        validate.run(settings, table, files, fake_probes(settings, files))
        return read_outcome(files, table)

    return run


@pytest.fixture
def two_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """`two_steps(table, rows, **limits)` for a table of two tasks, a row being their answers."""
    monkeypatch.setattr("components.validation.validate.write_docs", lambda *_: None)

    def run(table: str, rows: list[tuple[str, str]], **limits: Any) -> Outcome:
        files, settings = write_steps(tmp_path, table, rows), strict_settings(**limits)
        validate.run(settings, table, files, fake_probes(settings, files))
        return read_outcome(files, table)

    return run


@pytest.fixture
def all_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], dict[str, Any]]:
    """Runs the stage over paraphrases and over one text of every other table; gives the summaries by table."""
    monkeypatch.setattr("components.validation.validate.write_docs", lambda *_: None)

    def run(texts: dict[str, str]) -> dict[str, Any]:
        for table, text in texts.items():
            write_texts(tmp_path, table, [text])
        one = Answer(pair=1)
        pairs = PAIRS.read(tmp_path / "train.parquet")
        files = write_inputs(tmp_path, [one])
        PAIRS.write(files.pairs, pairs)
        settings = Settings.model_validate(every_method())
        judged = {
            name: limits.model_copy(update={"judged": True}) for name, limits in settings.validation.tables.items()
        }
        settings = settings.model_copy(update={"validation": settings.validation.model_copy(update={"tables": judged})})
        for table in (*texts, "paraphrases"):
            validate.run(settings, table, files, fake_probes(settings, files))
        return {table: read_outcome(files, table).summary for table in (*texts, "paraphrases")}

    return run


@pytest.fixture(scope="session")
def run_documented() -> Callable[[Path, str], Path]:
    """Runs the stage in a folder over a good row, a short one and one that failed; gives the folder of its Data Docs.

    The failure, and the answer to the short one's paraphrase, hold a text.
    """

    def run(root: Path, text: str) -> Path:
        faulty = [
            Answer(pair=1, text_1="dog cat", text_2=text),
            Answer(pair=2, text_1=None, found_2=False, reason_1=text),
        ]
        return run_stage(root, [Answer(), *faulty]).files.docs / "paraphrases"

    return run


@pytest.fixture
def documented_stage(tmp_path: Path) -> Stage:
    """`stage` with its Data Docs."""
    return lambda answers, **limits: run_stage(tmp_path, answers, **limits)


@pytest.fixture
def answer() -> type[Answer]:
    """Makes a row that is accepted unless told otherwise."""
    return Answer


@pytest.fixture
def texts_of(tmp_path: Path) -> Callable[..., Files]:
    """Writes the inputs of a table of one task: `texts_of(table, texts, source)`."""
    return lambda table, texts, source=CAPTION: write_texts(tmp_path, table, texts, source)


@pytest.fixture
def joined_in() -> Callable[[Files], Any]:
    """Joins the paraphrases that `inputs` wrote."""
    return lambda files: join_answers(
        find_table("paraphrases"), files.captions / "paraphrases", files.pairs, files.quarantine
    )


@pytest.fixture
def inputs(tmp_path: Path) -> Callable[[list[Answer]], Files]:
    """Writes the stage's inputs and says where they and the outputs are."""
    return lambda answers: write_inputs(tmp_path, answers)
