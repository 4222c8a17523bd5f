"""`cliptune index` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from components.cli import app
from components.encoders.adapter.encoder import Encoder
from components.index.facts import read_facts
from tests.support.index_making import drawn, write_vectors
from tests.support.toy_context import colour_image


@pytest.fixture
def project(tmp_path: Path, tiny_encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three encoders, of which two have the same image tower; pictures and bare vectors."""
    monkeypatch.chdir(tmp_path)
    tiny_encoder.save(Path("models/mine"))
    next(tiny_encoder.model.transformer.parameters()).data += 0.1
    tiny_encoder.save(Path("models/better"))
    next(tiny_encoder.model.visual.parameters()).data += 0.1
    tiny_encoder.save(Path("models/stranger"))
    for number in range(3):
        colour_image(Path(f"pictures/{number}.png"), (80 * number, 0, 0), (16, 16))
    write_vectors(Path("vectors"), 0, drawn(1000, dim=16))
    return tmp_path


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["index", *arguments])
    return done.exit_code, " ".join(done.output.split())


def test_built_appended_and_checked(project: Path) -> None:
    pictures = ("--from", "pictures", "--encoder", "mine")
    code, output = run("build", "index", *pictures, "--dry-run")
    assert (code, Path("index").exists()) == (0, False)
    assert "pictures: up to 3 images, vectors of 16 numbers by image tower" in output
    assert "kind exact, about 192 B; nothing was done" in output
    code, output = run("build", "index", *pictures)
    assert code == 0
    assert "index: 3 images added, 0 rows of images it has already, 0 left out; 3 images in all, kind exact" in output
    assert run("build", "index", *pictures)[0] == 1
    colour_image(Path("pictures/3.png"), (0, 255, 0), (16, 16))
    Path("pictures/4.png").write_bytes(b"nothing")
    code, output = run("append", "index", *pictures, "--json")
    found = json.loads(output[output.index("{") :])
    assert (found["added"], found["repeated"], len(found["unusable"]), found["index"]["encoder"]) == (1, 3, 1, "mine")
    code, output = run("check", "index", "--all")
    assert code == 0
    assert "4 images in 2 segments, kind exact" in output
    assert "4 pictures checked, 0 with only a vector no problems" in output
    Path("pictures/3.png").unlink()
    code, output = run("check", "index", "--all")
    assert code == 1
    assert "problems: 1" in output
    assert "put it back" in output


def test_another_text_tower_is_accepted_and_another_image_tower_is_not(project: Path) -> None:
    Path("queries.txt").write_text("a dog\na cat\n")
    common = ("--from", "vectors", "--queries", "queries.txt", "--kind", "ivf_pq")
    code, output = run("build", "index", *common)
    assert code == 1
    assert "--encoder is missing: the files in vectors do not name the encoder that computed them" in output
    code, output = run("build", "index", *common, "--encoder", "mine")
    assert code == 0
    assert "text queries against exact search" in output
    code, output = run("check", "index", "--encoder", "better")
    assert code == 0
    kept = [(one.encoder, one.queries) for one in read_facts(Path("index")).recalls]
    assert kept == [("mine", 2), ("better", 1000)]
    code, output = run("check", "index", "--encoder", "stranger")
    assert code == 1
    assert "encoder 'stranger' has image tower" in output
    assert run("append", "index", "--from", "vectors", "--encoder", "stranger")[0] == 1
    code, output = run("append", "index", "--from", "vectors", "--encoder", "better")
    assert code == 0
    assert "0 images added, 1,000 rows of images it has already" in output


def test_mistakes_are_one_line(project: Path) -> None:
    np.save("wide.npy", drawn(3, dim=17))
    for arguments, refusal in (
        (("build", "index", "--from", "nowhere"), "--from nowhere is not a project's data folder"),
        (("build", "index"), "--from data is not a project's data folder"),
        (("build", "index", "--kind", "hnsw"), "--kind 'hnsw' is unknown"),
        (("build", "vectors", "--replace"), "vectors holds files that do not belong to an index"),
        (("build", "index", "--from", "wide.npy", "--encoder", "mine"), "has vectors of 17 numbers, those of"),
        (("append", "index"), "index.json is missing: make one with `cliptune index build`"),
        (("check", "index", "--encoder", "none"), "--encoder 'none' is unknown: give"),
    ):
        code, shown = run(*arguments)
        assert code == 1
        assert shown.startswith("error: ")
        assert refusal in shown
    code, shown = run("check", "index")
    assert code == 1
    assert "index.json is missing" in shown
