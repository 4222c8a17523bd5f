"""Image sets that lie in a folder per class, or in CLIP_benchmark's shards."""

from __future__ import annotations

import io
import tarfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from components.core.system.errors import InputError
from components.test_sets.image_sets.image_set import (
    ImageSet,
    ImageSetFacts,
    default_templates,
    image_sets,
    imagenet_folders,
    wnids,
)
from components.test_sets.image_sets.reading import read_image_set
from tests.support.image_shards import COLOURS, encoded, write_shards
from tests.support.toy_context import colour_image, toy_context


def read(folder: Path, facts: ImageSetFacts) -> ImageSet:
    return read_image_set(toy_context(folder, {}, allow_partial=True), facts)


def write(folder: Path, names: list[str]) -> None:
    for name in names:
        colour_image(folder / name / "a.JPEG", (255, 0, 0))


def facts_of(name: str, classes: int) -> ImageSetFacts:
    return image_sets()[name].model_copy(update={"classes": classes, "class_folders": None})


def test_classes_follow_the_folders_names_and_carry_them(tmp_path: Path) -> None:
    write(tmp_path / "test", ["sea_lion", "ant", ".git", "__MACOSX"])
    colour_image(tmp_path / "test" / "ant" / "b.png", (0, 0, 0))
    (tmp_path / "test" / "ant" / "notes.txt").write_text("no image")
    found = read(tmp_path, facts_of("rendered_sst2", 2))
    assert found.labels.tolist() == [0, 0, 1]
    assert found.class_names == ["ant", "sea lion"]


def test_codes_for_folders_are_no_class_names(tmp_path: Path) -> None:
    write(tmp_path / "country211" / "test", ["AD", "AE"])
    with pytest.raises(InputError, match=r"classnames.txt is missing: put there the 2 class names"):
        read(tmp_path, facts_of("country211", 2))
    (tmp_path / "classnames.txt").write_text("Andorra\nUnited Arab Emirates\n")
    assert read(tmp_path, facts_of("country211", 2)).class_names == ["Andorra", "United Arab Emirates"]


def test_one_folder_too_many_or_a_flat_folder_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "val", ["b", "a", "extra"])
    with pytest.raises(InputError, match=r"has 3 class folders, but ImageNet.* has 2 classes"):
        read(tmp_path, facts_of("imagenet_1k", 2))
    flat = tmp_path / "flat"
    colour_image(flat / "val" / "ILSVRC2012_val_00000001.JPEG", (0, 0, 0))
    with pytest.raises(InputError, match=r"val holds no class folders: sort its images into 1000 folders"):
        read(flat, image_sets()["imagenet_1k"])


def test_imagenet_wants_its_wnids_and_has_clips_names(tmp_path: Path) -> None:
    known = list(wnids())
    write(tmp_path / "val", known)
    found = read(tmp_path, image_sets()["imagenet_1k"])
    assert found.labels.tolist() == list(range(1000))
    assert found.class_names is not None
    assert (found.class_names[0], found.class_names[1]) == ("tench", "goldfish")
    assert len(found.templates or ()) == 80
    assert (found.templates or ())[0] == "a bad photo of a {c}."
    (tmp_path / "val" / known[5]).rename(tmp_path / "val" / "n99999999")
    with pytest.raises(InputError, match=rf"folder '{known[5]}' is missing \(2 such\)"):
        read(tmp_path, image_sets()["imagenet_1k"])


def test_imagenet_r_has_the_names_of_its_own_classes(tmp_path: Path) -> None:
    write(tmp_path / "imagenet-r", list(imagenet_folders("imagenet_r")))
    found = read(tmp_path, image_sets()["imagenet_r"])
    assert len(found.class_names or ()) == 200
    assert list(found.class_names or ())[:3] == ["goldfish", "great white shark", "hammerhead shark"]


def test_imagenet_v2_counts_its_folders_as_numbers(tmp_path: Path) -> None:
    write(tmp_path / "imagenetv2-matched-frequency-format-val", [str(number) for number in range(1000)])
    found = read(tmp_path, image_sets()["imagenet_v2"])
    folders = [int(picture.stamp.split("/a.JPEG")[0].rsplit("/", 1)[1]) for picture in found.pictures]
    assert folders == found.labels.tolist() == list(range(1000))


