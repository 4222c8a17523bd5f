"""The profiles of real data and the recipes of docs/papers.md, on tiny folders in the published layouts."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from components.captions import synthesize
from components.core.settings import Counts, Settings
from components.core.system.checking import load_checked
from components.core.system.profiles import fits_any_dataset, profile_names, profile_text
from components.core.system.stage_graph import read_graph
from components.core.tables.records import PAIRS
from components.data import prepare
from components.data.test_sets.readers import cc_neg, sugar_crepe
from components.training.base.published import published_weights
from tests.support.documented import REPO, block_lines
from tests.support.params import copy_profiles
from tests.support.published import csv_text
from tests.support.typed import cliptune
from tests.unit.data.sources.published_folders import captions, picture, write_coco_karpathy, write_pictures
from tests.unit.data.test_sets.writing import write_files

PROFILES = REPO / "infra" / "profiles"
TEXT = (REPO / "docs" / "papers.md").read_text("utf-8")
RECIPES = [
    line
    for line in [*block_lines(TEXT), *re.findall(r"`(cliptune profile apply [^`]+)`", TEXT)]
    if line.startswith("cliptune profile apply") and "<" not in line
]
PLAIN = [
    f"cliptune profile apply {name}"
    for name in profile_names(PROFILES)
    if "dataset" in yaml.safe_load(profile_text(name, PROFILES))
]
"""Profiles of a dataset; the others are of the synthetic one, or are laid over these."""
ROWS, COLUMNS = 60, ("caption", "negation", "paraphrased")


TEXTS = [(f"thing {number}", f"no thing {number}", f"stuff {number}") for number in range(ROWS)]
"""Caption, negation and paraphrase of each picture."""


def _pictures(folder: Path, digits: int) -> list[str]:
    """The names of the pictures, which have so many digits."""
    pictures = {f"{number:0{digits}d}.jpg": picture(number) for number in range(ROWS)}
    write_files(folder, pictures)
    return list(pictures)


def write_folder(folder: Path) -> None:
    write_pictures(folder)
    lines = [
        f"{number}.png\t{text}" for number in range(10) for text in map(" ".join, map(str.split, captions(number)))
    ]
    (folder / "captions.tsv").write_text("\n".join(["image\tcaption", *lines]) + "\n")


def write_cc_neg(folder: Path) -> None:
    plain, negated, _ = map(list, zip(*TEXTS, strict=True))
    columns = {"image_path": _pictures(folder / cc_neg.IMAGES, 9), "caption": plain, "negated": negated}
    pq.write_table(pa.table(columns), folder / cc_neg.TABLE)
    rows = ((number, *texts) for number, texts in enumerate(TEXTS))
    write_files(folder, {cc_neg.CSV: csv_text(("image_number", *COLUMNS), *rows)})


def write_scpp(folder: Path) -> None:
    rows = ((name, *texts) for name, texts in zip(_pictures(folder / "images", 12), TEXTS, strict=True))
    write_files(folder, {sugar_crepe.CSV: csv_text(("filename", *COLUMNS), *rows)})


LAYOUTS: dict[str, tuple[Callable[[Path], None], tuple[int, int, int]]] = {
    "coco": (write_coco_karpathy, (12, 2, 2)),
    "folder": (write_folder, (12, 2, 2)),
    "cc_neg": (write_cc_neg, (20, 4, 8)),
    "semclip_cc_neg": (write_cc_neg, (ROWS, ROWS, ROWS)),
    "semclip_sugar_crepe_pp": (write_scpp, (ROWS, ROWS, ROWS)),
}
"""Source -> writes its folder, and counts that fit."""


@pytest.fixture
def applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Settings]:
    """Runs a recipe in a new project, and returns its settings."""
    monkeypatch.chdir(tmp_path)
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(REPO / name, tmp_path)
    copy_profiles(tmp_path)
    (tmp_path / "data" / "benchmarks").mkdir(parents=True)
    monkeypatch.setattr(cc_neg, "ROWS", ROWS)
    monkeypatch.setattr(cc_neg, "TESTED", 8)
    monkeypatch.setattr(cc_neg, "HELD_OUT", 8)
    monkeypatch.setattr(sugar_crepe, "ROWS", ROWS)
    # The sources read these numbers when they are imported.
    for name in ("semclip_cc_neg", "semclip_sugar_crepe_pp", "cc_neg"):
        monkeypatch.delitem(sys.modules, f"components.data.sources.{name}", raising=False)

    def apply(recipe: str) -> Settings:
        for command in (part for part in recipe.split(" && ") if part.startswith("cliptune profile apply")):
            cliptune(*shlex.split(command)[1:])
        return load_checked()

    return apply


def test_the_page_has_a_recipe_for_each_row_that_no_profile_has() -> None:
    assert len(RECIPES) >= 9
    laid_over = [name for name in profile_names(PROFILES) if fits_any_dataset(name, PROFILES)]
    assert all(any(f"apply {name} --over" in recipe for recipe in RECIPES) for name in laid_over)


@pytest.mark.parametrize("recipe", sorted({*PLAIN, *RECIPES}))
def test_a_recipe_is_applied_and_its_data_prepared(applied: Callable[[str], Settings], recipe: str) -> None:
    settings = applied(recipe)
    base, source = settings.base, settings.prepare
    if base.source == "open_clip" and base.pretrained is not None:
        assert published_weights(base.model, base.pretrained).model == base.model
    if source.source not in LAYOUTS:
        pytest.skip(f"source {source.source} is of a dataset that no paper has")
    write, counts = LAYOUTS[source.source]
    assert source.folder is not None
    write(source.folder)
    fitting = Counts(**dict(zip(("train", "val", "test"), counts, strict=True)))
    settings = settings.model_copy(update={"prepare": source.model_copy(update={"counts": fitting})})
    prepare.run(settings)
    rows = PAIRS.count(Path("data/pairs/train.parquet"))
    images = len(set(PAIRS.read(Path("data/pairs/train.parquet"), ["image_id"])["image_id"].to_pylist()))
    assert (
        min(
            rows,
            PAIRS.count(Path("data/pairs/test.parquet")),
            PAIRS.count(Path("data/evaluation/caption_queries.parquet")),
        )
        > 0
    )
    # Of PC-CLIP's tasks all ordered pairs of the images are asked about.
    for name in {"difference", "difference_cub"} & settings.synthesize.tasks.keys():
        assert f": {images * (images - 1)} questions" in synthesize._plan(settings, name), name


@pytest.mark.slow
@pytest.mark.parametrize("recipe", sorted({*PLAIN, *RECIPES}))
def test_a_recipe_is_planned(applied: Callable[[str], Settings], recipe: str) -> None:
    settings = applied(recipe)
    Path(".dvc").mkdir()
    Path(".dvc/config").write_text("[core]\n    no_scm = True\n")
    needs = read_graph().needs
    scored = {f"evaluate@{name}" for name in settings.compare_encoders}
    trained = {f"train@{name}" for name in settings.methods}
    assert {"prepare", "base", "compare", *scored, *trained} <= needs.keys()
