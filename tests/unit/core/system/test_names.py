"""Names of settings that could become more than names are refused; errors that a user can mend are one line."""

from __future__ import annotations

import errno
import os
import subprocess
from copy import deepcopy
from functools import partial
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from components.cli.edited_params import overlaid
from components.cli.own_data.written_profile import profile_text
from components.cli.tables import print_rows, say
from components.core.settings import Settings, load_settings
from components.core.system.discovery import FOLDER_NAME
from components.core.system.errors import InputError, run_command
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


SCHEMES = ("http", "https", "postgresql+psycopg", "qdrant", "s3", "mysql")
PASSWORDS = st.text("abcXYZ789/@ ?#:%&=+'\"(),;!$~\\[]", min_size=3, max_size=20).map("pw{}PW".format)


def test_errors_of_users_are_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["torch==2", 'onnx-script>1; python_version > "3" and extra == "export"', 'torch==2; extra == "dev"']
    monkeypatch.setattr("components.core.system.errors.requires", lambda _: lines)

    def fail(error: Exception) -> None:
        raise error

    written = "error: x cannot be written"
    for error, line in (
        (InputError("params.yaml: key 'a':\n  wrong"), "error: params.yaml: key 'a': wrong"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x"), f"{written} (No space left on device)"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "x"), f"{written} (Read-only file system)"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "x"), f"{written} (Permission deni"),
        (MemoryError(), "error: out of memory: free memory, or lower batch sizes"),
        (PackageNotFoundError("onnx-script"), "error: package onnx-script is missing: install cliptune[export]"),
        (ModuleNotFoundError("x", name="onnx_script.sub"), "error: package onnx_script.sub is missing: install clip"),
    ):
        with pytest.raises(SystemExit, match="1"):
            run_command(partial(fail, error))
        output = capsys.readouterr().err
        assert output.startswith(line)
        assert output.count("\n") == 1
    with pytest.raises(FileNotFoundError):
        run_command(partial(fail, FileNotFoundError(errno.ENOENT, "missing", "x")))
    with pytest.raises(ModuleNotFoundError):
        run_command(partial(fail, ModuleNotFoundError("a module of this project is missing", name="components.x")))


@settings(max_examples=200)
@given(scheme=st.sampled_from(SCHEMES), password=PASSWORDS, sep=st.sampled_from("?&"), data=st.data())
def test_no_message_has_a_password(scheme: str, password: str, sep: str, data: st.DataObject) -> None:
    """In an address as a user, password or key, with any sign in it, and in what a library says of the address."""
    name = data.draw(
        st.sampled_from(["password", "passwd", "pwd", "sig", "api_key", "X-Amz-Signature", "access_token"])
    )
    login = data.draw(st.sampled_from([f"me:{password}@", f"{password.replace(' ', '').replace(':', '')}@", ""]))
    query = "" if login else f"{sep}{name}={password.replace('&', '').replace(' ', '')}"
    address = f"{scheme}://{login}127.0.0.1:1/shop{query}"
    told = str(InputError(f"{address} does not answer (Invalid url: {address}): ask the owner of shop@champion"))
    assert "pw" not in told.replace("pwd=", "").replace("passwd=", "")
    assert "127.0.0.1:1/shop" in told
    assert told.endswith("ask the owner of shop@champion")


def test_no_sign_that_a_terminal_obeys_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise InputError(
            "a\x1b]0;owned\x07\x1b[2J\u202eb.jpg, \u0645\u06cc\u200c\u062e, \U0001f468\u200d\U0001f469: left out"
        )

    with pytest.raises(SystemExit):
        run_command(fail)
    shown = capsys.readouterr().err
    assert shown.startswith(
        "error: a\\x1b]0;owned\\x07\\x1b[2J\\u202eb.jpg, \u0645\u06cc\u200c\u062e, \U0001f468\u200d"
    )
    print_rows(("file", "state"), [("a\x1b[2J[red]b", ("ok", "green"))], title="\x1b[1m")
    say("first \x1b]0;owned\x07\nsecond \u202e")
    shown = capsys.readouterr().out
    assert "a\\x1b[2J[red]b" in shown
    assert "\x1b" not in shown
    assert shown.endswith("first \\x1b]0;owned\\x07\nsecond \\u202e\n")
