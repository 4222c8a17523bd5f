"""No command of the README and the pages is stale: its programs, options, stages, profiles and files are there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import pytest
import yaml
from typer.testing import CliRunner

from components.cli import app
from components.core.profiles import profile_names
from components.core.stage_graph import read_graph
from tests.support.documented import PAGES, REPO, block_lines

_INLINE = re.compile(r"`((?:cliptune|dvc|make|prefect|python -m) [^`]+)`")
_ELLIPSIS = {"...", "\N{HORIZONTAL ELLIPSIS}"}
_END = {"&&", "||", "|", ";", "&", ">", ">>"}
_OF_THE_READER = {"shop", "photographs", "profile"}
"""Profiles that `cliptune import` writes, in the pages that use them, and the word for any."""


def _commands(text: str) -> Iterator[list[str]]:
    """The words of each command: comments, variables before it and what a pipe does with it are no part of it."""
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
    head = [program, *more]
    found = ((page.name, words) for page in PAGES for words in _commands(page.read_text("utf-8")))
    return [(page, words[len(head) :]) for page, words in found if words[: len(head)] == head]


def _ids(found: list[tuple[str, list[str]]]) -> list[str]:
    return [f"{page}: {' '.join(words)}" for page, words in found]


CLIPTUNE = _documented("cliptune")
MODULES = _documented("python", "-m")
DVC = _documented("dvc", "repro")
MAKE = _documented("make")
PROFILES = [(page, words[2:3]) for page, words in CLIPTUNE if words[:2] == ["profile", "use"] and words[2:]]
DEPLOYMENTS = _documented("prefect", "deployment", "run")


def test_the_pages_have_commands() -> None:
    assert len(CLIPTUNE) > 40
    assert len(MODULES) > 10
    assert len(DVC) > 3
    assert len(MAKE) > 5
    assert PROFILES
    assert DEPLOYMENTS


@pytest.mark.parametrize(("page", "words"), CLIPTUNE, ids=_ids(CLIPTUNE))
def test_cliptune_takes_what_is_documented(page: str, words: list[str]) -> None:
    # With `--help` commands and options are looked up, and nothing runs.
    given = [word for word in words if word not in _ELLIPSIS]
    done = CliRunner().invoke(app, [*given, "--help"])
    if given[-1].startswith("--") and done.exit_code:
        # Where a page only names an option that takes a value.
        done = CliRunner().invoke(app, [*given, "value", "--help"])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(("page", "words"), MODULES, ids=_ids(MODULES))
def test_modules_are_there_and_know_their_options(page: str, words: list[str]) -> None:
    if not words[0].startswith(("benchmarks", "components", "flows", "infra", "tests")):
        pytest.skip(f"{words[0]} is another project's")
    path = REPO / words[0].replace(".", "/")
    file = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    source = file.read_text("utf-8")
    for option in (word.partition("=")[0] for word in words[1:] if word.startswith("--")):
        name = option.removeprefix("--").replace("-", "_")
        assert option in source or re.search(rf"\b{name}\b", source), f"{words[0]} has no option {option}"


@cache
def _stages() -> set[str]:
    graph = read_graph()
    return set(graph.needs) | {stage.partition("@")[0] for stage in graph.needs}


@pytest.mark.parametrize(("page", "words"), DVC, ids=_ids(DVC))
def test_stages_are_there(page: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)
    targets = [word for word in words if not word.startswith("-")]
    groups = {stage.partition("@")[0] for stage in _stages()}
    # An entry that only a profile has is no stage of params.yaml as it is.
    assert all(target in _stages() or target.partition("@")[0] in groups for target in targets), targets


@pytest.mark.parametrize(("page", "words"), MAKE, ids=_ids(MAKE))
def test_make_has_the_target(page: str, words: list[str]) -> None:
    targets = set(re.findall(r"^([\w./-]+):", (REPO / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert {word for word in words if "=" not in word and not word.startswith("-")} <= targets


@pytest.mark.parametrize(("page", "words"), PROFILES, ids=_ids(PROFILES))
def test_profiles_are_there(page: str, words: list[str]) -> None:
    assert words[0] in {*profile_names(), *_OF_THE_READER}


@pytest.mark.parametrize(("page", "words"), DEPLOYMENTS, ids=_ids(DEPLOYMENTS))
def test_deployments_are_there(page: str, words: list[str]) -> None:
    entries = yaml.safe_load((REPO / "prefect.yaml").read_text("utf-8"))["deployments"]
    flow, _, name = words[0].partition("/")
    functions = {(re.split(r"[:.]", entry["entrypoint"])[-1].replace("_", "-"), entry["name"]) for entry in entries}
    # One flow is called by less than its function's name.
    assert (flow, name) in {*functions, *(("promote", there) for of, there in functions if of == "promote-best")}
