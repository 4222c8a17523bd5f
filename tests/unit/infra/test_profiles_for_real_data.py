"""Profiles for real data: the papers' numbers, stages that DVC can plan, missing data named by `cliptune doctor`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.base.published import check_published
from components.benchmarks.embedded import find_benchmark
from components.captions.inputs.sources import short_captions
from components.captions.tasks import find_task
from components.core.checking import check_methods, table_files
from components.core.profiles import overlaid, write
from components.core.settings import Settings, load_settings
from components.data.sources import find_source
from components.doctor.examine import CHECKS, examine, read_installation
from components.methods.contract.optimisation import Optimisation
from components.methods.registry import find_entry
from components.training.rows.tables import input_files
from components.validation.tables import find_table

REPO = Path(__file__).parents[3]
TABLES = {"caption_queries.parquet", "paraphrase_queries.parquet"}
"""What source `folder` can make, the second from paraphrases that people wrote."""
PROFILES = REPO / "infra" / "profiles"
OVER = {
    "distilroberta-imagenet": "distilroberta",
    "laion-400m": "distilroberta",
    "paraclip-terms": "laion",
    "semclip-paper": "semclip-cc-neg",
    "semclip-sweep": "semclip-cc-neg",
    "semclip-sweep-scpp": "semclip-scpp",
}
"""Further tables of a paper -> the profile whose data they have."""
REAL = ["cc-neg", "coco", "cub", "distilroberta", "laion", "pc-clip", "semclip-cc-neg", "semclip-scpp", *OVER]
ON_A_TEST_SET = ("semclip-scpp", "semclip-sweep-scpp")
"""Four fifths of SugarCrepe++, as SemCLIP's paper has it; the source keeps the rows of the paper's own test out."""
CROPPING = {"adapted_lm", "clip_scratch", "negclip"}
"""Methods whose papers train on random crops."""
DIFFERS = {
    ("distilroberta-imagenet", None): {"image_tower"},
    ("laion-400m", None): {"batch_size"},
    ("coco", "pc_clip_mse"): {"epochs"},
    ("pc-clip", "pc_clip_mse"): {"epochs"},
}
"""What a profile's entries, or one of them, have other than their method's defaults, as their papers say."""


@pytest.fixture(params=REAL)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(name: str, tmp_path: Path) -> Path:
    """A project whose params.yaml has the profile."""
    params = tmp_path / "params.yaml"
    shutil.copy(REPO / "params.yaml", params)
    write(overlaid(name, params, PROFILES), params)
    return tmp_path


def _settings(folder: Path) -> Settings:
    return load_settings(folder / "params.yaml")


def test_what_is_scored_is_trained_as_the_papers_say(folder: Path, name: str) -> None:
    settings = _settings(folder)
    assert settings.world.name == name
    assert settings.validation.check_facts is False
    assert settings.validation.filters == "paper"
    for encoder in set(settings.encoders) & set(settings.methods):
        entry = find_entry(settings.methods, encoder)
        released = {"protocol": "released"} if getattr(entry.hyper, "protocol", "") == "released" else {}
        papers = entry.method.settings(released)
        differing = {
            one.name for one in fields(Optimisation) if getattr(entry.hyper, one.name) != getattr(papers, one.name)
        }
        # A method's default suits a frozen image tower, which is not cropped for.
        crops = entry.method.name in CROPPING and entry.hyper.image_tower != "frozen"
        assert entry.hyper.least_crop == (0.9 if crops else 1.0), encoder
        differs = DIFFERS.get((name, encoder), DIFFERS.get((name, None), set()))
        assert differing - {"least_crop"} == differs, encoder


def test_paraclips_filter_of_captions_is_paraclips_alone(folder: Path) -> None:
    """The other papers ask about captions of any length."""
    tasks = _settings(folder).synthesize.tasks
    assert {name: tasks[name].words for name in tasks if tasks[name].words is not None} == {}
    assert {name for name in tasks if find_task(name).accepts is short_captions} == {"paraphrase_1"}


def test_quick_gelu_belongs_to_openai_weights_alone(folder: Path) -> None:
    base = _settings(folder).base
    assert base.model.endswith("quickgelu") == (base.pretrained == "openai")


def test_no_profile_trains_on_what_cliptune_evaluate_scores(folder: Path, name: str) -> None:
    prepare = _settings(folder).prepare
    assert prepare.benchmarks == (None if name in ON_A_TEST_SET else Path("data/benchmarks"))
    assert (prepare.leaks, prepare.keep_out) == ("drop", "images")


@pytest.mark.parametrize("name", ["semclip-cc-neg", "semclip-scpp", "semclip-paper"])
def test_semclip_trains_on_the_published_texts_in_four_ways(folder: Path, name: str) -> None:
    settings = _settings(folder)
    check_methods(settings.methods, table_files(settings))
    texts = {"published_paraphrase", "published_negation"}
    entries = [find_entry(settings.methods, name) for name in settings.encoders[1:]]
    found = [entry.method.needs(entry.hyper) & texts for entry in entries]
    assert found == [texts, {"published_paraphrase"}, {"published_negation"}, {"published_paraphrase"}]
    assert {entry.method.visits(entry.hyper) for entry in entries} == {"rows"}
    # The printed figures come from the released objective and images (src/custom_loss.py, src/dataset.py).
    assert {entry.hyper.protocol for entry in entries} == {"paper" if name == "semclip-paper" else "released"}
    assert settings.embed.squash == (name != "semclip-paper")
    base = settings.base
    assert (base.model, base.pretrained) == ("ViT-B-32", "laion2b_s34b_b79k")
    # What the released rule makes of 228,246 and 4,757 rows.
    rows = 4_757 if name == "semclip-scpp" else 228_246
    counts = settings.prepare.counts
    assert (counts.val, counts.test) == (rows // 10, rows // 10)
    assert counts.train == rows - counts.val - counts.test


@pytest.mark.parametrize("name", ["semclip-sweep", "semclip-sweep-scpp"])
def test_semclips_sweep_is_25_runs_that_differ(folder: Path) -> None:
    """Section 4 and appendix B: three losses, one or two directions, fixed or learnt, normalised or not; a baseline."""
    settings = _settings(folder)
    hypers = [find_entry(settings.methods, encoder).hyper for encoder in settings.encoders[1:]]
    assert {hyper.protocol for hyper in hypers} == {"released"}
    runs = {(one.paraphrase_weight, one.negation_weight, one.n, one.learnable, one.normalised) for one in hypers}
    wanted = {
        (*weights, n, learnable, normalised)
        for weights in ((1, 1), (1, 0), (0, 1))
        for n in (1, 2)
        for learnable in (False, True)
        for normalised in (False, True)
    }
    assert len(hypers) == 25
    assert runs == wanted | {(0, 0, 2, False, True)}


@pytest.mark.parametrize("name", ["paraclip-terms"])
def test_paraclips_table_2_has_its_eight_sums_on_openais_clip(folder: Path) -> None:
    settings = _settings(folder)
    assert (settings.base.model, settings.base.pretrained) == ("ViT-B-32-quickgelu", "openai")
    assert [find_entry(settings.methods, encoder).hyper.terms for encoder in settings.encoders[1:]] == [
        ("l1",),
        ("l2", "l3"),
        ("l1", "l1_prime"),
        ("l1", "l1_prime", "l1_second"),
        ("l1", "l2"),
        ("l1_prime", "l2"),
        ("l1", "l2", "l3"),
        ("l1_second", "l2", "l3"),
    ]


@pytest.mark.parametrize("name", ["coco", "pc-clip"])
def test_both_losses_of_pc_clip_are_means_as_released(folder: Path, name: str) -> None:
    settings = _settings(folder)
    found = {
        entry: find_entry(settings.methods, entry).hyper.protocol
        for entry in ("pc_clip", "pc_clip_mse", "pc_clip_mse_paper")
    }
    assert found == {"pc_clip": "released", "pc_clip_mse": "released", "pc_clip_mse_paper": "paper"}
    # Table 4's averages take half of what an encoder learnt.
    halves = {mix.first: mix.shares for mix in settings.mixes.values()}
    assert halves == ({} if name == "coco" else {"pc_clip": (0.5, 0.0), "coco_ft": (0.5, 0.0)})


@pytest.mark.parametrize("name", ["distilroberta"])
def test_alignment_layers_are_those_of_table_1d(folder: Path) -> None:
    settings = _settings(folder)
    hypers = [
        find_entry(settings.methods, encoder).hyper for encoder in settings.encoders if encoder.startswith("lm_align")
    ]
    assert [hyper.alignment_layers for hyper in hypers] == [6, 2, 4, 8]
    assert {(hyper.strategy, hyper.language_model) for hyper in hypers} == {
        ("alignment", "sentence-transformers/all-distilroberta-v1")
    }


def test_cc_neg_knows_its_published_split_and_starts_from_the_papers_base() -> None:
    profile = yaml.safe_load((PROFILES / "cc-neg.yaml").read_text("utf-8"))
    assert profile["prepare"]["source"] == "cc_neg"
    base = profile["base"]
    assert (base["model"], base["pretrained"]) == ("ViT-B-32", "laion2b_s34b_b79k")
    assert "Base weights of LAION's ViT-B/32, MIT" in profile["promote"]["card"]["licences"]
    counts = profile["prepare"]["counts"]
    # 228,246 rows less the last 40,000, less a random tenth of all, of which 18,826 are expected among the others.
    assert counts["train"] + counts["val"] <= 228_246 - 40_000 - 18_826 - 400
    assert counts["test"] <= 40_000


@pytest.mark.parametrize(
    ("name", "encoders"),
    [
        ("pc-clip", ["pc_clip", "pc_clip_mse", "coco_ft", "rewrite_ft", "pc_clip_averaged", "coco_ft_averaged"]),
        ("cub", ["pc_clip_cub"]),
    ],
)
def test_pc_clip_starts_from_its_papers_base(folder: Path, encoders: list[str]) -> None:
    settings = _settings(folder)
    base = settings.base
    assert (base.source, base.model, base.pretrained) == ("open_clip", "ViT-L-14", "datacomp_xl_s13b_b90k")
    # The tag is open_clip's, and its weights have the activation that the name says.
    check_published(base.model, str(base.pretrained), quick_gelu=False)
    assert "Base weights of DataComp's ViT-L/14, MIT" in settings.promote.card.licences
    assert list(settings.encoders) == ["base", *encoders]


@pytest.mark.parametrize("name", ["cub"])
def test_pc_clip_trains_on_differences_of_birds(folder: Path) -> None:
    settings = _settings(folder)
    check_methods(settings.methods, table_files(settings))
    entry = find_entry(settings.methods, "pc_clip_cub")
    assert entry.method.name == "pc_clip"
    files = input_files(entry.method.needs(entry.hyper), entry.reads, Path("pairs"))
    assert files == {"differences": settings.validation.file("differences_cub")}
    asked = settings.synthesize.tasks["difference_cub"]
    assert (asked.captions, asked.pairs, asked.table) == (750, 750 * 749, "differences_cub")


@pytest.mark.parametrize("path", [REPO / "params.yaml", *sorted(PROFILES.glob("*.yaml"))], ids=lambda path: path.stem)
def test_every_licence_says_what_it_is_of(path: Path) -> None:
    """In a flow list of YAML a comma that is not quoted makes two entries of "..., MIT"."""
    for entry in (yaml.safe_load(path.read_text("utf-8")).get("promote") or {}).get("card", {}).get("licences", []):
        what, _, licence = entry.partition(", ")
        assert what, entry
        assert licence, entry
        assert not re.fullmatch(r"(MIT|BSD|Apache|CC BY|GPL)[-A-Z0-9. ]*", what), entry


def test_profiles_are_short(name: str) -> None:
    assert len((PROFILES / f"{name}.yaml").read_text("utf-8").splitlines()) <= 46


def test_missing_data_is_named_with_the_fix(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    check = [check for check in CHECKS if check.title == "data"]
    images = _settings(folder).prepare.folder
    line = examine(read_installation(folder), 120, check)[0]
    assert line.status == "fail"
    assert f"prepare.folder {images} is missing" in line.detail
    table = find_source(_settings(folder).prepare.source).file
    assert f"put the images and {table} into {images}" in line.fix
    assert ("prepare.benchmarks data/benchmarks is missing" in line.detail) == (name not in ON_A_TEST_SET)
    assert ("train.shards" in line.detail) == ({name, OVER.get(name)} & {"laion", "distilroberta"} != set())
    (folder / str(images)).mkdir(parents=True)
    assert f"{table} is missing" in examine(read_installation(folder), 120, check)[0].detail
    if table != "captions.tsv":
        (folder / str(images) / str(table)).touch()
        assert str(table) not in examine(read_installation(folder), 120, check)[0].detail
        return
    (folder / str(images) / "captions.tsv").write_text("image\tcaption\n")
    detail = examine(read_installation(folder), 120, check)[0].detail
    assert ("has no column paraphrase" in detail) == ("laion" in (name, OVER.get(name)))
    (folder / str(images) / "captions.tsv").write_text("image\tcaption\tparaphrase\n")
    assert "captions.tsv" not in examine(read_installation(folder), 120, check)[0].detail


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_dvc_plans_every_stage(folder: Path) -> None:
    """A dry run; on an idle machine some ten seconds for each profile."""
    shutil.copy(REPO / "dvc.yaml", folder)
    shutil.copytree(REPO / "components", folder / "components", ignore=shutil.ignore_patterns("__pycache__"))
    _make_outputs(folder)
    for command in (["init", "--no-scm", "-q"], ["repro", "--dry"]):
        run = [sys.executable, "-m", "dvc", *command]
        done = subprocess.run(run, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    settings = _settings(folder)
    for stage in ("prepare", "base", *(f"train@{name}" for name in settings.methods), "compare"):
        assert f"'{stage}'" in done.stdout, stage
    assert not (folder / "dvc.lock").exists()


def _make_outputs(folder: Path) -> None:
    """Something in the place of every output: DVC wants to hash inputs, in a dry run too."""
    raw = yaml.safe_load((folder / "params.yaml").read_text("utf-8"))
    names = [task["input"] for task in raw["synthesize"]["tasks"].values()]
    names += [entry["reads"] for entry in raw["methods"].values() if Path(entry["reads"]).suffix]
    for stage in yaml.safe_load((folder / "dvc.yaml").read_text("utf-8"))["stages"].values():
        if "matrix" in stage:
            assert not raw["study"]["seeds"], "no profile for real data trains anything again"
            continue
        over: Any = raw
        for key in str(stage.get("foreach", "")).strip("${}").split("."):
            over = over[key] if key else [""]
        made = stage.get("do", stage)
        for out in [*made.get("outs", []), *made.get("metrics", [])]:
            pattern = out if isinstance(out, str) else next(iter(out))
            names += [_filled(pattern, item, over) for item in over]
    for path in (folder / name for name in names):
        (path.parent if path.suffix else path).mkdir(parents=True, exist_ok=True)
        if path.suffix:
            path.touch()


def _filled(pattern: str, item: object, over: Any) -> str:
    """`pattern` with the stage's entry in it: its key, itself, or one of its settings."""
    own = re.sub(r"\$\{item\.(\w+)\}", lambda found: str(over[item][found.group(1)]), pattern)
    return re.sub(r"\$\{(key|item)\}", str(item), own)


def test_a_folder_gives_what_is_scored_and_the_gate_asks_for_what_is_scored(folder: Path, name: str) -> None:
    settings = _settings(folder)
    scored = {benchmark: find_benchmark(benchmark) for benchmark in settings.evaluate.benchmarks}
    assert {need.path for benchmark in scored.values() for need in benchmark.needs} <= TABLES
    guards = [metric for metric, loss in settings.promote.guards.items() if loss is not None]
    for metric in (settings.promote.primary, *guards):
        scored[metric.partition("/")[0]].metric(metric)
    assert set(settings.promote.benchmarks) <= set(scored)
    assert settings.promote.card.worlds == (name,)
    for table in settings.promote.validation:
        find_table(table)
