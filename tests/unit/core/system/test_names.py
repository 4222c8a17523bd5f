"""Names of settings become paths, stages and words of commands: those that could become more are refused."""

from __future__ import annotations

import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from components.cli.edited_params import overlaid
from components.cli.own_data.written_profile import profile_text
from components.core.settings import Settings, load_settings
from components.core.system.discovery import FOLDER_NAME
from components.core.system.errors import InputError
from components.core.system.stage_graph import DVC
from tests.support.dvc_project import REPO

KEYED = {
    "methods": {"method": "paraclip"},
    "mixes": {"a": "base", "b": "paraclip", "weights": [0.5, 0.5]},
    "synthesize.tasks": {"table": "paraphrases", "input": "data/pairs/train.parquet"},
    "validate.tables": {"folder": "data/validated"},
    "students": {"tasks": ["paraphrase_1"], "teacher": ["lessons.jsonl"]},
}
"""Block of entries -> a valid entry."""
LISTED = ("compare_encoders", "study.encoders", "study.mixes", "study.claims")
INNER = ("mixes.m.a", "mixes.m.b", "synthesize.tasks.paraphrase_1.table")
PIECES = (
    "x", "paraclip", ";", "$(touch MARK)", "`touch MARK`", "touch MARK", " ", "\n", "\t", "'", '"', "\\", "|", "&",
    ">", "#", ": ", "- ", "{{ 7 }}", "{% raw %}", "${key}", "../", "/", "*", "\x1b[2J", "\u202e", "!!python/name:os",
    "\u00e4", "%", "~", "\x00", "-", ".", "_", "0",
)  # fmt: skip
names = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)


def _with(raw: dict[str, Any], field: str, name: str) -> dict[str, Any]:
    raw = deepcopy(raw)
    if field.startswith("mixes.m."):
        raw["mixes"] = {"m": deepcopy(KEYED["mixes"])}
    *above, last = field.split(".")
    block = raw
    for key in above:
        block = block.setdefault(key, {})
    if field in KEYED:
        block.setdefault(last, {})[name] = KEYED[field]
    else:
        block[last] = [name] if field in LISTED else name
    return raw


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(field=st.sampled_from([*KEYED, *LISTED, *INNER]), name=names)
def test_only_plain_names_are_accepted_in_every_field(field: str, name: str, raw_params: dict[str, Any]) -> None:
    is_plain = FOLDER_NAME.fullmatch(name) is not None and not name.startswith(("-", "."))
    raw = _with(raw_params, field, name)
    if is_plain:
        Settings.model_validate(raw)
    else:
        with pytest.raises(ValidationError, match="use 1 to 100 of"):
            Settings.model_validate(raw)


@given(name=names)
def test_a_folder_name_writes_nothing_but_a_comment_into_a_profile(name: str) -> None:
    content = {"over": name, "prepare": {"source": "folder", "folder": name}}
    text = profile_text(f"40 captioned images of {name}, by source folder.", content)
    assert yaml.safe_load(text) == content


HOSTILE = (
    "x;touch MARK;",
    "x$(touch MARK)",
    "x`touch MARK`",
    "x' || touch MARK || '",
    'x" || touch MARK || "',
    "x\ntouch MARK",
)


def test_no_shell_of_a_stage_reads_a_name(tmp_path: Path) -> None:
    """DVC runs the commands of dvc.yaml for hostile names: each arrives whole as DVC's stage, and none is run."""
    stages: dict[str, Any] = {}
    declared = {
        group: stage
        for file in ("dvc.yaml", "research/dvc.yaml")
        for group, stage in yaml.safe_load((REPO / file).read_text("utf-8"))["stages"].items()
    }
    for group, stage in declared.items():
        if "foreach" in stage:
            stages[group] = {"foreach": list(HOSTILE), "do": {"cmd": stage["do"]["cmd"]}}
        elif "matrix" in stage:
            matrix = {key: list(HOSTILE[:2]) for key in stage["matrix"]}
            stages[group] = {"matrix": matrix, "cmd": stage["cmd"]}
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc" / "config").write_text("[core]\n    no_scm = True\n    analytics = False\n")
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\nprintf "%s\\0" "$4" >>arguments\n')
    python.chmod(0o755)
    environment = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(tmp_path), "SHELL": "/bin/sh"}
    done = subprocess.run([*DVC, "repro"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    given_names = (tmp_path / "arguments").read_text().split("\0")[:-1]
    assert {f"train@{name}" for name in HOSTILE} | {f"seed@{name}" for name in HOSTILE} <= set(given_names)
    assert not list(tmp_path.rglob("MARK*"))


def test_aliases_and_deep_blocks_are_one_line(tmp_path: Path) -> None:
    params = tmp_path / "params.yaml"
    shared = "methods:\n  one: &both {method: paraclip}\n  two: *both\n"
    laughs = [f"  x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 9)]
    (tmp_path / "many.yaml").write_text("\n".join(["methods:", "  x0: &x0 [a]", *laughs]))
    (tmp_path / "few.yaml").write_text(shared)
    for text, words in (
        ((tmp_path / "many.yaml").read_text(), "an alias: write the value"),
        ("validate: &a [*a]\n", "an alias: write the value"),
        ("{a: " * 3000, "nested too deeply"),
    ):
        params.write_text(text)
        with pytest.raises(InputError, match="is not valid YAML") as refused:
            load_settings(params)
        assert words in str(refused.value)
    params.write_text((REPO / "params.yaml").read_text("utf-8"))
    assert "  two:" in overlaid("few", params, tmp_path)
    with pytest.raises(InputError, match=r"many.yaml is not valid YAML: .*an alias: write the value"):
        overlaid("many", params, tmp_path)
