"""`cliptune init` prints the contents of a folder and writes a profile that works unchanged."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from components.cli import app
from components.core.settings import load_settings
from components.core.system.checking import check_settings
from components.core.system.profiles import overlaid, settings_with
from components.data.sources import find_source
from tests.unit.data.sources.published_folders import (
    WRITERS,
    captions,
    picture,
    write_flickr8k,
    write_pictures,
    write_webdataset,
)

REPO = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's settings and profiles, in the current folder."""
    shutil.copy(REPO / "params.yaml", tmp_path)
    shutil.copytree(REPO / "infra" / "profiles", tmp_path / "infra" / "profiles")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def _write_own(folder: Path, paraphrase: str = "") -> None:
    """Twenty images with two captions each, in the project's own format."""
    write_pictures(folder, range(20))
    head = "image\tcaption" + ("\tparaphrase" if paraphrase else "")
    rows = [f"{number}.png\t{text}" for number in range(20) for text in captions(number)]
    (folder / "captions.tsv").write_text("\n".join([head, *(row + paraphrase for row in rows)]) + "\n")


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["init", *arguments])


FORMATS: dict[str, tuple[str, Callable[[Path], None]]] = {**WRITERS, "own": ("folder", _write_own)}


def test_over_a_profile_of_the_same_source_only_the_folder_changes(project: Path) -> None:
    write_flickr8k(project / "set")
    assert _run("set", "--name", "mine", "--extends", "flickr8k").exit_code == 0
    mine, shipped = (settings_with(name) for name in ("mine", "flickr8k"))
    assert mine.prepare == shipped.prepare.model_copy(update={"folder": Path("set")})
    watched = {"depends": shipped.depends.model_copy(update={"prepare": Path("set/Flickr8k.token.txt")})}
    assert mine.model_copy(update={"prepare": shipped.prepare}) == shipped.model_copy(update=watched)


@pytest.mark.parametrize(("over", "base", "paraclip"), [("flickr8k", 64, 16), (None, None, 32)])
def test_batches_fit_a_small_folder(over: str | None, base: int | None, paraclip: int, project: Path) -> None:
    write_pictures(project / "set", range(500))
    rows = [f"{number}.png\t{text} {number}" for number in range(500) for text in captions(number)]
    (project / "set" / "captions.tsv").write_text("\n".join(["image\tcaption", *rows]) + "\n")
    assert _run("set", "--name", "mine", *(("--extends", over) if over else ())).exit_code == 0
    mine = settings_with("mine")
    # 400 images train, with two captions each; 0.3 of the paraphrases are sure to be accepted.
    assert (mine.base.fit.batch_size if mine.base.fit else None) == base
    assert mine.methods["paraclip"]["batch_size"] == paraclip


@pytest.mark.parametrize("over", ["toy", "claims", "methods", "flickr8k"])
def test_an_extended_profile_can_run_on_the_folder(over: str, project: Path) -> None:
    _write_own(project / "set")
    done = _run("set", "--name", "mine", "--extends", over)
    assert done.exit_code == 0, done.output
    mine = settings_with("mine")
    check_settings(mine)
    # Card and facts of synthetic scenes are not those of photographs.
    assert (mine.validation.check_scene_facts, mine.promote.card.licences) == (False, ())
    assert (mine.prepare.source, mine.promote.card.datasets) == ("folder", ("mine",))


def test_wrong_profiles_are_refused_before_one_is_written(project: Path) -> None:
    _write_own(project / "set")
    (project / "infra/profiles/wrong.yaml").write_text("methods: {paraclip: {lrr: 1}}\n")
    for over, refusal in (("wrong", "error: over profile 'wrong': params.yaml: "), ("flikr8k", "did you mean 'fl")):
        done = _run("set", "--name", "mine", "--extends", over)
        assert (done.exit_code, done.output.count(refusal)) == (1, 1), done.output
        assert not (project / "infra/profiles/mine.yaml").exists()


@pytest.mark.parametrize("name", FORMATS)
def test_the_profile_fits_and_asks_for_what_is_there(name: str, project: Path) -> None:
    source, write = FORMATS[name]
    write(project / "set")
    done = _run("set", "--name", "mine")
    assert done.exit_code == 0, done.output
    assert f"source '{source}'" in done.output
    assert "next: cliptune profile apply mine" in done.output
    (project / "params.yaml").write_text(overlaid("mine"))
    settings = load_settings()
    assert (settings.dataset.name, settings.prepare.source) == ("mine", source)
    pairs = list(find_source(source).usable(settings, []))
    counts = settings.prepare.counts
    assert [sum(pair.split == split for pair in pairs) for split in ("train", "val", "test")] == [
        counts.train, counts.val, counts.test
    ]  # fmt: skip
    assert settings.compare_encoders == ("base", "paraclip")
    assert settings.evaluate.benchmarks == ("retrieval",)
    assert settings.promote.metric == "retrieval/t2i_recall_at_5"


