"""Help, lists, plans and refusals answer at once: they import no package that only the work needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.dvc_project import make_project
from tests.support.params import REPO, copy_profiles

HEAVY = (
    "torch", "torchvision", "open_clip", "transformers", "peft", "sentence_transformers", "mlflow", "prefect", "pandas",
    "great_expectations", "sklearn", "scipy", "boto3", "s3fs", "duckdb", "plotly", "matplotlib", "dvc", "uvicorn",
    "starlette",
)  # fmt: skip
RUN = """
import json, sys
from typer.testing import CliRunner
from components.cli import app
from tests.support.params import copy_profiles
heavy, commands = sys.argv[1].split(","), json.loads(sys.stdin.read())
for command in commands:
    result = CliRunner().invoke(app, command.split())
    never = [*heavy, "sqlalchemy", "pyarrow"] if command.endswith("--help") else heavy
    print(json.dumps([result.exit_code, result.output, [name for name in never if name in sys.modules]]))
"""
COMMANDS = (
    ("--help", 0, "Usage"),
    ("--version", 0, "cliptune 0."),
    ("evaluate --help", 0, "Usage"),
    ("index build --help", 0, "Usage"),
    ("serve --help", 0, "CLIPTUNE_SERVE_TOKEN"),
    ("evaluate --list", 0, "coco_p"),
    ("evaluate", 1, "give --encoder and --benchmark"),
    ("evaluate --encoder nobody --benchmark coco_p", 1, "--encoder 'nobody' is unknown: give"),
    ("evaluate --encoder paraclip --benchmark coco_p", 1, "models/paraclip does not exist"),
    ("evaluate --encoder ViT-B-23:openai --benchmark coco_p", 1, "did you mean 'ViT-B-32'"),
    ("evaluate --encoder text-encoder@champion --benchmark cocop", 1, "did you mean 'coco_p'"),
    ("evaluate --encoder a@b --benchmark coco_p --benchmark-option x", 1, "--benchmark-option 'x' is not name=value"),
    ("table", 1, "has no results"),
    ("table --collection paracilp", 1, "did you mean 'paraclip'"),
    ("plan", 0, "2 of 2 stages would run"),
    ("plan --rates cluster.yaml", 1, "--rates and --prices need --cost"),
    ("plan prepair", 1, "did you mean 'prepare'"),
    ("promote", 1, "reports/metrics/paraclip.json is missing"),
    ("history", 0, "no decisions yet"),
    ("report", 1, "is missing"),
    ("export --encoder nobody --format open_clip --output new", 1, "--encoder 'nobody'"),
    ("export --encoder base --format openclip --output new", 1, "did you mean 'open_clip'"),
    ("export --encoder base --format open_clip --output params.yaml", 1, "is there already"),
    ("serve --encoder nobody", 1, "--encoder 'nobody' is unknown: give"),
    ("serve --encoder t@a --encoder t@b --encoder t@c", 1, "give --encoder at most twice"),
    ("serve --host 0.0.0.0", 1, "set CLIPTUNE_SERVE_TOKEN"),
    ("serve --max-queue 8", 1, "--max-queue 8 is too small"),
    ("profile list", 0, "toy"),
    ("profile apply tory", 1, "did you mean 'toy'"),
    ("answers prune", 1, "prune needs a condition"),
    ("answers prune --older-than soon", 1, "--older-than soon is not an age: give for example 12h, 30d"),
    ("answers prune --older-than 99999999999w", 1, "--older-than 99999999999w is not an age"),
    ("answers stats", 1, "generation store state/generations.db is missing"),
    ("answers import nothing.parquet", 1, "nothing.parquet is missing"),
)
"""Commands with their exit codes and a part of their output."""


def test_answers_without_heavy_imports(tmp_path: Path) -> None:
    make_project(tmp_path, {"prepare": [], "compare": ["prepare"]})
    copy_profiles(tmp_path)
    unset = {"MLFLOW_TRACKING_URI": "", "CLIPTUNE_SERVE_TOKEN": ""}
    done = subprocess.run(
        [sys.executable, "-c", RUN, ",".join(HEAVY)],
        cwd=tmp_path,
        env={**os.environ, **unset, "PYTHONPATH": str(REPO), "COLUMNS": "200"},
        input=json.dumps([command for command, _, _ in COMMANDS]),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    loaded: list[str] = []
    for (command, code, part), line in zip(COMMANDS, done.stdout.splitlines(), strict=True):
        actual, output, modules = json.loads(line)
        assert (command, actual) == (command, code), output
        assert part in output, command
        assert code != 1 or (output.startswith("error: ") and output.count("\n") == 1), output
        assert (command, modules) == (command, loaded)
