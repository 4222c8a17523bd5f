"""A commit is marked where the code that ran is not the code that it holds; the code of a stage has a hash."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from components.core.compute import provenance
from components.core.compute.provenance import git_commit
from components.core.system.errors import InputError
from components.encoders.language_models.weights import check_weight_index


def test_a_commit_is_dirty_where_code_differs_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tracked.py").touch()
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in (("init", "-q"), ("add", "tracked.py"), (*author, "commit", "-qm", "first")):
        subprocess.run(["git", *command], check=True)
    clean = git_commit()
    assert len(clean) == 40
    Path("components").mkdir()
    cases = (("dvc.lock", False), ("notes.txt", False), ("components/mine.py", True), ("tracked.py", True))
    for path, dirty in cases:
        Path(path).write_text("changed")
        assert git_commit() == clean + "-dirty" * dirty, path
        Path(path).unlink()


def test_the_hash_of_code_follows_statements_of_the_files_of_dvc_yaml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "_ROOT", tmp_path)
    (tmp_path / "dvc.yaml").write_text(
        "stages: {base: {deps: [components/one, data/pairs]}, train: {foreach: x, do: {deps: [components/a.py]}}}"
    )
    (tmp_path / "components" / "one" / "__pycache__").mkdir(parents=True)

    def hashes(file: str) -> tuple[str, str]:
        (tmp_path / "components" / file).write_text(file)
        return provenance.code_hash.__wrapped__("base"), provenance.code_hash.__wrapped__("train")

    base, train = hashes("a.py")
    assert hashes("one/__pycache__/loop.pyc") == hashes("b.py") == (base, train)
    edited_base, edited_train = hashes("one/loop.py")
    assert (edited_base == base, edited_train == train) == (False, True)

    def hashed(code: str, name: str = "loop.py") -> str:
        (tmp_path / name).write_text(code)
        return provenance.hash_of_code(tmp_path)

    plain = hashed("RATE = 1\n\ndef step():\n    return RATE\n")
    worded = (
        '"""A loop."""\nRATE = 1  # of learning\n"""Per row."""\n\n\ndef step():\n    """One."""\n    return RATE\n'
    )
    assert hashed(worded) == plain
    assert hashed(worded.replace("RATE = 1", "RATE = 2")) != plain
    assert hashed(worded) == plain
    assert hashed("{}", "config.json") != plain


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}, None),
        ({"weight_map": {"a": "../other/model.safetensors"}}, r"outside its folder, '\.\./other/model\.safetensors'"),
        ({"weight_map": {"a": "/srv/model.safetensors"}}, "outside its folder"),
        ({"weight_map": {"a": "deeper/model.safetensors"}}, "outside its folder"),
        ({"weights": {}}, "is not an index of weights"),
        ({"weight_map": [1]}, "is not an index of weights"),
        ({"weight_map": {"a": 1}}, "is not an index of weights"),
    ],
)
def test_weights_that_an_index_names_are_beside_it(content: Any, message: str | None, tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "model.safetensors.index.json").write_text(json.dumps(content))
    if message is None:
        check_weight_index(tmp_path)
        return
    with pytest.raises(InputError, match=message):
        check_weight_index(tmp_path)
