"""docs/sampling.md has the lengths of an epoch and a run of every paper's profile."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from braceexpand import braceexpand

from components.captions.prompting.readers import read_caption_pairs
from components.captions.prompting.tasks import find_task
from components.captions.validation.rules.tables import find_table
from components.cli.edited_params import overlaid, write
from components.core.settings import Settings, load_settings
from components.core.tables.training_columns import ALIKE, PREPARED
from components.training.methods.registry import Entry, find_entry
from components.training.rows.batches import Sampler, Visits, groups_of
from components.training.rows.tables import input_files

REPO = Path(__file__).parents[4]
PROFILES = REPO / "infra" / "profiles"
LARGEST = pytest.param("laion", marks=pytest.mark.slow)
PAPERS = (LARGEST, "coco", "pc-clip", "cub", "cc-neg", "distilroberta", "laion-400m", "semclip-cc-neg", "semclip-scpp")
PER_SHARD = 10_000
"""What img2dataset puts into a shard."""


@pytest.fixture(params=PAPERS)
def profile(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Settings]:
    params = tmp_path / "params.yaml"
    shutil.copy(REPO / "params.yaml", params)
    write(overlaid(request.param, params, PROFILES), params)
    return request.param, load_settings(params)


def _expected(settings: Settings, entry: Entry) -> list[int]:
    tables = input_files(entry.method.needs, Path("data/validated"), Path())
    hyper, images, compared = entry.method.settings, settings.prepare.counts.train, False
    if tables.keys() == {"pairs"} and settings.train.shards is not None and hyper.image_tower != "frozen":
        streamed = len(list(braceexpand(settings.train.shards.urls))) * PER_SHARD
        steps = streamed // hyper.batch_size // hyper.accumulate
        return [streamed, hyper.batch_size * hyper.accumulate, steps, hyper.epochs, steps * hyper.epochs]
    named = [_read(name, entry) for name in tables if name not in ("pairs", *PREPARED)]
    for task in (answer.task for name in named for answer in find_table(name).answers):
        task_settings = settings.synthesize.tasks[task]
        images = min(images, task_settings.max_captions or settings.synthesize.max_captions)
        if find_task(task).reads is read_caption_pairs:
            compared = True
            assert task_settings.pairs == images * (images - 1)
    rows, batches = _epoch(images, compared, entry.method.epoch_unit, hyper.batch_size)
    steps = batches // hyper.accumulate
    return [rows, hyper.batch_size * hyper.accumulate, steps, hyper.epochs, steps * hyper.epochs]


def _read(table: str, entry: Entry) -> str:
    """The table, or the one that the entry reads in its place."""
    return entry.reads.stem if entry.reads.stem in ALIKE.get(table, ()) else table


@cache
def _epoch(images: int, compared: bool, visits: Visits, batch_size: int) -> tuple[int, int]:
    """Rows, and batches of an epoch, of so many images with one caption each or of all ordered pairs of them."""
    about = [np.arange(images)]
    if compared:
        first, second = np.divmod(np.arange(images * images), images)
        about = [first[first != second], second[first != second]]
    return len(about[0]), Sampler(groups_of(visits, about[0], about), batch_size, 0).steps_per_epoch


def test_the_table_has_what_the_profiles_give(profile: tuple[str, Settings]) -> None:
    name, settings = profile
    lines = [line.split("|")[1:-1] for line in (REPO / "docs" / "sampling.md").read_text("utf-8").splitlines()]
    documented = {
        cells[1].strip(" `"): [int(cell.replace(",", "")) for cell in cells[2:7]]
        for cells in lines
        if cells and cells[0].strip(" `") == name
    }
    entries = [
        find_entry(settings.methods, encoder) for encoder in settings.compare_encoders if encoder in settings.methods
    ]
    assert documented == {entry.name: _expected(settings, entry) for entry in entries}