def test_eurosat_has_clips_names_for_its_folders(tmp_path: Path) -> None:
    facts = image_sets()["eurosat"]
    write(tmp_path / "2750", list(facts.class_folders or ()))
    found = read(tmp_path, facts)
    assert (found.class_names or ())[2] == "brushland or shrubland"
    assert default_templates(facts)[0] == "a centered satellite photo of {c}."
    with pytest.raises(InputError, match=r"has no train images of EuroSAT"):
        read_image_set(toy_context(tmp_path, {}), facts, "train")


FACTS = image_sets()["imagenet_1k"].model_copy(update={"classes": 3, "test": (4,), "class_names": None})


RED, GREEN, BLUE = COLOURS.values()
SAMPLES = [(RED, 0), (GREEN, 1), (BLUE, 2), (RED, 0)]


def read_shards(folder: Path, **options: Any) -> ImageSet:
    return read_image_set(toy_context(folder, {}, **options), FACTS)


def add_member(path: Path, name: str, content: bytes = b"x", kind: bytes = tarfile.REGTYPE) -> None:
    with tarfile.open(path, "a") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.size, member.linkname = kind, len(content), "/etc/passwd"
        archive.addfile(member, io.BytesIO(content))


def test_pictures_classes_and_templates_in_order(tmp_path: Path) -> None:
    write_shards(tmp_path, SAMPLES)
    found = read_shards(tmp_path)
    with ExitStack() as stack:
        images = [stack.enter_context(picture.open()).convert("RGB") for picture in found.pictures]
    assert [image.getpixel((0, 0)) for image in images] == [colour for colour, _ in SAMPLES]
    assert found.labels.tolist() == [0, 1, 2, 0]
    assert found.class_names == ["red", "green", "blue"]
    assert found.templates == ["a photo of a {c}.", "the {c}"]
    assert len({picture.stamp for picture in found.pictures}) == 4


def test_a_missing_shard_and_other_counts_are_refused(tmp_path: Path) -> None:
    write_shards(tmp_path, SAMPLES[:3])
    with pytest.raises(InputError, match=r"test: test images: 3 found, 4 published"):
        read_shards(tmp_path)
    (tmp_path / "test" / "1.tar").unlink()
    with pytest.raises(InputError, match=r"1.tar is missing, nshards.txt lists 2 shards"):
        read_shards(tmp_path)
    (tmp_path / "test" / "nshards.txt").write_text("two")
    with pytest.raises(InputError, match=r"nshards.txt: 'two' is not a number"):
        read_shards(tmp_path)


@pytest.mark.parametrize("label", [3, -1, "one", ""])
def test_a_class_that_is_none_is_named(tmp_path: Path, label: Any) -> None:
    write_shards(tmp_path, [*SAMPLES[:3], (RED, label)])
    with pytest.raises(InputError, match=r"1 samples cannot be used, first 1.tar/s0000003 \(class is not 0 to 2\)"):
        read_shards(tmp_path)
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
        read_shards(tmp_path)
    assert read_shards(tmp_path, allow_partial=True).labels.tolist() == [0, 1, 2, 0]


def test_a_shard_that_ends_too_early_is_named(tmp_path: Path) -> None:
    write_shards(tmp_path, SAMPLES)
    shard = tmp_path / "test" / "0.tar"
    shard.write_bytes(shard.read_bytes()[:700])
    with pytest.raises(InputError, match=r"first 0.tar/.*\(broken shard\)"):
        read_shards(tmp_path)
    assert read_shards(tmp_path, allow_partial=True).labels.tolist() == [2, 0]


def test_class_names_and_templates_are_checked(tmp_path: Path) -> None:
    write_shards(tmp_path, SAMPLES)
    (tmp_path / "zeroshot_classification_templates.txt").write_text("a photo of a {c}.\na photo of a {}.\n")
    with pytest.raises(InputError, match=r"line 1 has no \{c\} for the class"):
        read_shards(tmp_path)
    (tmp_path / "classnames.txt").write_text("red\ngreen\n")
    with pytest.raises(InputError, match=r"2 class names, but ImageNet.* has 3 classes"):
        read_shards(tmp_path)
    (tmp_path / "classnames.txt").unlink()
    with pytest.raises(InputError, match=r"classnames.txt is missing: put there the 3 class names"):
        read_shards(tmp_path)


def test_a_folder_without_any_layout_lists_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no test images of ImageNet.*put there shards.* or a folder per class"):
        read_shards(tmp_path)
