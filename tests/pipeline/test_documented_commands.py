"""Programs, options, stages, profiles and files in the commands of the README and the pages exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress

import pytest
import yaml
from typer.testing import CliRunner

from components.cli import app
from components.core.system.profiles import profile_names
from components.core.system.stage_graph import read_graph
from tests.support.documented import PAGES, REPO, block_lines

_INLINE = re.compile(r"`((?:cliptune|dvc|make|prefect|python -m) [^`]+)`")
_ELLIPSIS = {"...", "\N{HORIZONTAL ELLIPSIS}"}
_END = {"&&", "||", "|", ";", "&", ">", ">>"}
_OF_THE_READER = {"shop", "photographs", "profile", "catalogue"}
"""Profiles that `cliptune init` writes, in the pages that use them, and the word for any."""


def _commands(text: str) -> Iterator[list[str]]:
    """The words of each command, without comments, variables before it, and pipes."""
    for line in [*block_lines(text), *_INLINE.findall(text)]:
        words: list[str] = []
        with suppress(ValueError):
            words = shlex.split(re.sub(r"<([\w -]+)>", r"\1", line).replace(";", " ; "), comments=True)
        command: list[str] = []
        for word in [*words, ";"]:
            if word in _END:
                while command and re.match(r"^[A-Z_]+=", command[0]):
                    command.pop(0)
                if command:
                    yield command
                command = []
            else:
                command.append(word)


def _documented(program: str, *more: str) -> list[tuple[str, list[str]]]:
    """Each command of a program: its page and command line, and its words."""
    head = [program, *more]
    return [
        (f"{page.name}: {' '.join(words)}", words[len(head) :])
        for page in PAGES
        for words in _commands(page.read_text("utf-8"))
        if words[: len(head)] == head
    ]


def test_cliptune_has_the_documented_commands_and_options() -> None:
    commands, refused = _documented("cliptune"), []
    assert len(commands) > 40
    for line, words in commands:
        # `--help` looks up commands and options, and runs nothing.
        given = [word for word in words if word not in _ELLIPSIS]
        done = CliRunner().invoke(app, [*given, "--help"])
        if given[-1].startswith("--") and done.exit_code:
            # A page may name only an option that takes a value.
            done = CliRunner().invoke(app, [*given, "value", "--help"])
        refused += [(line, done.output)] if done.exit_code else []
    assert refused == []
    profiles = [(line, words[2]) for line, words in commands if words[:2] == ["profile", "apply"] and words[2:]]
    assert profiles
    assert [line for line, name in profiles if name not in {*profile_names(), *_OF_THE_READER}] == []


def test_pipelines_wait_for_the_lock_of_dvc() -> None:
    """A plain `dvc repro` fails, and repeats its stage, if another command holds the lock for three seconds."""
    lines = [(page.name, line) for page in PAGES for line in block_lines(page.read_text("utf-8"))]
    lines += [("Makefile", line) for line in (REPO / "Makefile").read_text("utf-8").splitlines()]
    assert [(page, line) for page, line in lines if re.search(r"\bdvc repro\b", line.partition("#")[0])] == []


def test_modules_have_the_documented_options() -> None:
    own = ("components", "flows", "infra", "research", "tests")
    modules = [(line, words) for line, words in _documented("python", "-m") if words[0].startswith(own)]
    assert len(modules) > 10
    missing = []
    for line, words in modules:
        path = REPO / words[0].replace(".", "/")
        file = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
        source = file.read_text("utf-8") if file.is_file() else ""
        for option in (word.partition("=")[0] for word in words[1:] if word.startswith("--")):
            name = option.removeprefix("--").replace("-", "_")
            missing += [] if option in source or re.search(rf"\b{name}\b", source) else [(line, option)]
        missing += [] if source else [(line, words[0])]
    assert missing == []


def test_documented_stages_targets_and_deployments_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)
    stages = set(read_graph().needs)
    # An entry that only a profile has is not a stage of params.yaml.
    groups = {"research/dvc.yaml"} | {stage.partition("@")[0] for stage in stages}
    targets = set(re.findall(r"^([\w./-]+):", (REPO / "Makefile").read_text("utf-8"), re.MULTILINE))
    entries = yaml.safe_load((REPO / "prefect.yaml").read_text("utf-8"))["deployments"]
    names = {(re.split(r"[:.]", entry["entrypoint"])[-1].replace("_", "-"), entry["name"]) for entry in entries}
    # This flow has a shorter name than its function.
    deployments = {"/".join(pair) for pair in names}
    deployments |= {f"promote/{name}" for flow, name in names if flow == "promote-best"}
    repro, make = _documented("dvc", "--wait-for-lock", "repro"), _documented("make")
    runs = _documented("prefect", "deployment", "run")
    assert (len(repro) > 3, len(make) > 5, bool(runs)) == (True, True, True)
    unknown = [
        line for line, words in repro for word in words if word[0] != "-" and word.partition("@")[0] not in groups
    ]
    unknown += [
        line for line, words in make for word in words if "=" not in word and word[0] != "-" and word not in targets
    ]
    unknown += [line for line, words in runs if words[0] not in deployments]
    assert unknown == []
