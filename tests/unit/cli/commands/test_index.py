"""`cliptune index` and `cliptune explore` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from components.cli.commands.explore import _explored
from components.encoders.adapter.encoder import Encoder
from components.registry.encoder_lookup import find_encoder
from components.serving.explorer.own_index import own_index
from components.serving.index.sources import reading
from tests.support.exploring import under_test
from tests.support.index_making import drawn, write_vectors
from tests.support.toy_context import colour_image
from tests.support.typed import cliptune

STORE = "sqlite:///store.db"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, tiny_encoder: Encoder, raw_params: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three encoders, of which `base` and `tuned` have the same image tower; three pictures, and bare vectors."""
    monkeypatch.chdir(tmp_path)
    raw_params["synthesize"]["store"] = STORE
    Path("params.yaml").write_text(yaml.safe_dump(raw_params))
    tiny_encoder.save(Path("models/base"))
    tuned = under_test(tiny_encoder, "tuned", seed=5).encoder
    assert isinstance(tuned, Encoder)
    tuned.save(Path("models/tuned"))
    next(tiny_encoder.model.visual.parameters()).data += 0.1
    tiny_encoder.sidecar = tiny_encoder.sidecar.model_copy(update={"name": "stranger"})
    tiny_encoder.save(Path("models/stranger"))
    for number in range(3):
        _picture(number, (80 * number, 0, 0))
    write_vectors(Path("vectors"), 0, drawn(1000, dim=16))


def _picture(number: int, colour: tuple[int, int, int]) -> None:
    colour_image(Path(f"pictures/{number}.png"), colour, (16, 16))


def run(*arguments: str, code: int = 0) -> str:
    return " ".join(cliptune(*arguments, code=code).split())


def test_built_appended_searched_and_removed() -> None:
    pictures = ("--from", "pictures", "--encoder", "base")
    output = run("index", "build", "index", *pictures, "--dry-run")
    assert not Path("index").exists()
    assert "pictures: up to 3 images, vectors of 16 numbers by image tower" in output
    assert "kind exact, about 192 B; nothing was done" in output
    output = run("index", "build", "index", *pictures)
    assert "index: 3 images added, 0 rows of images it has already, 0 left out; 3 images in all, kind exact" in output
    run("index", "build", "index", *pictures, code=1)
    _picture(3, (0, 255, 0))
    Path("pictures/4.png").write_bytes(b"nothing")
    output = run("index", "append", "index", *pictures, "--json")
    found = json.loads(output[output.index("{") :])
    assert (found["added"], found["repeated"], len(found["unusable"]), found["index"]["encoder"]) == (1, 3, 1, "base")
    assert found["index"]["rows"] == 4
    output = run(
        "index", "search", "index", "a dog", "a cat", "--encoder", "tuned", "-k", "2", "--where", "name <> '0.png'"
    )
    assert output.count(".png") == 4
    assert "0.png" not in output
    found = json.loads(run("index", "search", "index", "a dog", "--encoder", "base", "-k", "9", "--json"))
    assert sorted(hit["name"] for hit in found["a dog"]) == ["0.png", "1.png", "2.png", "3.png"]
    where = ("remove", "index", "--where", "name IN ('1.png', '3.png')")
    assert "1.png 3.png index: 2 of 4 images fulfil the condition; nothing was done" in run(
        "index", *where, "--dry-run"
    )
    assert "nothing was removed: answer y, or add --yes" in run("index", *where, code=1)
    assert "index: 2 images removed" in run("index", *where, "--yes")
    assert Path("pictures/1.png").is_file()
    assert "index: 0 of 2 images fulfil the condition" in run("index", *where, "--yes")


def test_another_text_tower_is_accepted_and_another_image_tower_is_not() -> None:
    common = ("--from", "vectors", "--kind", "lance")
    refusal = "--encoder is missing: the files in vectors do not name the encoder that computed them"
    assert refusal in run("index", "build", "index", *common, code=1)
    assert "1,000 images in all, kind lance" in run("index", "build", "index", *common, "--encoder", "base")
    assert "caption 0" in run("index", "search", "index", "a dog", "--encoder", "tuned")
    assert "encoder 'stranger' has image tower" in run(
        "index", "search", "index", "a dog", "--encoder", "stranger", code=1
    )
    append = ("append", "index", "--from", "vectors", "--encoder")
    run("index", *append, "stranger", code=1)
    assert "0 images added, 1,000 rows of images it has already" in run("index", *append, "tuned")


def test_the_explorer_has_both_encoders_and_the_pictures() -> None:
    explored = _explored(["models/base", "models/tuned"], "pictures", "cpu")
    assert (explored.names, len(explored.explorer.index)) == (["base", "tuned"], 3)


@pytest.mark.parametrize(
    ("change", "embedded", "pictures", "captions"),
    [
        (None, 0, 3, [None] * 3),
        (lambda: _picture(3, (0, 200, 0)), 1, 4, [None] * 4),
        (lambda: Path("pictures/2.png").unlink(), 0, 2, [None] * 2),
        (lambda: _picture(2, (0, 9, 9)), 1, 3, [None] * 3),
        (lambda: Path("pictures/captions.tsv").write_text("image\tcaption\n2.png\tnew\n"), 0, 3, [None, None, "new"]),
        (lambda: next(Path("state/explore").rglob("rows.parquet")).write_bytes(b""), 3, 3, [None] * 3),
    ],
)
def test_the_kept_index_follows_the_folder(
    monkeypatch: pytest.MonkeyPatch, change: Any, embedded: int, pictures: int, captions: list[Any]
) -> None:
    own_index("pictures", find_encoder("models/base"), Path("state/explore"), reading({}))
    if change is not None:
        change()
    seen: list[int] = []
    real = Encoder.embed_pixels
    monkeypatch.setattr(Encoder, "embed_pixels", lambda self, given: (seen.append(len(given)), real(self, given))[1])
    index = own_index("pictures", find_encoder("models/base"), Path("state/explore"), reading({}))
    assert (sum(seen), len(index)) == (embedded, pictures)
    assert index.rows(range(pictures))["caption"].to_pylist() == captions
    for row in range(pictures):
        index.picture(row)
    assert len(list(Path("state/explore").rglob("index.json"))) == 1
    monkeypatch.setattr(Encoder, "embed_pixels", real)
    fresh = own_index("pictures", find_encoder("models/base"), Path("fresh"), reading({}))
    assert np.allclose(fresh.vector(range(pictures)), index.vector(range(pictures)), atol=1e-6)


def test_mistakes_are_one_line_and_no_file_is_overwritten() -> None:
    Path("captions.tsv").write_text("mine")
    explore = "explore --encoder models/base --encoder models/tuned --images pictures --encoder models"
    for arguments, refusal in (
        ("index build index", "--from data is not a project's data folder"),
        ("index build index --kind hnsw", "--kind 'hnsw' is unknown"),
        ("index append index", "index.json is missing: make one with `cliptune index build`"),
        ("index remove index --where true", "index.json is missing: make one with `cliptune index build`"),
        ("index search index dog --encoder none", "index.json is missing: make one with"),
        (f"{explore}/base", "names one encoder twice"),
        (f"{explore}/stranger", "image tower"),
        ("table --output captions.tsv", "captions.tsv exists: name a new file"),
        (f"answers export --store {STORE} captions.tsv", "captions.tsv exists: name a new file"),
    ):
        output = run(*arguments.split(), code=1)
        assert "error: " in output
        assert refusal in output
    assert Path("captions.tsv").read_text() == "mine"
