"""`index.json` is read as it was written or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from components.core.errors import InputError
from components.index.facts import FACTS, Facts, Segment, files_of, read_facts, write_facts

FACTS_OF_ONE = Facts(
    kind="exact", dim=4, image_tower_sha256="a" * 64, encoder="base",
    segments=(Segment(rows=3, vectors_sha256="0" * 64, rows_sha256="1" * 64),),
)  # fmt: skip


def test_what_is_written_is_read(tmp_path: Path) -> None:
    written = write_facts(tmp_path, FACTS_OF_ONE)
    assert read_facts(tmp_path) == written
    assert written.rows == 3
    names = [str(path.relative_to(tmp_path)) for path in files_of(tmp_path, written)]
    assert names == ["vectors/000000.npy", "rows/000000.arrow"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"image_tower_sha256": "b" * 64}, "was edited or damaged"),
        ({"dim": 8}, "was edited or damaged"),
        ({"dim": 0}, "dim: Input should be greater"),
        ({"kind": "../exact"}, "kind: String should match"),
        ({"format": 2}, "format: Input should be 1"),
        ({"file": "/etc/passwd"}, "file: Extra inputs"),
        ({"segments": [{"rows": -1, "vectors_sha256": "0" * 64, "rows_sha256": "1" * 64}]}, "segments.0.rows"),
        ({"sha256": ""}, "was edited or damaged"),
    ],
)
def test_an_edited_one_is_refused(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    write_facts(tmp_path, FACTS_OF_ONE)
    path = tmp_path / FACTS
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=r"index\.json .*: build the index again") as raised:
        read_facts(tmp_path)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_none_cut_ones_and_links_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"index\.json is missing: make one with `cliptune index build`"):
        read_facts(tmp_path)
    path = tmp_path / FACTS
    path.write_text('{"kind": ')
    with pytest.raises(InputError, match="is damaged"):
        read_facts(tmp_path)
    path.unlink()
    write_facts(tmp_path / "elsewhere", FACTS_OF_ONE)
    path.symlink_to(tmp_path / "elsewhere" / FACTS)
    with pytest.raises(InputError, match="is a link"):
        read_facts(tmp_path)
