"""German and Japanese captions go through every stage, with a base whose tokenizer reads any script.

Weights are random and small, and a script answers for the language model.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from components.captions import synthesize
from components.captions.generating import engines
from components.captions.prompting.request import Request
from components.captions.test_queries import test_set
from components.captions.validation.validate import run as validate
from components.core.settings import load_settings
from components.core.tables.records import PARAPHRASES
from components.data import prepare
from components.encoders.embed import run as embed
from components.evaluation.report.compare import run as compare
from components.evaluation.scoring.evaluate import run as evaluate
from components.training.base.base import run as base
from components.training.train import run as train
from tests.support.coloured_squares import COLOURS, ENTRY, shown_squares
from tests.support.fake_engine import FakeEngine
from tests.support.open_clip_folders import FAMILIES, write_folder
from tests.support.params import every_method

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
WORDS = {
    "de": dict(zip(COLOURS, ("Rot", "Grün", "Blau", "Gelb", "Weiß", "Schwarz", "Rosa", "Braun"), strict=True)),
    "ja": dict(zip(COLOURS, "赤緑青黄白黒桃茶", strict=True)),
}
TEXTS = {
    "de": ("Ein Quadrat in der Farbe {}", "Das Bild zeigt eine Fläche in {}", "Alles auf dieser Aufnahme ist ganz {}",
           "Nirgends auf dem Bild ist etwas in {}", "Quadratische Form, gefärbt in {}"),
    "ja": ("{}色の四角い形を写した写真です", "画面いっぱいに{}い図形が写っている",
           "この絵はどこを見ても{}だけで塗られている", "{}い部分はどこにも見当たりません", "正方形で{}い色をした画像"),
}  # fmt: skip
"""Caption, paraphrases, negation and test query."""
_ONCE = {"samples": 1, "always_ask_first": 0}
NAMES = {"de": "German", "ja": "Japanese"}


PLACES = {"paraphrase_1": 1, "paraphrase_2": 2, "type_query": 4, "negate_terms": 3, "swap_negative": 0}


def _answer(language: str, request: Request) -> str:
    """Writes in the language that the question names, else in English."""
    question = request.chat[-1][1]
    if request.task not in PLACES:
        return "Yes"
    word = next(word for word in WORDS[language].values() if word in question)
    named = question.endswith(f" Answer in {NAMES[language]}.")
    return TEXTS[language][PLACES[request.task]].format(word) if named else "not asked"


@pytest.mark.parametrize("language", ["de", "ja"])
def test_captions_of_a_language_reach_the_comparison(
    language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, track_in: Callable[[Path], None],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    torch.manual_seed(0)
    track_in(tmp_path)
    model = FakeEngine(partial(_answer, language), "scripted")
    monkeypatch.setattr(engines, "make_engine", lambda _settings, _name: model)
    monkeypatch.setattr(test_set, "make_engine", lambda _settings, _name: model)
    # Its small vocabulary has single letters of other scripts, so their texts have many tokens.
    wide = json.dumps(FAMILIES["SigLIP 2"]).replace('"context_length": 16', '"context_length": 64')
    write_folder(tmp_path / "published", wide)
    _write_pictures(tmp_path / "squares", language)
    Path("params.yaml").write_text(yaml.safe_dump(_params(language), allow_unicode=True))
    settings = load_settings()
    base(settings)
    prepare.run(settings)
    embed(settings)
    test_set.run(settings)
    for task in ("paraphrase_1", "paraphrase_2"):
        synthesize.run(settings, task)
    validate(settings, "paraphrases")
    assert f"nothing compares the meaning of answers in {NAMES[language]}" in capsys.readouterr().out
    accepted = PARAPHRASES.read(Path("data/validated/paraclip/paraphrases.parquet"))
    assert accepted.num_rows >= 100
    for name in ("paraclip", "captions"):
        train(settings, name)
    before, _, after = (evaluate(settings, name) for name in settings.compare_encoders)
    recall = "retrieval/t2i_recall_at_5"
    assert after.metrics[recall].value > before.metrics[recall].value
    assert "test queries written by llm" in after.test_queries
    compare(settings)
    assert "paraclip" in Path("reports/comparison.md").read_text()


def _write_pictures(folder: Path, language: str) -> None:
    lines, words = ["image\tcaption"], list(WORDS[language].values())
    folder.mkdir()
    for number, (name, (raw, _)) in enumerate(shown_squares().items()):
        (folder / name).write_bytes(raw)
        lines.append(f"{name}\t{TEXTS[language][0].format(words[number % len(words)])}")
    (folder / "captions.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _params(language: str) -> dict[str, Any]:
    raw: dict[str, Any] = every_method()
    raw["dataset"]["name"] = "squares"
    raw["prepare"] = {"source": "folder", "folder": "squares", "counts": {"train": 110, "val": 20, "test": 30}}
    raw["base"] = {"source": "open_clip", "model": "local-dir:published"}
    tasks = {name: raw["synthesize"]["tasks"][name] | _ONCE for name in ("paraphrase_1", "paraphrase_2")}
    raw["synthesize"] = {
        "llms": {"llm": {"engine": "server", "urls": ["http://127.0.0.1:9/v1"], "model": "m"}}, "default_llm": "llm",
        "max_captions": 110, "store": "sqlite:///store.db", "tasks": tasks,
    }  # fmt: skip
    raw["test_set"] = {"llm": "llm", "min_accepted_share": 0.1}
    rules = {"check_scene_facts": False, "language": language, "max_echo_share": 1.0, "max_leak_share": 1.0,
             "accept_unchecked": True}  # fmt: skip
    raw["validate"] = rules | {"tables": {"paraphrases": {"folder": "data/validated/paraclip"}}}
    entry = {"method": "paraclip", "train_data": "data/validated/paraclip", "lr": 0.003, "batch_size": 16, "epochs": 1}
    raw |= {
        "methods": {"paraclip": entry, "captions": ENTRY},
        "mixes": {},
        "compare_encoders": ["base", "paraclip", "captions"],
        "study": {},
        "students": {},
    }
    raw["train"] = {"checkpoint_dir": "state/train", "validation_images": 0}
    raw["evaluate"] |= {"benchmarks": ["paraphrased_retrieval", "retrieval", "negations"], "bootstrap": 50}
    raw["promote"] |= {"guards": {}, "require_valid_tables": [], "require_benchmarks": []}
    return raw
