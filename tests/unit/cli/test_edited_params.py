"""Profiles change what they name and nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.cli.edited_params import (
    assigned,
    base_profile,
    difference,
    laid_over,
    notices,
    overlaid,
    replace,
    start_text,
    write,
)
from components.core.settings import load_settings, parsed_settings
from components.core.system.checking import load_checked
from components.core.system.errors import InputError
from components.core.system.profiles import fits_any_dataset, merge, profile_names, settings_with
from components.training.methods.contract.method import Optimisation
from components.training.methods.registry import find_entry, method_names

REPO = Path(__file__).parents[3]


@pytest.fixture
def params(tmp_path: Path) -> Path:
    path = tmp_path / "params.yaml"
    shutil.copy(REPO / "params.yaml", path)
    return path


def _profile(folder: Path, text: str) -> Path:
    profiles = folder / "profiles"
    profiles.mkdir()
    (profiles / "mine.yaml").write_text(text)
    return profiles


def test_a_profile_extends_another_deeply(params: Path, tmp_path: Path) -> None:
    target: dict[str, Any] = {"a": {"b": 1, "c": [1, 2]}, "d": 1}
    merge(target, {"a": {"c": [3], "new": {"x": 1}}, "e": 2})
    assert target == {"a": {"b": 1, "c": [3], "new": {"x": 1}}, "d": 1, "e": 2}
    methods = "methods:\n  one: {method: paraclip, lr: 0.1}\n  two: {method: paraclip, lr: 0.1}\n"
    profiles = _profile(tmp_path, f"{methods}dataset: {{name: mine, seed: 7}}\n")
    (profiles / "over.yaml").write_text("over: mine\nmethods: {two: {lr: 0.2}}\ndataset: {name: over}\n")
    assert (base_profile("over", profiles), base_profile("mine", profiles)) == ("mine", "")
    write(overlaid("over", params, profiles), params)
    settings = load_settings(params)
    assert (settings.methods["one"]["lr"], settings.methods["two"]["lr"]) == (0.1, 0.2)
    assert (settings.dataset.name, settings.dataset.seed) == ("over", 7)


def test_a_profile_without_a_dataset_replaces_nothing_of_another_dataset(params: Path, tmp_path: Path) -> None:
    profiles = _profile(tmp_path, "dataset: {name: mine}\nmethods: {paraclip: {lr: 0.5}}\n")
    (profiles / "more.yaml").write_text(
        "methods: {paraclip: {lr: 0.1, seed: 3}, other: {lr: 0.2, seed: 4}}\ncompare_encoders: [base]\n"
    )
    (profiles / "else.yaml").write_text("dataset: {name: else}\n")
    assert list(notices("mine", overlaid("mine", params, profiles), params, profiles)) == []
    write(overlaid("mine", params, profiles), params)
    before, text = load_settings(params), overlaid("more", params, profiles)
    (notice,) = notices("more", text, params, profiles)
    assert notice.endswith("'more' has other values: methods.paraclip.lr, methods.other.lr, compare_encoders")
    write(text, params)
    after = load_settings(params)
    assert after.methods == {"paraclip": before.methods["paraclip"] | {"seed": 3}, "other": {"seed": 4}}
    assert after.compare_encoders == before.compare_encoders
    (notice,) = notices("else", overlaid("else", params, profiles), params, profiles)
    assert "params.yaml was of dataset 'mine', whose values that profile 'else' does not set remain" in notice


def test_profile_methods_keeps_models_captions_and_learning_rates_of_a_shop(params: Path, tmp_path: Path) -> None:
    shipped = params.read_text("utf-8")
    profiles = shutil.copytree(REPO / "infra/profiles", tmp_path / "profiles")
    llm = "llms: {mine: {engine: server, urls: ['http://127.0.0.1:9/v1'], model: m}}, default_llm: mine"
    shop = "dataset: {name: shop}\nmethods: {paraclip: {lr: 5.0e-7, batch_size: 3072, epochs: 1}}\n"
    shop += f"synthesize: {{{llm}, max_captions: 200000, cached_answers: null}}\n"
    for name, base in (("shop", ""), ("large_shop", "over: vit-b-32\n")):
        (profiles / f"{name}.yaml").write_text(base + shop)
        params.write_text(shipped)
        write(overlaid(name, params, profiles), params)
        before, text = load_settings(params), overlaid("methods", params, profiles)
        found = list(notices("methods", text, params, profiles))
        # Profile `vit-b-32` has the models of `methods` already.
        assert ("language models stay: llms student, mine; default_llm mine" in found) is (not base)
        write(text, params)
        after = load_checked(params)
        assert after.synthesize.llms == before.synthesize.llms
        assert {after.synthesize.model_of(task) for task in after.synthesize.tasks.values()} <= set(
            before.synthesize.llms
        )
        assert after.synthesize.max_captions == 200000
        new = [task for key, task in after.synthesize.tasks.items() if key not in before.synthesize.tasks]
        assert {(task.llm, task.max_captions, task.pairs) for task in new} <= {(None, None, None)}
        for key, entry in after.methods.items():
            assert entry.get("lr") == before.methods.get(key, {}).get("lr"), key
        assert set(after.methods) >= set(load_settings(REPO / "params.yaml").methods)
    assert len(new) == 0 < len(after.methods)


def test_models_that_differ_from_the_committed_ones_stay_under_any_profile(params: Path) -> None:
    mine = {"llms": {"mine": {"engine": "server"}}, "default_llm": "mine"}
    raw = yaml.safe_load(params.read_text())
    params.write_text(yaml.safe_dump(raw | {"synthesize": raw["synthesize"] | mine}))
    for keeps in (True, False):
        block = yaml.safe_load(overlaid("methods", params, REPO / "infra/profiles", keep_models=keeps))["synthesize"]
        assert (block["llms"] == mine["llms"]) is keeps
        assert ("llm" in block["tasks"]["rewrite"]) is not keeps
        assert block["default_llm"] == "mine"


@pytest.mark.parametrize("dataset", ["laion", "coco", "vit-b-32"])
def test_paraclips_writer_answers_on_every_dataset_for_which_it_is_meant(params: Path, dataset: str) -> None:
    profiles = REPO / "infra/profiles"
    with pytest.raises(InputError, match="'paper-student' is not for the synthetic dataset: apply one for real data"):
        overlaid("paper-student", params, profiles)
    write(overlaid(dataset, params, profiles), params)
    before = load_settings(params)
    text = overlaid("paper-student", params, profiles, keep_models=True)
    assert list(notices("paper-student", text, params, profiles)) == []
    write(text, params)
    after = load_checked(params)
    assert (after.dataset, after.prepare, after.methods) == (before.dataset, before.prepare, before.methods)
    student = after.students["paraclip_writer"]
    asked, tasks = after.synthesize, student.tasks
    assert asked.llms[str(student.teacher)]["model"] == "gpt-3.5-turbo"
    for name in tasks:
        task = asked.tasks[name]
        assert asked.llms[asked.model_of(task)]["model"] == "models/students/paraclip_writer/merged"
        assert (task.max_captions, task.prompt) == (5_000_000, before.synthesize.tasks[name].prompt)
    # The other tasks keep their models.
    others = asked.tasks.keys() - {*tasks}
    assert {name: asked.tasks[name] for name in others} == {name: before.synthesize.tasks[name] for name in others}
    assert asked.default_llm == before.synthesize.default_llm


def test_profiles_start_from_the_committed_file_and_no_edit_is_lost(
    params: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    committed = params.read_text()
    applied, edited = committed + "# applied\n", committed + "# edited\n"
    for is_committed in (False, True):
        if is_committed:
            git = ("git", "-c", "user.name=x", "-c", "user.email=x@x")
            for command in (("init", "-q"), ("add", "params.yaml"), ("commit", "-qm", "start")):
                subprocess.run([*git, *command], check=True)
        assert replace(applied, applied=True) is None
        assert start_text() == committed
        assert replace(committed + "# next\n", applied=True) is None
        params.write_text(edited)
        copy = replace(applied, applied=True)
        assert copy is not None
        assert copy.read_text() == edited
        params.write_text(edited)
        assert replace(edited + "# over\n", applied=True, over=True) is None
        assert replace(committed, applied=False) is not None
        assert params.read_text() == start_text() == committed
        assert len(list(Path("state").glob("*"))) == 2


def test_shipped_profiles_keep_comments_of_blocks_and_change_nothing_twice(params: Path) -> None:
    profiles, shipped = REPO / "infra/profiles", params.read_text()
    comments = {line for line in shipped.splitlines() if line.startswith("#")}
    for name in profile_names(profiles):
        params.write_text(shipped)
        if fits_any_dataset(name, profiles):
            _use("laion", params)
        _use(name, params)
        assert comments <= set(params.read_text().splitlines()), name
        assert difference(overlaid(name, params, profiles), params) == "", name
        load_checked(params)


def test_the_written_text_has_the_settings_that_stages_read_from_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)
    more = {"study": {"seeds": [1]}}
    for name in profile_names():
        if not fits_any_dataset(name):
            assert parsed_settings(overlaid(name, more=more), name) == settings_with(name, more), name


def test_a_profile_changes_its_values_and_drops_the_comments_above_replaced_ones(params: Path, tmp_path: Path) -> None:
    profiles = _profile(tmp_path, "dataset: {name: mine}\nprepare: {counts: {test: 7}}\n")
    before = params.read_text()
    text = overlaid("mine", params, profiles)
    assert params.read_text() == before
    expected = yaml.safe_load(before)
    expected["dataset"]["name"] = "mine"
    expected["prepare"]["counts"]["test"] = 7
    assert yaml.safe_load(text) == expected
    lines = difference(text, params).splitlines()
    assert len([line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]) == 4
    more = "methods: {paraclip: {lr: 0.5}}\npromote: {guards: {new: 1}}\ncompare_encoders: [base]\n"
    (profiles / "mine.yaml").write_text(more)
    comments = {line for line in before.splitlines() if "#" in line}
    dropped = comments - set(overlaid("mine", params, profiles).splitlines())
    assert len(dropped) == 2
    assert all("# For the synthetic" in line or "# evaluation texts" in line for line in dropped)


def test_values_are_laid_over_by_key_and_a_new_entry_stands_before_the_next_comment(params: Path) -> None:
    values = assigned(("study.seeds=[1]", "train.seed = 7", "train.resume=false"))
    assert values == {"study": {"seeds": [1]}, "train": {"seed": 7, "resume": False}}
    more = assigned(("study.seeds=[]",))
    text = overlaid("claims", params, more=more)
    assert list(notices("claims", text, params, more=more)) == []
    assert any("study.seeds" in notice for notice in notices("claims", text, params))
    settings = yaml.safe_load(text)
    assert (settings["study"]["seeds"], settings["study"]["claims"]) == ([], ["papers"])
    for text, message in (("study", "is not KEY=VALUE"), ("a..b=1", "is not KEY=VALUE"), ("a=[", "line 1, column")):
        with pytest.raises(InputError, match=message):
            assigned((text,))
    entry = {"method": "paraclip", "train_data": "data/validated/paraclip", "lr": 0.1}
    lines = laid_over([{"methods": {"mine": entry}}], "mine", params).splitlines()
    before = params.read_text().splitlines()
    assert [line for line in lines if line not in before] == ["  mine:", "    lr: 0.1"]
    next_block = lines.index("mixes: {}")
    assert lines[next_block - 3 : next_block] == before[before.index("mixes: {}") - 3 : before.index("mixes: {}")]
    assert lines.index("  mine:") < next_block - 3


def test_bad_and_unknown_profiles_are_refused(params: Path, tmp_path: Path) -> None:
    profiles = _profile(tmp_path, "{}")
    for profile, message in (
        ("dataset: {nam: x}\n", r"mine\.yaml does not fit: unknown key 'dataset\.nam'"),
        (
            "methods: {paraclip: {reads: x}}\n",
            r"does not fit: methods\.paraclip\.reads: now train_data; `cliptune upgr",
        ),
        ("base: {source: nowhere}\n", r"mine\.yaml does not fit: key 'base\.source'"),
        ("- a list\n", r"mine\.yaml must hold blocks"),
        ("a: [\n", r"mine\.yaml is not valid YAML"),
        # PyYAML takes it, the reader that keeps comments does not.
        ("prepare:\n  &older: folder\n  split_seed: 2\n", r"mine\.yaml is not valid YAML: line [23]"),
        ("over: below\n", r"mine\.yaml: over: 'below' is unknown"),
    ):
        (profiles / "mine.yaml").write_text(profile)
        with pytest.raises(InputError, match=message):
            overlaid("mine", params, profiles)
    with pytest.raises(InputError, match="'other' is unknown: choose one of mine"):
        overlaid("other", params, profiles)


def _use(name: str, params: Path) -> None:
    """Lay a shipped profile over params.yaml."""
    text = overlaid(name, params, REPO / "infra" / "profiles")
    assert difference(text, params)
    write(text, params)


def test_the_default_settings_have_only_paraclip_and_profile_methods_adds_the_others(params: Path) -> None:
    before = load_settings(params)
    assert (list(before.methods), list(before.validation.tables)) == (["paraclip"], ["paraphrases"])
    assert list(before.synthesize.tasks) == ["paraphrase_1", "paraphrase_2"]
    _use("methods", params)
    after = load_settings(params)
    assert after.compare_encoders == ("base", *after.methods)
    assert {entry["method"] for entry in after.methods.values()} == set(method_names())
    assert after.methods["paraclip"] == before.methods["paraclip"]


def test_the_profile_for_real_data_keeps_the_image_index_and_optimises_as_the_papers_do(params: Path) -> None:
    _use("vit-b-32", params)
    settings = load_settings(params)
    entries = [find_entry(settings.methods, name) for name in settings.methods]
    trained = {entry.name for entry in entries if entry.method.settings.image_tower != "frozen"}
    assert set(settings.compare_encoders) == {"base", *settings.methods} - trained
    comment = (REPO / "infra" / "profiles" / "vit-b-32.yaml").read_text("utf-8").partition("\nover:")[0]
    assert {name for name in settings.methods if re.search(rf"\b{name}\b", comment)} == trained
    for entry in entries:
        papers = entry.method.read({}).settings
        names = [field.name for field in fields(Optimisation)]
        differing = {name for name in names if getattr(entry.method.settings, name) != getattr(papers, name)}
        # The squared error's five epochs are the paper's too, but a method has one default; CS-CLIP warms up for three
        # epochs, which settings count in steps.
        expected = {"pc_clip_mse": {"epochs"}, "cs_clip": {"warmup_steps"}}
        expected |= {f"paraclip_{setting}": {setting} for setting in ("retention", "matryoshka")}
        # Crops are a matter of image towers that train.
        assert differing - {"least_crop"} == expected.get(entry.name, set()), entry.name
