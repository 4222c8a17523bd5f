"""Patterns, folders and lists name shards; others are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.core.pictures.shard_files import ShardFiles, find_shards
from components.core.system.errors import InputError
from tests.support.shard_making import make_shards


def test_a_pattern_a_folder_and_a_list_name_shards_whose_sizes_are_summed(tmp_path: Path) -> None:
    pattern, folder = make_shards(tmp_path / "a", 3, 5), tmp_path / "a"
    expected = [str(folder / f"{number:03d}.tar") for number in range(3)]
    for given in (pattern, str(folder), expected, [expected[0], f"{folder}/{{001..002}}.tar"]):
        assert find_shards(given, ShardFiles()).urls == expected
    make_shards(tmp_path / "b", 1, 7)
    found = find_shards([f"{tmp_path}/a/{{000..001}}.tar", f"{tmp_path}/b"], ShardFiles())
    assert found.samples() == 5 + 5 + 7
    (tmp_path / "a" / "sizes.json").write_text(json.dumps({"000.tar": 5, "002.tar": 5}))
    with pytest.raises(InputError, match=r"001\.tar has .* set samples_per_epoch"):
        find_shards(f"{tmp_path}/a", ShardFiles()).samples()
    for content in ("[1]", "{", '{"000.tar": "many"}', '{"000.tar": -1}', '{"000.tar": null}'):
        (tmp_path / "a" / "sizes.json").write_text(content)
        with pytest.raises(InputError, match=r"sizes\.json is not a JSON object"):
            find_shards(f"{tmp_path}/a", ShardFiles())


def test_patterns_that_cannot_be_read_and_repeated_shards_are_refused(tmp_path: Path) -> None:
    refusals: tuple[tuple[str | list[str], str], ...] = (
        ("pipe:touch /tmp/owned", "commands are not run"),
        (["pipe:cat {0..3}.tar"], "commands are not run"),
        ("https://host/{0..3}.tar", "'https:' is not read"),
        ("file:///data/0.tar", "'file:' is not read"),
        ("{000..003.tar", "cannot be expanded"),
        ("{0..99999999999}.tar", "more than 1000000 shards"),
        ("{0..9999}{0..9999}.tar", "more than 1000000 shards"),
        ([], "no shards are named"),
        ("nowhere", "no such folder, or no .tar in it"),
        ("nowhere/{0..1}.tar", "nowhere/0.tar is missing"),
        ([make_shards(tmp_path, 2, 1), str(tmp_path / "001.tar")], r"001\.tar is named twice"),
    )
    for given, message in refusals:
        with pytest.raises(InputError, match=message):
            find_shards(given, ShardFiles())
