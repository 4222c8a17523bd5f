"""The model card holds metrics, weaknesses, data, prompts and origin, and marks missing statements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.core.settings import Settings
from components.core.tables.files import write_json
from components.core.tables.folders import QUARANTINE
from components.data.leaks.report import COUNTS, LeakCounts
from components.data.leaks.report import FOLDER as LEAKS
from components.encoders.adapter.images import Preparation
from components.encoders.adapter.sidecar import Sidecar
from components.evaluation.scoring.results import DEFAULT
from components.registry import decision as records
from components.registry.card import CardSubject, model_card
from components.registry.decision import Decision, RuleVerdict
from components.registry.model import shortened
from tests.support.registry_project import PRIMARY, RECALL, SUMMARY, judged

GROUP = f"{PRIMARY}/unseen"
SUMMARY_FILE = QUARANTINE / "paraphrases" / "summary.json"


def _subject(**tags: str) -> CardSubject:
    table = "data/validated/paraclip/paraphrases.parquet"
    sidecar = Sidecar(
        name="paraclip", model="tiny", architecture={}, quick_gelu=False, embed_dim=16, context_length=24,
        preparation=Preparation(size=16), method="paraclip",
        data_hashes={"data/pairs/train.parquet": "aaa", table: "bbb"},
    )  # fmt: skip
    candidate, base = judged("paraclip", "s" * 64, 0.5, recall=0.4), judged("base", "b" * 64, 0.4, recall=0.5)
    groups = {GROUP: candidate.report.metrics[PRIMARY].model_copy(update={"value": 0.1})}
    report = candidate.report.model_copy(update={"metrics": candidate.report.metrics | groups})
    candidate = replace(candidate, report=report)
    decision = Decision(
        outcome="promoted", model="text-encoder", encoder="paraclip", encoder_sha256="s" * 64, against="base",
        rules=(RuleVerdict(name="primary", passed=True, reason="gain +0.1"),), run_id="r" * 32, tracking_uri="",
        time=records.now(),
    )  # fmt: skip
    return CardSubject(decision, sidecar, candidate, base, {"git_commit": "c0ffee", "git_dirty": "false"} | tags)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project whose validation accepted 90 of 100 paraphrases."""
    monkeypatch.chdir(tmp_path)
    write_json(SUMMARY_FILE, SUMMARY)


def test_card_holds_metrics_weaknesses_and_origin(raw_params: dict[str, Any]) -> None:
    card = model_card(_subject(dvc_lock_sha256="d" * 64), Settings.model_validate(raw_params))
    assert f"| {PRIMARY} | 0.5000 [0.4800, 0.5200] | 0.4000 [0.3800, 0.4200] | higher |" in card
    assert f"- Worse than base at {RECALL}: 0.5000 -> 0.4000, and not by chance." in card
    assert f"Weakest group of the primary metric: {GROUP} = 0.1000." in card
    assert f"Worse than base at {PRIMARY}" not in card
    for text in ("CC BY-SA 4.0", "OpenMoji", "`c0ffee`", "d" * 64, "r" * 32, "`bbb`", "gain +0.1", "Kim et al"):
        assert text in card
    assert "uncommitted changes" not in card
    # Another dataset inherits no statement.
    raw_params["dataset"]["name"] = "products"
    card = model_card(_subject(), Settings.model_validate(raw_params))
    assert "OpenMoji" not in card
    assert card.count("Not stated: describe dataset 'products' in `promote.card` of params.yaml.") == 3


def test_the_card_has_prompts_dropped_pairs_and_whether_the_image_tower_is_the_bases(settings: Settings) -> None:
    hint = "- Table `paraphrases` was validated without recording its prompts: run `dvc repro`."
    card = model_card(_subject(), settings)
    assert hint in card
    assert "Published test sets" not in card
    prompts = [{"task": "paraphrase_1", "citation": "ParaCLIP", "model": "own", "prompt": 'Rewrite "<x>"'}]
    write_json(SUMMARY_FILE, SUMMARY | {"prompts": prompts})
    found = {"sts12": {"text": 4}}
    counts = LeakCounts(benchmarks="sets", checked=["sts12"], unread={}, found=found, dropped={"train": 4})
    write_json(LEAKS / COUNTS, counts.model_dump())
    card = model_card(_subject(), settings)
    assert '- **paraphrase_1** (ParaCLIP), answered by own: Rewrite "<x>"' in card
    assert hint not in card
    assert "- Published test sets: 4 train pairs dropped that are in published test sets (sts12: 4 by text)" in card
    subject = _subject(git_dirty="true")
    card = model_card(subject, settings)
    assert "image tower" not in card
    assert "`c0ffee`, with uncommitted changes" in card
    base = subject.sidecar.model_copy(update={"name": "base", "image_tower_sha256": "a" * 64})
    write_json(DEFAULT.models / "base" / "encoder.json", base.model_dump())
    for letter, line in (
        ("a", "- Its image tower is the base's, unchanged"),
        ("b", "- Its image tower is not the base's: image embeddings of the base do not fit"),
    ):
        trained = subject.sidecar.model_copy(update={"image_tower_sha256": letter * 64})
        assert line in model_card(replace(subject, sidecar=trained), settings)


def test_description_is_cut_at_a_line() -> None:
    card = "# card\n" + "a line of it\n" * 500
    short = shortened(card, 5000)
    assert 4900 < len(short) <= 5000
    assert short.endswith("model_card.md is the whole card)\n")
    assert set(short.splitlines()[1:-2]) == {"a line of it"}
    assert shortened("# card\n", 5000) == "# card\n"
