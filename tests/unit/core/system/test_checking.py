"""Stages, `cliptune plan` and `cliptune doctor` report a fault anywhere in params.yaml before any work."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from components.cli import app
from components.core.system.checking import check_methods, load_checked
from components.core.system.errors import InputError
from components.doctor.examine import CHECKS, examine, read_installation

REPO = Path(__file__).parents[4]
Change = Callable[[dict[str, Any]], object]

SLIPS: dict[str, tuple[Change, str]] = {
    "method's key": (
        lambda raw: raw["methods"]["semclip"].update(epoch=3),
        "unknown key 'methods.semclip.epoch': did you mean 'epochs'?",
    ),
    "method's value": (
        lambda raw: raw["methods"]["negclip"].update(epochs="many"),
        "key 'methods.negclip.epochs': Input should be a valid integer",
    ),
    "unknown method": (
        lambda raw: raw["methods"].update(mine={"method": "paraclap"}),
        "methods.mine: method 'paraclap' is unknown: did you mean 'paraclip'?",
    ),
    "method named like a path": (
        lambda raw: raw["methods"].update({"../mine": {"method": "paraclip"}}),
        "methods: '../mine' names a folder and a DVC stage",
    ),
    "method's part": (
        lambda raw: raw["methods"]["joint"]["parts"]["semclip"].update(nn=2),
        "unknown key 'methods.joint.parts.semclip.nn'",
    ),
    "column that no table has": (
        lambda raw: raw["methods"]["laclip_ft"].update(rewrites=["paraphrase_1", "paraphrase2"]),
        "methods.laclip_ft: no training table has the column 'paraphrase2': known are absence, caption,",
    ),
    "image tower that no loss trains": (
        lambda raw: raw["methods"]["leaf"].update(image_tower="trained"),
        "key 'methods.leaf.image_tower': no loss reads images: set it to frozen",
    ),
    "image tower of a method without its images": (
        lambda raw: raw["methods"]["semclip"].update(image_tower="random", contrastive_weight=0),
        "key 'methods.semclip.image_tower': no loss reads images",
    ),
    "crops of a frozen image tower": (
        lambda raw: raw["methods"]["leaf"].update(least_crop=0.9),
        "key 'methods.leaf.least_crop': a frozen image tower reads embeddings: set it to 1",
    ),
    "device": (
        lambda raw: raw["train"].update(device="gpu"),
        "key 'train.device': Input should be 'auto', 'cpu' or 'cuda'",
    ),
    "device of embed": (lambda raw: raw["embed"].update(device="cuda0"), "key 'embed.device': Input should be 'auto'"),
    "no encoders": (lambda raw: raw.update(compare_encoders=[]), "compare_encoders is empty"),
    "encoder without a method": (
        lambda raw: raw.update(compare_encoders=["base", "paraclap"]),
        "compare_encoders: 'paraclap' is unknown: did you mean 'paraclip'?",
    ),
    "benchmark": (
        lambda raw: raw["evaluate"].update(benchmarks=["retreival"]),
        "evaluate.benchmarks: 'retreival' is unknown: did you mean 'retrieval'?",
    ),
    "an encoder twice": (
        lambda raw: raw.update(compare_encoders=["base", "base"]),
        "compare_encoders names 'base' 2 times",
    ),
    "primary": (
        lambda raw: raw["promote"].update(metric="retreival/t2i_recall_at_5"),
        "promote.metric: evaluate.benchmarks: 'retreival' is unknown: did you mean 'retrieval'?",
    ),
    "guard": (
        lambda raw: raw["promote"]["guards"].update({"zeroshot/top1": 0.1}),
        "promote.guards: evaluate.benchmarks: 'zeroshot' is unknown: did you mean 'zero_shot'?",
    ),
    "benchmark of the gate": (
        lambda raw: raw["promote"].update(require_benchmarks=["caption_ratings"]),
        "promote.require_benchmarks: evaluate.benchmarks: 'caption_ratings' is unknown",
    ),
    "table of the gate": (
        lambda raw: raw["promote"].update(require_valid_tables=["paraphrase"]),
        "promote.require_valid_tables: validate.tables: 'paraphrase' is unknown: did you mean 'paraphrases'?",
    ),
    "source": (
        lambda raw: raw["prepare"].update(source="folders"),
        "prepare.source 'folders' is unknown: did you mean 'folder'?",
    ),
    "task": (
        lambda raw: raw["synthesize"]["tasks"].update(
            rewrites={"table": "rewrites", "input": "data/pairs/train.parquet"}
        ),
        "synthesize.tasks: 'rewrites' is unknown: did you mean 'rewrite'?",
    ),
    "table of a task": (
        lambda raw: raw["synthesize"]["tasks"]["rewrite"].update(table="rewrite"),
        "synthesize.tasks.rewrite.table 'rewrite' is unknown: did you mean 'rewrites'?",
    ),
    "samples of a second step": (
        lambda raw: raw["synthesize"]["tasks"]["change_unit"].update(samples=2),
        "synthesize.tasks.change_unit.samples: it has one answer to each of 'name_unit', in one row",
    ),
    "table": (
        lambda raw: raw["validate"]["tables"].update(paraphrase={"folder": "data/validated/paraclip"}),
        "validate.tables: 'paraphrase' is unknown: did you mean 'paraphrases'?",
    ),
    "method without reads": (
        lambda raw: raw["methods"]["negclip"].pop("train_data"),
        "methods.negclip.train_data is missing: name data/validated/negclip/hard_negatives.parquet, or a folder above",
    ),
    "pairs' method without reads": (
        lambda raw: raw["methods"]["clip_scratch"].pop("train_data"),
        "methods.clip_scratch.train_data is missing: name data/pairs/train.parquet",
    ),
    "reads another folder": (
        lambda raw: raw["methods"]["joint"].update(train_data="data/validated/semclip"),
        "methods.joint.train_data: data/validated/semclip does not hold "
        "data/validated/paraclip/paraphrases.parquet and "
        "data/validated/pc_clip/differences.parquet, which the method needs",
    ),
    "reads a folder whose name begins alike": (
        lambda raw: (
            raw["validate"]["tables"]["hard_negatives"].update(folder="data/validated/negclip_2"),
            raw["methods"]["negclip"].update(train_data="data/validated"),
        ),
        "methods.cs_clip.train_data: data/validated/negclip does not hold "
        "data/validated/negclip_2/hard_negatives.parquet",
    ),
    "reads a table of other columns in its place": (
        lambda raw: raw["methods"]["negclip"].update(train_data="data/untrained/differences_cub.parquet"),
        "methods.negclip.train_data: data/untrained/differences_cub.parquet does not hold "
        "data/validated/negclip/hard_negatives.parquet",
    ),
    "reads a table that nothing makes": (
        lambda raw: raw["validate"]["tables"].pop("hard_negatives") and raw["synthesize"]["tasks"].pop("swap_negative"),
        "methods.cs_clip.train_data: the method needs table 'hard_negatives': add it to validate.tables",
    ),
    "engine": (
        lambda raw: raw["synthesize"]["llms"].update(llm={"engine": "sever"}),
        "synthesize.llms.llm.engine 'sever' is unknown: did you mean 'server'?",
    ),
    "model of a task": (
        lambda raw: raw["synthesize"]["tasks"]["rewrite"].update(llm="gpt"),
        "synthesize.tasks.rewrite.llm 'gpt' is unknown",
    ),
}


def test_a_slip_is_one_line_that_names_the_key(raw_params: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    for name, (change, message) in SLIPS.items():
        raw = deepcopy(raw_params)
        change(raw)
        path.write_text(yaml.safe_dump(raw))
        with pytest.raises(InputError) as refused:
            load_checked(path)
        assert message in str(refused.value), name
        assert "\n" not in str(refused.value), name


@pytest.mark.parametrize("name", ["method's key", "benchmark"])
def test_plan_and_doctor_report_it(
    name: str, raw_params: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, message = SLIPS[name]
    change(raw_params)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw_params))
    monkeypatch.chdir(tmp_path)
    planned = CliRunner().invoke(app, ["plan"])
    assert (planned.exit_code, f"error: params.yaml: {message}" in planned.output) == (1, True)
    (line,) = examine(read_installation(tmp_path), checks={"params.yaml": CHECKS["params.yaml"]})
    assert (line.status, message in f"{line.detail}: {line.fix}") == ("fail", True)


NAMES_ONLY = (
    "base.base",
    "encoders.embed",
    "students.students",
    "validation.validate --table paraphrases",
    "training.train --method paraclip",
    "evaluation.evaluate --encoder base",
    "report.compare",
)
METHODS_TOO = ("data.prepare", "captions.synthesize", "training.train --method semclip")


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")
def test_every_stage_begins_with_the_check(
    raw_params: dict[str, Any], tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
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


def test_the_repositorys_own_settings_pass() -> None:
    assert load_checked(REPO / "params.yaml").compare_encoders == ("base", "paraclip")


def test_a_date_is_refused_by_the_method() -> None:
    with pytest.raises(InputError, match=r"methods\.paraclip\.epochs"):
        check_methods({"paraclip": {"epochs": yaml.safe_load("2025-01-31")}}, {})
