"""`cliptune init` prints the contents of a folder and writes a profile that works unchanged."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.captions.generating.engines import make_engine
from components.cli.doctor.check import Installation
from components.cli.doctor.machine import check_data
from components.core.system.checking import check_settings
from components.core.system.errors import InputError
from components.core.system.profiles import settings_with
from components.data.sources import find_source
from tests.support.params import REPO, copy_profiles
from tests.support.typed import cliptune
from tests.unit.data.sources import published_folders as published


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's settings and profiles, in the current folder."""
    shutil.copy(REPO / "params.yaml", tmp_path)
    copy_profiles(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def _write_own(folder: Path, paraphrase: str = "") -> None:
    """Twenty images with two captions each, in the project's own format."""
    published.write_pictures(folder, range(20))
    head = "image\tcaption" + ("\tparaphrase" if paraphrase else "")
    _write_captions(folder, [head, *(row + paraphrase for row in _rows(20))])


def _rows(images: int) -> list[str]:
    return [f"{number}.png\t{text} {number}" for number in range(images) for text in published.captions(number)]


def _write_captions(folder: Path, lines: list[str]) -> None:
    (folder / "captions.tsv").write_text("\n".join(lines) + "\n")


def _write_parquet(folder: Path) -> None:
    """The same as a Parquet file that names pictures."""
    published.write_pictures(folder, range(20))
    image, caption = zip(*(row.split("\t") for row in _rows(20)), strict=True)
    pq.write_table(pa.table({"image": image, "caption": caption}), folder / "captions.parquet")


FORMATS: dict[str, tuple[str, Callable[[Path], None]]] = {
    **published.WRITERS, "own": ("folder", _write_own), "parquet": ("folder", _write_parquet)
}  # fmt: skip
_IN_ONE_FILE = ("embeddings", "huggingface", "webdataset")
"""Sources whose files hold pictures or vectors too, which take long to read."""


def test_over_a_profile_of_the_same_source_only_the_folder_changes() -> None:
    published.write_flickr8k(Path("set"))
    cliptune("init", "set", "--name", "mine", "--extends", "flickr8k")
    mine, shipped = (settings_with(name) for name in ("mine", "flickr8k"))
    assert mine.prepare == shipped.prepare.model_copy(update={"folder": Path("set")})
    watched = {"depends": shipped.depends.model_copy(update={"prepare": Path("set/Flickr8k.token.txt")})}
    assert mine.model_copy(update={"prepare": shipped.prepare}) == shipped.model_copy(update=watched)


@pytest.mark.parametrize(("over", "base", "paraclip"), [("flickr8k", 64, 16), (None, None, 32)])
def test_the_recipe_fits_a_small_folder(over: str | None, base: int | None, paraclip: int) -> None:
    published.write_pictures(Path("set"), range(500))
    _write_captions(Path("set"), ["image\tcaption", *_rows(500)])
    cliptune("init", "set", "--name", "mine", *(("--extends", over) if over else ()))
    mine = settings_with("mine")
    # 400 images train, with two captions each; 0.3 of the paraphrases are sure to be accepted.
    assert (mine.base.fit.batch_size if mine.base.fit else None) == base
    # The learning rate follows from the rows too, whatever the extended profile has.
    assert (mine.methods["paraclip"]["batch_size"], mine.methods["paraclip"]["lr"]) == (paraclip, 5e-6)


@pytest.mark.parametrize("over", ["toy", "claims", "methods", "flickr8k"])
def test_an_extended_profile_can_run_on_the_folder(over: str) -> None:
    _write_own(Path("set"))
    cliptune("init", "set", "--name", "mine", "--extends", over, "--llm", "https://host/v1", "--model", "m")
    mine = settings_with("mine")
    check_settings(mine)
    assert check_data(Installation({}, Path(), mine)).status == "ok"
    # A model writes the paraphrases that captions.tsv lacks.
    assert mine.test_set.llm == mine.synthesize.default_llm
    assert mine.synthesize.llms[mine.synthesize.default_llm]["urls"] == ["https://host/v1"]
    # Card and facts of synthetic scenes are not those of photographs.
    assert (mine.validation.check_scene_facts, mine.promote.card.licences) == (False, ())
    assert (mine.prepare.source, mine.promote.card.datasets) == ("folder", ("mine",))


@pytest.mark.parametrize("name", FORMATS)
def test_the_profile_fits_the_folder(name: str) -> None:
    source, write = FORMATS[name]
    write(Path("set"))
    output = cliptune("init", "set", "--name", "mine")
    assert f"source '{source}'" in output
    assert "next: cliptune profile apply mine" in output
    settings = settings_with("mine")
    assert (settings.dataset.name, settings.prepare.source) == ("mine", source)
    splits = Counter(pair.split for pair in find_source(source).usable(settings, []))
    assert splits == settings.prepare.counts.model_dump()
    assert settings.compare_encoders == ("base", "paraclip")
    # DVC watches the file of captions, whatever its ending.
    assert settings.depends.prepare.is_relative_to("set") is (source not in _IN_ONE_FILE)
    # A model writes the paraphrases on which the gate decides.
    assert settings.test_set.llm == "llm"
    assert settings.promote.metric == "paraphrased_retrieval/ao_at_10"
    assert len(Path("infra/profiles/mine.yaml").read_text().splitlines()) < 60


def test_several_files_of_captions_are_watched_by_their_folder() -> None:
    published.write_pictures(Path("set"), range(20))
    for split, images in (("train", range(14)), ("val", range(14, 17)), ("test", range(17, 20))):
        rows = [f"{number}.png,{text} {number}" for number in images for text in published.captions(number)]
        Path("set", f"{split}.csv").write_text("\n".join(["filepath,title", *rows]))
    cliptune("init", "set", "--name", "mine", "--text", "title")
    assert settings_with("mine").depends.prepare == Path("set")


def test_human_paraphrases_decide_where_there_are_any(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_own(project / "data" / "set", "\tsaid otherwise")
    monkeypatch.chdir(project / "data")
    cliptune("init", "set")
    monkeypatch.chdir(project)
    assert "folder: data/set" in Path("infra/profiles/set.yaml").read_text()
    settings = settings_with("set")
    assert settings.evaluate.benchmarks == ("paraphrased_retrieval", "ranking_stability", "retrieval")
    assert (settings.test_set.llm, settings.promote.metric) == (None, "paraphrased_retrieval/ao_at_10")


def test_options_fill_the_profile() -> None:
    published.write_pictures(Path("set"), range(30))
    rows = [f"{number}.png\tMug {number // 3}\tAcme\tsku{number // 3}" for number in range(30)]
    _write_captions(Path("set"), ["image\ttitle\tbrand\tsku", *rows])
    options = ["--text", "title, brand", "--item", "sku", "--base", "ViT-B-16:openai", "--methods", "semclip,paraclip"]
    output = cliptune("init", "set", "--name", "mine", *options, "--llm", "https://host/v1", "--model", "m")
    assert "captions: 3 words (median; 90% have 3 to 3), such as: Mug 0, Acme\n" in output
    assert "items: 10 products, 10 with several pictures, at most 3" in output
    assert "no model is set" not in output
    settings = settings_with("mine")
    check_settings(settings)
    assert (settings.base.model, settings.base.pretrained, settings.base.scratch) == ("ViT-B-16", "openai", None)
    assert settings.synthesize.llms["llm"] == {"engine": "server", "urls": ["https://host/v1"], "model": "m"}
    assert {task for task in settings.synthesize.tasks if "semclip" in task} == {"paraphrase_semclip", "negate_semclip"}
    assert settings.compare_encoders == ("base", "semclip", "paraclip")
    splits = Counter(pair.split for pair in find_source("folder").usable(settings, []))
    assert splits["train"] == settings.prepare.counts.train
    assert "no model is set to write captions: put its URL" in cliptune(
        "init", "set", "--name", "other", "--text", "title"
    )
    with pytest.raises(InputError, match=r"synthesize\.llms\.llm: key 'urls': is not set: write the URL"):
        make_engine(settings_with("other").synthesize, "llm")


def test_a_dry_run_writes_nothing_and_reports_facts_and_problems(project: Path) -> None:
    _write_own(project / "set")
    before = sorted(project.rglob("*"))
    output = json.loads(cliptune("init", "set", "--dry-run", "--json"))
    assert sorted(project.rglob("*")) == before
    assert (output["source"], output["images"], output["captions"]) == ("folder", {"train": 20}, {"train": 40})
    assert output["counts"] == {"train": 32, "val": 2, "test": 2}
    gains, depth = output["problems"]
    assert gains.startswith("2 test images show only gains of AO@10 above 40 points, and no gain below 20 images")
    assert depth == "2 test images, fewer than 10 in evaluate.top_k: add images, or lower it"
    assert output["prepare_bytes"] > 0
    shutil.copy("set/6.png", "set/5.png")
    output = json.loads(cliptune("init", "set", "--dry-run", "--json"))
    copies, gate = output["facts"][-2:]
    assert copies.startswith("copies: 1 pictures are in another file too")
    assert "show gains of AO@10 from 56.0 points on; the guard is a loss of 93 points of recall@5" in gate
    # Of 19 pictures one tests and one validates: at most the one with four captions, and one with two.
    assert (output["images"], output["counts"]) == ({"train": 19}, {"train": 34, "val": 1, "test": 1})
    Path("set/3.png").unlink()
    Path("set/4.png").write_bytes(published.picture(4)[:40])
    text = cliptune("init", "set", "--dry-run")
    assert "problem: 1 images that captions.tsv names are missing or damaged" in text
    assert "the first: set/captions.tsv: line 8 names 3.png, which is not in set: add or remove it" in text
    assert "problem: 1 of 19 opened images cannot be used: set/4.png is not a readable image" in text


def _own_with(name: str, *lines: str) -> Callable[[Path], None]:
    """Writes the project's own format, then these lines into one of its files."""

    def write(folder: Path) -> None:
        _write_own(folder)
        (folder / name).write_text("\n".join(lines) + "\n")

    return write


def _zipped(folder: Path) -> None:
    published.write_webdataset(folder)
    for shard in folder.glob("*.tar"):
        shard.write_bytes(gzip.compress(shard.read_bytes()))


@pytest.mark.parametrize(
    ("write", "options", "message"),
    [
        (lambda _: None, (), "set is not a folder"),
        (Path.mkdir, (), "set is in no known format (coco: dataset_coco.json; "),
        (_own_with("captions.tsv", "nothing"), (),
         "captions.tsv has the columns nothing and none for 'image': call one image, or name it by --image; the first"),
        (_own_with("dataset_coco.json", "{}"), (),
         "set matches several formats, coco (dataset_coco.json), folder (captions.tsv): keep the file"),
        (_own_with("captions.tsv", "image\tcaption", *_rows(4)), (), "set has 4 images: at least 10 are needed"),
        (_own_with("captions.tsv", "image\tcaption\tsplit", *(f"{row}\ttest" for row in _rows(20))), (),
         "set has only images of split test: add some to train on"),
        (_zipped, (), "set has 0 images: at least 10 are needed; set-TEST-00000.tar/truncated header: cut, or"),
        (_write_own, ("--name", "../x"), "'../x' is not a profile name"),
        (_write_own, ("--name", "toy"), "infra/profiles/toy.yaml exists"),
        (_write_own, ("--base", "ViT-B-32:opnai"), "weights 'opnai' of ViT-B-32 are unknown: choose one of openai, "),
        (_write_own, ("--base", "ViT-B-32:openai", "--extends", "flickr8k"), "--base and --methods do not go with"),
        (_write_own, ("--base", "ViT-B-32"), "--base 'ViT-B-32' names no weights: write NAME:TAG"),
        (_write_own, ("--llm", "https://host/v1"), "--llm and --model belong together"),
        (_write_own, ("--llm", "host", "--model", "m"), "the entry is not a URL"),
        (_write_own, ("--captions", "people"), "--captions 'people' is unknown: the one choice is `model`"),
        (_write_own, ("--captions", "model"), "--captions model needs a vision-language model: give --llm and --model"),
        (_write_own, ("--captions", "model", "--llm", "http://127.0.0.1:9/v1", "--model", "m"),
         "set/captions.tsv exists: move it away, or give another --out"),
        (_write_own, ("--methods", "paraclp"), "did you mean 'paraclip'"),
        (_write_own, ("--text", "titel"), "has the columns image, caption and none for 'titel': correct --text"),
        (lambda folder: (_write_own(folder), (folder / "captions.tsv").rename(folder / "products.tsv")), (),
         "rename products.tsv to captions.tsv"),
    ],
)  # fmt: skip
def test_refusals_are_one_line(write: Callable[[Path], object], options: tuple[str, ...], message: str) -> None:
    write(Path("set"))
    output = cliptune("init", "set", *options, code=1)
    assert output.startswith("error: ")
    assert message in output
    assert output.count("\n") == 1


def test_a_wrong_profile_is_refused_before_one_is_written() -> None:
    _write_own(Path("set"))
    Path("infra/profiles/wrong.yaml").write_text("methods: {paraclip: {lrr: 1}}\n")
    for over, refusal in (("wrong", "error: over profile 'wrong': params.yaml: "), ("flikr8k", "did you mean 'fl")):
        assert cliptune("init", "set", "--name", "mine", "--extends", over, code=1).count(refusal) == 1
        assert not Path("infra/profiles/mine.yaml").exists()


def test_captions_are_counted_before_any_is_written() -> None:
    published.write_pictures(Path("set"), range(12))
    options = ["--llm", "http://127.0.0.1:9/v1", "--model", "sees"]
    plan = "set: 12 pictures, at most 36 questions to sees; nothing sent"
    for command in (["caption", "set", "--dry-run"], ["init", "set", "--captions", "model", "--dry-run"]):
        assert cliptune(*command, *options).strip() == plan
    assert not Path("set/captions.tsv").exists()


@pytest.mark.parametrize(
    ("captions", "language", "line"),
    [
        (["ein roter Hund läuft über die grüne Wiese", "eine Katze schläft auf dem alten Sofa"], "de", "German 100%"),
        (["a red dog runs across the green meadow", "a cat sleeps on the old sofa"], "en", ""),
        (
            ["ein roter Hund läuft über die grüne Wiese", "a cat sleeps quietly on the old brown sofa"],
            ["de", "en"],
            "50%",
        ),
    ],
)
def test_the_language_of_the_captions_is_found(captions: list[str], language: object, line: str) -> None:
    published.write_pictures(Path("set"), range(20))
    rows = [f"{number}.png\t{captions[number % 2]}" for number in range(20)]
    _write_captions(Path("set"), ["image\tcaption", *rows])
    output = cliptune("init", "set", "--name", "mine")
    assert line in output
    assert ("languages:" in output) == bool(line)
    settings = settings_with("mine")
    found = settings.validation.language
    assert (list(found) if isinstance(found, tuple) else found) == language
    # The similarity model reads English, so another model judges the rest.
    judges = [settings.synthesize.tasks[name].judge_llm for name in ("paraphrase_1", "paraphrase_2")]
    assert judges == [None if language == "en" else "llm"] * 2
