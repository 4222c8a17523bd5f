"""`cliptune index` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.encoders.adapter.encoder import Encoder
from tests.support.index_making import drawn, write_vectors
from tests.support.toy_context import colour_image
from tests.support.typed import cliptune


@pytest.fixture(autouse=True)
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


def run(*arguments: str, code: int = 0) -> str:
    return " ".join(cliptune("index", *arguments, code=code).split())


def test_built_appended_searched_and_removed() -> None:
    pictures = ("--from", "pictures", "--encoder", "mine")
    output = run("build", "index", *pictures, "--dry-run")
    assert not Path("index").exists()
    assert "pictures: up to 3 images, vectors of 16 numbers by image tower" in output
    assert "kind exact, about 192 B; nothing was done" in output
    output = run("build", "index", *pictures)
    assert "index: 3 images added, 0 rows of images it has already, 0 left out; 3 images in all, kind exact" in output
    run("build", "index", *pictures, code=1)
    colour_image(Path("pictures/3.png"), (0, 255, 0), (16, 16))
    Path("pictures/4.png").write_bytes(b"nothing")
    output = run("append", "index", *pictures, "--json")
    found = json.loads(output[output.index("{") :])
    assert (found["added"], found["repeated"], len(found["unusable"]), found["index"]["encoder"]) == (1, 3, 1, "mine")
    assert found["index"]["rows"] == 4
    output = run("search", "index", "a dog", "a cat", "--encoder", "better", "-k", "2", "--where", "name <> '0.png'")
    assert output.count(".png") == 4
    assert "0.png" not in output
    found = json.loads(run("search", "index", "a dog", "--encoder", "mine", "-k", "9", "--json"))
    assert sorted(hit["name"] for hit in found["a dog"]) == ["0.png", "1.png", "2.png", "3.png"]
    where = ("remove", "index", "--where", "name IN ('1.png', '3.png')")
    assert "1.png 3.png index: 2 of 4 images fulfil the condition; nothing was done" in run(*where, "--dry-run")
    assert "nothing was removed: answer y, or add --yes" in run(*where, code=1)
    assert "index: 2 images removed" in run(*where, "--yes")
    assert Path("pictures/1.png").is_file()
    assert "index: 0 of 2 images fulfil the condition" in run(*where, "--yes")


def test_another_text_tower_is_accepted_and_another_image_tower_is_not() -> None:
    common = ("--from", "vectors", "--kind", "lance")
    refusal = "--encoder is missing: the files in vectors do not name the encoder that computed them"
    assert refusal in run("build", "index", *common, code=1)
    assert "1,000 images in all, kind lance" in run("build", "index", *common, "--encoder", "mine")
    assert "caption 0" in run("search", "index", "a dog", "--encoder", "better")
    assert "encoder 'stranger' has image tower" in run("search", "index", "a dog", "--encoder", "stranger", code=1)
    append = ("append", "index", "--from", "vectors", "--encoder")
    run(*append, "stranger", code=1)
    assert "0 images added, 1,000 rows of images it has already" in run(*append, "better")


def test_mistakes_are_one_line() -> None:
    for arguments, refusal in (
        ("build index", "--from data is not a project's data folder"),
        ("build index --kind hnsw", "--kind 'hnsw' is unknown"),
        ("append index", "index.json is missing: make one with `cliptune index build`"),
        ("remove index --where true", "index.json is missing: make one with `cliptune index build`"),
        ("search index dog --encoder none", "index.json is missing: make one with"),
    ):
        output = run(*arguments.split(), code=1)
        assert output.startswith("error: ")
        assert refusal in output