def test_paraphrases_by_people_decide_where_there_are_any(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_own(project / "data" / "set", "\tsaid otherwise")
    monkeypatch.chdir(project / "data")
    assert _run("set").exit_code == 0
    monkeypatch.chdir(project)
    assert "folder: data/set" in Path("infra/profiles/set.yaml").read_text()
    (project / "params.yaml").write_text(overlaid("set"))
    settings = load_settings()
    assert settings.evaluate.benchmarks == ("paraphrased_retrieval", "retrieval")
    assert settings.promote.metric == "paraphrased_retrieval/ao_at_10"


def test_a_dry_run_writes_nothing_and_json_has_the_facts(project: Path) -> None:
    _write_own(project / "set")
    before = sorted(project.rglob("*"))
    output = json.loads(_run("set", "--dry-run", "--json").stdout)
    assert sorted(project.rglob("*")) == before
    assert output["source"] == "folder"
    assert output["images"] == {"train": 20}
    assert output["captions"] == {"train": 40}
    assert output["counts"] == {"train": 32, "val": 2, "test": 2}
    assert output["problems"] == ["2 test images, fewer than 10 in evaluate.top_k: add images, or lower it"]
    assert output["prepare_bytes"] > 0


def test_problems_are_told_before_a_stage_meets_them(project: Path) -> None:
    _write_own(project / "set")
    (project / "set" / "3.png").unlink()
    (project / "set" / "4.png").write_bytes(picture(4)[:40])
    done = _run("set", "--dry-run")
    assert "problem: 1 images that captions.tsv names are missing or damaged" in done.output
    assert "the first: set/captions.tsv: line 8 names 3.png, which is not in set: add or remove it" in done.output
    assert "problem: 1 of 19 opened images cannot be used: set/4.png is not a readable image" in done.output


def _damaged(folder: Path) -> None:
    _write_own(folder)
    (folder / "captions.tsv").write_text("nothing")


def _ambiguous(folder: Path) -> None:
    _write_own(folder)
    (folder / "dataset_coco.json").write_text("{}")


def _only_tests(folder: Path) -> None:
    _write_own(folder)
    head, *rows = (folder / "captions.tsv").read_text().rstrip("\n").split("\n")
    (folder / "captions.tsv").write_text("\n".join([f"{head}\tsplit", *(f"{row}\ttest" for row in rows)]))


def _zipped(folder: Path) -> None:
    write_webdataset(folder)
    for shard in folder.glob("*.tar"):
        shard.write_bytes(gzip.compress(shard.read_bytes()))


def _few(folder: Path) -> None:
    _write_own(folder)
    lines = (folder / "captions.tsv").read_text().split("\n")
    (folder / "captions.tsv").write_text("\n".join(lines[:9]) + "\n")


@pytest.mark.parametrize(
    ("write", "options", "message"),
    [
        (lambda _: None, (), "set is not a folder"),
        (Path.mkdir, (), "set is in no known format (coco: dataset_coco.json; "),
        (_damaged, (), "captions.tsv: the first line must name the columns image and caption"),
        (_ambiguous, (), "set matches several formats, coco (dataset_coco.json), folder (captions.tsv): keep the file"),
        (_few, (), "set has 4 images: at least 10 are needed"),
        (_only_tests, (), "set has only images of split test: add some to train on"),
        (_zipped, (), "set has 0 images: at least 10 are needed; set-TEST-00000.tar/truncated header: cut, or"),
        (_write_own, ("--name", "../x"), "'../x' is not a profile name"),
        (_write_own, ("--name", "toy"), "infra/profiles/toy.yaml exists"),
    ],
)
def test_refusals_are_one_line(
    write: Callable[[Path], object], options: tuple[str, ...], message: str, project: Path
) -> None:
    write(project / "set")
    done = _run("set", *options)
    assert done.exit_code == 1
    assert done.output.startswith("error: ")
    assert message in done.output
    assert done.output.count("\n") == 1
