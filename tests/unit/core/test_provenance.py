"""Hashes of what a result came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core import provenance


def test_the_hash_of_a_stages_code_follows_the_files_that_dvc_yaml_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "_ROOT", tmp_path)
    (tmp_path / "dvc.yaml").write_text(
        "stages: {base: {deps: [components/base, data/pairs]}, train: {foreach: x, do: {deps: [components/a.py]}}}"
    )
    (tmp_path / "components" / "base" / "__pycache__").mkdir(parents=True)

    def hashes(file: str) -> tuple[str, str]:
        (tmp_path / "components" / file).write_text(file)
        return provenance.code_hash("base"), provenance.code_hash("train")

    first = hashes("a.py")
    assert hashes("base/__pycache__/loop.pyc") == hashes("b.py") == first
    edited = hashes("base/loop.py")
    assert edited[0] != first[0]
    assert edited[1] == first[1]
