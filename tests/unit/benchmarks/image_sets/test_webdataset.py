"""Shards of CLIP_benchmark, written as its webdataset_builder writes them."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from components.benchmarks.image_sets.facts import image_sets
from components.benchmarks.image_sets.image_set import ImageSet
from components.benchmarks.image_sets.reading import read_image_set
from components.core.errors import InputError
from tests.support.image_shards import COLOURS, encoded, write_shards
from tests.support.toy_context import toy_context

FACTS = image_sets()["imagenet_1k"].model_copy(update={"classes": 3, "test": (4,), "class_names": None})


RED, GREEN, BLUE = COLOURS.values()
SAMPLES = [(RED, 0), (GREEN, 1), (BLUE, 2), (RED, 0)]


def read(folder: Path, **options: Any) -> ImageSet:
    return read_image_set(toy_context(folder, {}, **options), FACTS)


def add_member(path: Path, name: str, content: bytes = b"x", kind: bytes = tarfile.REGTYPE) -> None:
    with tarfile.open(path, "a") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.size, member.linkname = kind, len(content), "/etc/passwd"
        archive.addfile(member, io.BytesIO(content))


def test_pictures_classes_and_templates_in_order(tmp_path: Path) -> None:
    write_shards(tmp_path, SAMPLES)
    found = read(tmp_path)
    assert [picture.open().convert("RGB").getpixel((0, 0)) for picture in found.pictures] == [
        colour for colour, _ in SAMPLES
    ]
    assert found.labels.tolist() == [0, 1, 2, 0]
    assert found.class_names == ["red", "green", "blue"]
    assert found.templates == ["a photo of a {c}.", "the {c}"]
    assert len({picture.stamp for picture in found.pictures}) == 4


def test_a_missing_shard_and_other_counts_are_refused(tmp_path: Path) -> None:
    write_shards(tmp_path, SAMPLES[:3])
    with pytest.raises(InputError, match=r"test: test images: 3 found, 4 published"):
        read(tmp_path)
    (tmp_path / "test" / "1.tar").unlink()
    with pytest.raises(InputError, match=r"1.tar is missing, nshards.txt says there are 2"):
        read(tmp_path)
    (tmp_path / "test" / "nshards.txt").write_text("two")
    with pytest.raises(InputError, match=r"nshards.txt: 'two' is no number"):
        read(tmp_path)


@pytest.mark.parametrize("label", [3, -1, "one", ""])
def test_a_class_that_is_none_is_named(tmp_path: Path, label: Any) -> None:
    write_shards(tmp_path, [*SAMPLES[:3], (RED, label)])
    with pytest.raises(InputError, match=r"1 samples cannot be used, first 1.tar/s0000003 \(class is not 0 to 2\)"):
        read(tmp_path)
    context = toy_context(tmp_path, {}, allow_partial=True)
    assert read_image_set(context, FACTS).labels.tolist() == [0, 1, 2]
    assert "1 samples cannot be used" in context.notes[0]


def test_hostile_members_are_never_followed(tmp_path: Path) -> None:
    write_shards(tmp_path, SAMPLES)
    shard = tmp_path / "test" / "1.tar"
    add_member(shard, "s0000009.webp", b"", tarfile.SYMTYPE)
    add_member(shard, "s0000009.cls", b"0")
    add_member(shard, "../out.webp", encoded(RED))
    add_member(shard, "../out.cls", b"0")
    with pytest.raises(InputError, match=r"2 samples cannot be used, first 1.tar/s0000009 \(0 images\)"):
        read(tmp_path)
    assert read(tmp_path, allow_partial=True).labels.tolist() == [0, 1, 2, 0]


def test_a_shard_that_ends_too_early_is_named(tmp_path: Path) -> None:
    write_shards(tmp_path, SAMPLES)
    shard = tmp_path / "test" / "0.tar"
    shard.write_bytes(shard.read_bytes()[:700])
    with pytest.raises(InputError, match=r"first 0.tar/.*\(broken shard\)"):
        read(tmp_path)
    assert read(tmp_path, allow_partial=True).labels.tolist() == [2, 0]


def test_class_names_and_templates_are_checked(tmp_path: Path) -> None:
    write_shards(tmp_path, SAMPLES)
    (tmp_path / "zeroshot_classification_templates.txt").write_text("a photo of a {c}.\na photo of a {}.\n")
    with pytest.raises(InputError, match=r"line 1 has no \{c\} for the class"):
        read(tmp_path)
    (tmp_path / "classnames.txt").write_text("red\ngreen\n")
    with pytest.raises(InputError, match=r"2 class names, but ImageNet.* has 3 classes"):
        read(tmp_path)
    (tmp_path / "classnames.txt").unlink()
    with pytest.raises(InputError, match=r"classnames.txt is missing: put there the 3 class names"):
        read(tmp_path)


def test_a_folder_without_any_layout_lists_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no test images of ImageNet.*put there shards.* or a folder per class"):
        read(tmp_path)
