"""Profiles for real data: the papers' numbers, a graph of stages for each, missing data named by `cliptune doctor`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.captions.prompting.readers import short_captions
from components.captions.prompting.tasks import find_task
from components.captions.validation.rules.tables import synthesised_tables
from components.cli.doctor import CHECKS
from components.cli.doctor.check import examine, read_installation
from components.cli.edited_params import overlaid, write
from components.core.settings import Settings, load_settings
from components.core.system.profiles import profile_files
from components.data.sources import find_source
from components.evaluation.benchmarks.project import find_benchmark
from components.training.base.published import facts_of
from components.training.checks import check
from components.training.methods.contract.method import Optimisation
from components.training.methods.registry import find_entry
from components.training.rows.tables import input_files
from tests.support.params import REPO, copy_profiles
from tests.support.typed import cliptune

TABLES = {"caption_queries.parquet", "paraphrase_queries.parquet"}
"""Test sets of source `folder`; the second needs paraphrases by humans."""
PROFILES = REPO / "infra" / "profiles"
OVER = {
    "distilroberta-imagenet": "distilroberta",
    "laion-400m": "distilroberta",
    "paraclip-terms": "laion",
    "semclip-paper": "semclip-cc-neg",
    "semclip-sweep": "semclip-cc-neg",
    "semclip-sweep-scpp": "semclip-scpp",
}
"""Profile of a further table of a paper -> the profile with the same data."""
REAL = ["cc-neg", "coco", "cub", "distilroberta", "laion", "pc-clip", "semclip-cc-neg", "semclip-scpp", *OVER]
ON_A_TEST_SET = ("semclip-scpp", "semclip-sweep-scpp")
"""Four fifths of SugarCrepe++, as SemCLIP's paper has it; the source keeps the rows of the paper's own test out."""
CROPPING = {"lm_text_tower", "clip_scratch", "negclip"}
"""Methods whose papers train on random crops."""
DIFFERS = {
    ("distilroberta-imagenet", None): {"image_tower"},
    ("laion-400m", None): {"batch_size"},
    ("coco", "pc_clip_mse"): {"epochs"},
    ("pc-clip", "pc_clip_mse"): {"epochs"},
}
"""Settings of a profile's entries, or of one of them, that differ from their method's defaults, as in their papers."""


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each profile, whose params.yaml has the profile."""
    folders = {name: tmp_path_factory.mktemp(name) for name in REAL}
    for name, folder in folders.items():
        shutil.copy(REPO / "params.yaml", folder)
        write(overlaid(name, folder / "params.yaml", PROFILES), folder / "params.yaml")
    return folders


@pytest.fixture(scope="module")
def load(projects: dict[str, Path]) -> Callable[[str], Settings]:
    """The settings of a profile, loaded once."""
    return cache(lambda name: load_settings(projects[name] / "params.yaml"))


Load = Callable[[str], Settings]


def test_scored_encoders_are_trained_as_in_the_papers(load: Load) -> None:
    differences = {}
    for name in REAL:
        settings = load(name)
        assert settings.dataset.name == name
        assert settings.validation.check_scene_facts is False
        assert settings.validation.filters == "paper"
        for encoder in set(settings.compare_encoders) & set(settings.methods):
            entry = find_entry(settings.methods, encoder)
            released = {"protocol": "released"} if getattr(entry.method.settings, "protocol", "") == "released" else {}
            papers = entry.method.read(released).settings
            names = [field.name for field in fields(Optimisation)]
            differing = {one for one in names if getattr(entry.method.settings, one) != getattr(papers, one)}
            # A method's default suits a frozen image tower, for which images are not cropped.
            crops = entry.method.name in CROPPING and entry.method.settings.image_tower != "frozen"
            assert entry.method.settings.least_crop == (0.9 if crops else 1.0), (name, encoder)
            if differing - {"least_crop"} != DIFFERS.get((name, encoder), DIFFERS.get((name, None), set())):
                differences[name, encoder] = differing
    assert differences == {}


def test_every_profile_keeps_test_sets_out_and_scores_its_guards(load: Load) -> None:
    for name in REAL:
        settings = load(name)
        prepare, promote, tasks = settings.prepare, settings.promote, settings.synthesize.tasks
        assert prepare.heldout_testsets_dir == (None if name in ON_A_TEST_SET else Path("data/benchmarks")), name
        assert (prepare.on_test_leak, prepare.exclude_test_by) == ("drop", "images"), name
        # Only ParaCLIP filters captions by length.
        assert not any(task.caption_length for task in tasks.values()), name
        assert {task for task in tasks if find_task(task).accepts is short_captions} == {"paraphrase_1"}, name
        # Only OpenAI's weights have QuickGELU.
        assert settings.base.model.endswith("quickgelu") == (settings.base.pretrained == "openai"), name
        scored = {benchmark: find_benchmark(benchmark) for benchmark in settings.evaluate.benchmarks}
        assert {need.path for benchmark in scored.values() for need in benchmark.needs} <= TABLES, name
        for metric in (promote.metric, *(guard for guard, loss in promote.guards.items() if loss is not None)):
            scored[metric.partition("/")[0]].metric(metric)
        assert set(promote.require_benchmarks) <= set(scored), name
        assert set(promote.require_valid_tables) <= set(synthesised_tables()), name
        assert promote.card.datasets == (name,)


