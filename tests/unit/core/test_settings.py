"""params.yaml: every fault is one line that names key or line, and is reported before any work."""

from __future__ import annotations

import runpy
import sys
from copy import deepcopy
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from typer.testing import CliRunner

from components.cli import app
from components.cli.doctor import CHECKS
from components.cli.doctor.check import examine, read_installation
from components.core.settings import Settings, load_settings
from components.core.settings.block import read_yaml
from components.core.system.checking import load_checked
from components.core.system.errors import InputError

REPO = Path(__file__).parents[3]
UNKNOWN = {
    ("prepare", "sorce"): "unknown key 'prepare.sorce': did you mean 'source'?",
    ("validate", "max_word"): "unknown key 'validate.max_word': did you mean 'max_words'?",
    ("train", "qqqq"): "unknown key 'train.qqqq': remove it",
    ("embed", "captions"): "unknown key 'embed.captions': remove it",
}
OUT_OF_RANGE: tuple[tuple[str, str, Any], ...] = (
    ("prepare", "rare_word_share", "often"),
    ("validate", "min_words", 0),
    ("embed", "batch_size", None),
    ("train", "seed", 2**63),
    ("base", "source", "magic"),
)
TEXTS = {
    b"": "params.yaml is empty: restore it, for example by `git checkout",
    b"- a\n- b": "params.yaml has no blocks",
    b"a: [1": "is not valid YAML",
    b"a: b: c": "is not valid YAML",
    b"\xff\xfe\x00\x81": "is not valid YAML",
    b"world:\n\tname: x\n": "line 2, column 1: a tab, which YAML does not allow: indent with spaces",
    b"world: {}\ntrain: {}\nworld: {}\n": "line 3, column 1: key 'world' is already in line 1 of the same block",
    b"methods:\n  a: {lr: 1,\n    lr: 2}\n": "line 3, column 5: key 'lr' is already in line 2 of the same block",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "params.yaml"


def _refusal(path: Path, content: Any) -> str:
    path.write_bytes(content if isinstance(content, bytes) else yaml.safe_dump(content).encode())
    with pytest.raises(InputError) as refused:
        load_settings(path)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_the_shipped_settings_are_frozen_and_only_a_base_from_scratch_needs_its_block(raw_params: Any) -> None:
    settings = load_settings(REPO / "params.yaml")
    assert settings.prepare.source == "synthetic"
    assert settings.validation.check_scene_facts is True
    with pytest.raises(ValidationError, match="frozen"):
        settings.dataset.seed = 3  # type: ignore[misc]
    for base in (
        {"source": "open_clip", "model": "ViT-B-32-quickgelu", "pretrained": "openai"},
        {"source": "file", "model": "ViT-B-32", "file": "weights.safetensors"},
    ):
        assert Settings.model_validate(raw_params | {"base": base}).base.scratch is None
    with pytest.raises(ValidationError, match="source 'scratch' needs `scratch`"):
        Settings.model_validate(raw_params | {"base": {"source": "scratch", "model": "ViT-B-32"}})


def test_wrong_keys_and_values_are_named(path: Path, raw_params: dict[str, Any]) -> None:
    for (block, key), message in UNKNOWN.items():
        assert message in _refusal(path, raw_params | {block: raw_params[block] | {key: 1}})
    # A key of another block is not a hint.
    (name, task), *_ = raw_params["synthesize"]["tasks"].items()
    for key, hint in (("caption", "did you mean 'max_captions'?"), ("workers", "remove it")):
        block = raw_params["synthesize"] | {"tasks": {name: task | {key: 400}}}
        refusal = _refusal(path, raw_params | {"synthesize": block})
        assert f"unknown key 'synthesize.tasks.{name}.{key}': {hint}" in refusal
    for block, key, value in OUT_OF_RANGE:
        refusal = _refusal(path, raw_params | {block: raw_params[block] | {key: value}})
        assert f"params.yaml: key '{block}.{key}'" in refusal, value
    raw_params["embedd"] = raw_params.pop("embed")
    assert "unknown key 'embedd': did you mean 'embed'" in _refusal(path, raw_params)


def test_wrong_texts_are_explained_and_merged_keys_replaced(path: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"params\.yaml is missing: run the command in the project's folder"):
        load_settings(path)
    for text, message in TEXTS.items():
        assert message in _refusal(path, text), text
    run = f"world: !!python/object/apply:os.mkdir ['{tmp_path / 'made'}']\n"
    assert "is not valid YAML" in _refusal(path, run.encode())
    assert not (tmp_path / "made").exists()
    text = "a: &a {method: paraclip, lr: 0.1}\nb: {<<: *a, lr: 0.2}\n"
    assert read_yaml(text)["b"] == {"method": "paraclip", "lr": 0.2}


GONE = object()
"""Stands for a key to remove."""
SLIPS: list[tuple[dict[str, Any], str]] = [
    ({"methods semclip epoch": 3}, "unknown key 'methods.semclip.epoch': did you mean 'epochs'?"),
    ({"evaluate benchmarks": ["retreival"]}, "evaluate.benchmarks: 'retreival' is unknown: did you mean 'retrieval'?"),
    ({"methods negclip epochs": "many"}, "key 'methods.negclip.epochs': Input should be a valid integer"),
    ({"methods paraclip epochs": date(2025, 1, 31)}, "methods.paraclip.epochs"),
    ({"methods mine": {"method": "paraclap"}}, "methods.mine: method 'paraclap' is unknown: did you mean 'paraclip'?"),
    ({"methods ../mine": {"method": "paraclip"}}, "'../mine' becomes a folder and a DVC stage"),
    ({"methods joint parts semclip nn": 2}, "unknown key 'methods.joint.parts.semclip.nn'"),
    ({"methods laclip_ft rewrites": ["paraphrase2"]}, "no training table has the column 'paraphrase2': known are"),
    ({"methods leaf image_tower": "trained"}, "key 'methods.leaf.image_tower': no loss reads images: set it to frozen"),
    ({"methods semclip image_tower": "random", "methods semclip contrastive_weight": 0}, "image_tower': no loss reads"),
    ({"methods leaf least_crop": 0.9}, "'methods.leaf.least_crop': a frozen image tower reads embeddings: set it to 1"),
    ({"train keep_index": True, "compare_encoders": ["base", "negclip"], "methods negclip image_tower": "trained"},
     "methods.negclip has a trained image tower, which makes the vectors of an index useless: remove 'negclip' from"),
    ({"train keep_index": True, "compare_encoders": ["lm_frozen"], "methods lm_frozen image_tower": "random"},
     "methods.lm_frozen has a random image tower"),
    ({"device": "gpu"}, "key 'device': String should match pattern '^(auto|cpu|cuda"),
    ({"train device": "cpu"}, "train.device"),
    ({"compare_encoders": []}, "compare_encoders is empty"),
    ({"compare_encoders": ["base", "paraclap"]}, "compare_encoders: 'paraclap' is unknown: did you mean 'paraclip'?"),
    ({"compare_encoders": ["base", "base"]}, "compare_encoders names 'base' 2 times"),
    ({"promote metric": "retreival/t2i_recall_at_5"}, "promote.metric: evaluate.benchmarks: 'retreival' is unknown"),
    ({"promote guards zeroshot/top1": 0.1}, "promote.guards: evaluate.benchmarks: 'zeroshot' is unknown: did you"),
    ({"promote require_benchmarks": ["ratings"]}, "promote.require_benchmarks: evaluate.benchmarks: 'ratings' is unk"),
    ({"promote require_valid_tables": ["paraphrase"]}, "require_valid_tables: validate.tables: 'paraphrase' is"),
    ({"prepare source": "folders"}, "prepare.source 'folders' is unknown: did you mean 'folder'?"),
    ({"synthesize tasks rewrites": {"table": "rewrites", "input": "x"}}, "synthesize.tasks: 'rewrites' is unknown"),
    ({"synthesize tasks rewrite table": "rewrite"}, "synthesize.tasks.rewrite.table 'rewrite' is unknown: did you"),
    ({"synthesize tasks change_unit samples": 2}, "change_unit.samples: it has one answer to each of 'name_unit'"),
    ({"validate tables paraphrase": {"folder": "data/validated/paraclip"}}, "validate.tables: 'paraphrase' is unknown"),
    ({"methods negclip train_data": GONE}, "is missing: name data/validated/negclip/hard_negatives.parquet, or a"),
    ({"methods clip_scratch train_data": GONE}, "clip_scratch.train_data is missing: name data/pairs/train.parquet"),
    ({"methods joint train_data": "data/validated/semclip"},
     "methods.joint.train_data: data/validated/semclip does not contain "
     "data/validated/paraclip/paraphrases.parquet and data/validated/pc_clip/differences.parquet, which"),
    # The name of the folder begins like the name of another folder.
    ({"validate tables hard_negatives folder": "data/validated/negclip_2", "methods negclip train_data": "data"},
     "methods.cs_clip.train_data: data/validated/negclip does not contain data/validated/negclip_2/hard_negatives.par"),
    ({"methods negclip train_data": "data/untrained/differences_cub.parquet"},
     "methods.negclip.train_data: data/untrained/differences_cub.parquet does not contain data/validated/negclip/"),
    ({"validate tables hard_negatives": GONE, "synthesize tasks swap_negative": GONE}, "needs table 'hard_negatives'"),
    ({"synthesize llms llm": {"engine": "sever"}}, "synthesize.llms.llm.engine 'sever' is unknown: did you mean"),
    ({"synthesize tasks rewrite llm": "gpt"}, "synthesize.tasks.rewrite.llm 'gpt' is unknown"),
]  # fmt: skip


def _changed(raw: dict[str, Any], changes: dict[str, Any]) -> str:
    """The YAML of params.yaml with other values at these paths."""
    raw = deepcopy(raw)
    for path, value in changes.items():
        *blocks, key = path.split()
        block = raw
        for name in blocks:
            block = block[name]
        block[key] = value
        if value is GONE:
            del block[key]
    return yaml.safe_dump(raw)


def test_a_slip_is_one_line_that_names_the_key(raw_params: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    for changes, message in SLIPS:
        path.write_text(_changed(raw_params, changes))
        with pytest.raises(InputError) as refused:
            load_checked(path)
        assert message in str(refused.value)
        assert "\n" not in str(refused.value), message


@pytest.mark.parametrize(("changes", "message"), SLIPS[:2])
def test_plan_and_doctor_report_it(
    changes: dict[str, Any], message: str, raw_params: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "params.yaml").write_text(_changed(raw_params, changes))
    monkeypatch.chdir(tmp_path)
    planned = CliRunner().invoke(app, ["plan"])
    assert (planned.exit_code, f"error: params.yaml: {message}" in planned.output) == (1, True)
    (line,) = examine(read_installation(tmp_path), {"params.yaml": CHECKS["params.yaml"]})
    assert (line.status, message in f"{line.detail}: {line.fix}") == ("fail", True)


NAMES_ONLY = (
    "training.base.base", "encoders.embed", "captions.students.students",
    "captions.validation.validate --table paraphrases",
    "training.train --method paraclip", "evaluation.scoring.evaluate --encoder base", "evaluation.report.compare",
)  # fmt: skip
METHODS_TOO = ("data.prepare", "captions.synthesize", "training.train --method semclip")


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")
def test_every_stage_checks_first(raw_params: dict[str, Any], tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    raw_params["methods"]["semclip"]["epoch"] = 3
    fault = "unknown key 'methods.semclip.epoch'"
    for command in (*METHODS_TOO, *NAMES_ONLY):
        if command == NAMES_ONLY[0]:
            raw_params["evaluate"]["benchmarks"], fault = ["nope"], "evaluate.benchmarks: 'nope' is unknown"
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw_params))
        monkeypatch.setattr(sys, "argv", command.split())
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(f"components.{command.split(maxsplit=1)[0]}", run_name="__main__")
        assert ended.value.code == 1, command
        assert capsys.readouterr().err.startswith(f"error: params.yaml: {fault}"), command
        assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"], command