@pytest.mark.parametrize("name", ["semclip-cc-neg", "semclip-scpp", "semclip-paper"])
def test_semclip_trains_on_the_published_texts_in_four_ways(load: Load, name: str) -> None:
    settings = load(name)
    check(settings)
    texts = {"published_paraphrase", "published_negation"}
    entries = [find_entry(settings.methods, name) for name in settings.compare_encoders[1:]]
    found = [entry.method.needs & texts for entry in entries]
    assert found == [texts, {"published_paraphrase"}, {"published_negation"}, {"published_paraphrase"}]
    assert {entry.method.epoch_unit for entry in entries} == {"rows"}
    # The printed figures come from the released objective and images (src/custom_loss.py, src/dataset.py).
    assert {entry.method.settings.protocol for entry in entries} == {"paper" if name == "semclip-paper" else "released"}
    assert settings.embed.squash == (name != "semclip-paper")
    assert (settings.base.model, settings.base.pretrained) == ("ViT-B-32", "laion2b_s34b_b79k")
    # The released rule applied to 228,246 and 4,757 rows.
    rows = 4_757 if name == "semclip-scpp" else 228_246
    counts = settings.prepare.counts
    assert (counts.val, counts.test) == (rows // 10, rows // 10)
    assert counts.train == rows - counts.val - counts.test


@pytest.mark.parametrize("name", ["semclip-sweep", "semclip-sweep-scpp"])
def test_semclips_sweep_is_25_runs_that_differ(load: Load, name: str) -> None:
    """Section 4 and appendix B: three losses, one or two directions, fixed or learnt, normalised or not; a baseline."""
    settings = load(name)
    hypers = [find_entry(settings.methods, encoder).method.settings for encoder in settings.compare_encoders[1:]]
    assert {hyper.protocol for hyper in hypers} == {"released"}
    runs = [((one.paraphrase_weight, one.negation_weight), one.n, one.learnable, one.normalised) for one in hypers]
    wanted = {*product([(1, 1), (1, 0), (0, 1)], (1, 2), (False, True), (False, True)), ((0, 0), 2, False, True)}
    assert (len(runs), set(runs)) == (25, wanted)


def test_paraclips_table_2_has_its_eight_sums_and_table_1d_its_alignment_layers(load: Load) -> None:
    settings = load("paraclip-terms")
    assert (settings.base.model, settings.base.pretrained) == ("ViT-B-32-quickgelu", "openai")
    methods = [find_entry(settings.methods, name).method for name in settings.compare_encoders[1:]]
    found = [" + ".join(method.settings.terms) for method in methods]
    assert found[:4] == ["l1", "l2 + l3", "l1 + l1_prime", "l1 + l1_prime + l1_second"]
    assert found[4:] == ["l1 + l2", "l1_prime + l2", "l1 + l2 + l3", "l1_second + l2 + l3"]
    settings = load("distilroberta")
    aligned = [encoder for encoder in settings.compare_encoders if encoder.startswith("lm_align")]
    hypers = [find_entry(settings.methods, encoder).method.settings for encoder in aligned]
    assert [hyper.alignment_layers for hyper in hypers] == [6, 2, 4, 8]
    assert {(hyper.strategy, hyper.language_model) for hyper in hypers} == {
        ("alignment", "sentence-transformers/all-distilroberta-v1")
    }


@pytest.mark.parametrize("name", ["coco", "pc-clip"])
def test_both_losses_of_pc_clip_are_means_as_released(load: Load, name: str) -> None:
    settings = load(name)
    wanted = {"pc_clip": "released", "pc_clip_mse": "released", "pc_clip_mse_paper": "paper"}
    assert {entry: find_entry(settings.methods, entry).method.settings.protocol for entry in wanted} == wanted
    # Table 4's averages take half of the change that training brought.
    halves = {mix.a: mix.weights for mix in settings.mixes.values()}
    assert halves == ({} if name == "coco" else {"pc_clip": (0.5, 0.0), "caption_ft": (0.5, 0.0)})


def test_pc_clip_and_cc_neg_start_from_their_papers_bases(load: Load) -> None:
    averaged = ["pc_clip_averaged", "caption_ft_averaged"]
    encoders = {"pc-clip": ["pc_clip", "pc_clip_mse", "caption_ft", "rewrite_ft", *averaged], "cub": ["pc_clip_cub"]}
    for name, wanted in encoders.items():
        settings = load(name)
        base = settings.base
        assert (base.source, base.model, base.pretrained) == ("open_clip", "ViT-L-14", "datacomp_xl_s13b_b90k")
        assert "Base weights of DataComp's ViT-L/14, MIT" in settings.promote.card.licences
        assert list(settings.compare_encoders) == ["base", *wanted]
    settings = load("cc-neg")
    assert settings.prepare.source == "cc_neg"
    assert (settings.base.model, settings.base.pretrained) == ("ViT-B-32", "laion2b_s34b_b79k")
    assert "Base weights of LAION's ViT-B/32, MIT" in settings.promote.card.licences
    counts = settings.prepare.counts
    # 228,246 rows less the last 40,000, less a random tenth of all, of which 18,826 are expected among the others.
    assert counts.train + counts.val <= 228_246 - 40_000 - 18_826 - 400
    assert counts.test <= 40_000


def test_pc_clip_trains_on_differences_of_birds(load: Load) -> None:
    settings = load("cub")
    # Of ten captions of each of CUB's 5,994 training images, or of its 5,794 test images.
    counts = settings.prepare.counts
    assert (settings.prepare.source, 10 * (5_794 - counts.val - counts.test) >= counts.train) == ("folder", True)
    check(settings)
    entry = find_entry(settings.methods, "pc_clip_cub")
    assert entry.method.name == "pc_clip"
    files = input_files(entry.method.needs, entry.reads, Path("pairs"))
    assert files == {"differences": settings.validation.file("differences_cub")}
    asked = settings.synthesize.tasks["difference_cub"]
    assert (asked.max_captions, asked.pairs, asked.table) == (750, 750 * 749, "differences_cub")


@pytest.mark.parametrize(
    ("name", "context", "tokenizer", "resize"),
    [("metaclip-2", 77, "facebook/xlm-v-base", "shortest"), ("pe-core", 32, "clip-bpe", "squash")],
)
def test_a_profile_of_another_base_is_applied_and_planned(
    name: str, context: int, tokenizer: str, resize: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("params.yaml", "dvc.yaml"):
        shutil.copy(REPO / file, tmp_path)
    copy_profiles(tmp_path)
    assert f"+  name: {name}" in cliptune("profile", "apply", name, "--dry-run", "--diff")
    write(overlaid(name))
    settings = load_settings()
    check(settings)
    base = settings.base
    facts = facts_of(base.model, str(base.pretrained))
    assert (facts["model"], facts["loss"]) == (base.model, "softmax")
    assert (facts["context_length"], facts["tokenizer"]) == (context, tokenizer)
    assert facts["preparation"]["resize_mode"] == resize
    assert set(settings.compare_encoders) <= {"base", *settings.methods}


def test_every_licence_names_its_subject() -> None:
    """In a flow list of YAML a comma that is not quoted makes two entries of "..., MIT"."""
    for path in (REPO / "params.yaml", *profile_files(PROFILES).values()):
        for entry in (yaml.safe_load(path.read_text("utf-8")).get("promote") or {}).get("card", {}).get("licences", []):
            assert re.fullmatch(r"(?!(MIT|BSD|Apache|CC BY|GPL)[-A-Z0-9. ]*,)[^,]+, .+", entry), entry


def test_the_fix_for_missing_data(projects: dict[str, Path], load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    def examined() -> Any:
        return examine(read_installation(folder), {"data": CHECKS["data"]}, 120)[0]

    for name in (name for name in REAL if name not in OVER):
        folder, prepare = projects[name], load(name).prepare
        images, table = folder / str(prepare.folder), find_source(prepare.source).file
        line, testsets = examined(), "prepare.heldout_testsets_dir data/benchmarks is missing"
        assert line.status == "fail", name
        assert f"prepare.folder {prepare.folder} is missing" in line.detail, name
        assert (testsets in line.detail) == (name not in ON_A_TEST_SET), name
        assert ("train.shards" in line.detail) == (name in ("laion", "distilroberta")), name
        images.mkdir(parents=True)
        assert f"has no {table}" in examined().detail, name
        (images / str(table)).write_text("image\tcaption\n" if table == "captions.tsv" else "")
        assert ("has no column paraphrase" in examined().detail) == (name == "laion"), name
        if table == "captions.tsv":
            (images / "captions.tsv").write_text("image\tcaption\tparaphrase\n")
        assert f"has no {table}" not in examined().detail, name
