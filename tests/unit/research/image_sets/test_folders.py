"""Facts of all image sets; sets that lie in a folder per class, or in CLIP_benchmark's shards."""

from __future__ import annotations

import io
import json
import tarfile
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from components.core.system.errors import InputError
from research.image_sets.image_set import (
    ImageSet,
    ImageSetFacts,
    default_templates,
    image_sets,
    imagenet_folders,
    imagenet_names,
    wnids,
)
from research.image_sets.reading import LAYOUTS, read_image_set
from tests.support.image_shards import COLOURS, encoded, write_shards
from tests.support.toy_context import colour_image, toy_context


def read(folder: Path, facts: ImageSetFacts) -> ImageSet:
    return read_image_set(toy_context(folder, {}, allow_partial=True), facts)


def refused(folder: Path, message: str, facts: ImageSetFacts, split: str = "test", allow_partial: bool = True) -> None:
    with pytest.raises(InputError, match=message):
        read_image_set(toy_context(folder, {}, allow_partial=allow_partial), facts, split)


def write(folder: Path, names: list[str]) -> None:
    for name in names:
        colour_image(folder / name / "a.JPEG", (255, 0, 0))


def facts_of(name: str, classes: int) -> ImageSetFacts:
    return image_sets()[name].model_copy(update={"classes": classes, "class_folders": None})


def test_classes_are_named_after_sorted_folders_or_by_a_file_for_codes(tmp_path: Path) -> None:
    write(tmp_path / "test", ["sea_lion", "ant", ".git", "__MACOSX"])
    colour_image(tmp_path / "test" / "ant" / "b.png", (0, 0, 0))
    (tmp_path / "test" / "ant" / "notes.txt").write_text("no image")
    (tmp_path / "test" / "ant" / "._b.png").write_bytes(b"a copy of a computer")
    found = read(tmp_path, facts_of("rendered_sst2", 2))
    assert found.labels.tolist() == [0, 0, 1]
    assert found.class_names == ["ant", "sea lion"]
    write(tmp_path / "country211" / "test", ["AD", "AE"])
    refused(tmp_path, r"classnames.txt is missing: put there the 2 class names", facts_of("country211", 2))
    (tmp_path / "classnames.txt").write_text("Andorra\nUnited Arab Emirates\n")
    assert read(tmp_path, facts_of("country211", 2)).class_names == ["Andorra", "United Arab Emirates"]


def test_imagenet_has_its_wnids_and_clips_names(tmp_path: Path) -> None:
    known, facts = list(wnids()), image_sets()["imagenet_1k"]
    write(tmp_path / "val", known)
    found = read(tmp_path, facts)
    assert found.labels.tolist() == list(range(1000))
    assert list(found.class_names or ())[:2] == ["tench", "goldfish"]
    assert len(found.templates or ()) == 80
    assert (found.templates or ())[0] == "a bad photo of a {c}."
    (tmp_path / "val" / known[5]).rename(tmp_path / "val" / "n99999999")
    refused(tmp_path, rf"folder '{known[5]}' is missing \(2 such\)", facts)
    refused(tmp_path, r"has 1000 class folders, but ImageNet.* has 2 classes", facts_of("imagenet_1k", 2))
    colour_image(tmp_path / "flat" / "val" / "ILSVRC2012_val_00000001.JPEG", (0, 0, 0))
    refused(tmp_path / "flat", r"val holds no class folders: sort its images into 1000 folders", facts)


def test_imagenet_r_has_the_names_of_its_own_classes_and_v2_sorts_its_folders_as_numbers(tmp_path: Path) -> None:
    write(tmp_path / "imagenet-r", list(imagenet_folders("imagenet_r")))
    names = list(read(tmp_path, image_sets()["imagenet_r"]).class_names or ())
    assert (len(names), names[:3]) == (200, ["goldfish", "great white shark", "hammerhead shark"])
    write(tmp_path / "imagenetv2-matched-frequency-format-val", [str(number) for number in range(1000)])
    found = read(tmp_path, image_sets()["imagenet_v2"])
    folders = [int(picture.stamp.split("/a.JPEG")[0].rsplit("/", 1)[1]) for picture in found.pictures]
    assert folders == found.labels.tolist() == list(range(1000))


def test_eurosat_has_clips_names_for_its_folders(tmp_path: Path) -> None:
    facts = image_sets()["eurosat"]
    write(tmp_path / "2750", list(facts.class_folders or ()))
    found = read(tmp_path, facts)
    assert (found.class_names or ())[2] == "brushland or shrubland"
    refused(tmp_path, r"has no train images of EuroSAT", facts, "train")


FACTS = image_sets()["imagenet_1k"].model_copy(update={"classes": 3, "test": (4,), "class_names": None})
RED, GREEN, BLUE = COLOURS.values()
SAMPLES = [(RED, 0), (GREEN, 1), (BLUE, 2), (RED, 0)]


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    write_shards(tmp_path, SAMPLES)
    return tmp_path


def shards_refused(folder: Path, message: str) -> None:
    refused(folder, message, FACTS, allow_partial=False)


def add_member(path: Path, name: str, content: bytes = b"x", kind: bytes = tarfile.REGTYPE) -> None:
    with tarfile.open(path, "a") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.size, member.linkname = kind, len(content), "/etc/passwd"
        archive.addfile(member, io.BytesIO(content))


def test_pictures_classes_and_templates_of_shards_are_in_order_and_checked(shards: Path) -> None:
    found = read(shards, FACTS)
    with ExitStack() as stack:
        images = [stack.enter_context(picture.open()).convert("RGB") for picture in found.pictures]
    assert [image.getpixel((0, 0)) for image in images] == [colour for colour, _ in SAMPLES]
    assert found.labels.tolist() == [0, 1, 2, 0]
    assert found.class_names == ["red", "green", "blue"]
    assert found.templates == ["a photo of a {c}.", "the {c}"]
    assert len({picture.stamp for picture in found.pictures}) == 4
    (shards / "zeroshot_classification_templates.txt").write_text("a photo of a {c}.\na photo of a {}.\n")
    shards_refused(shards, r"line 1 has no \{c\} for the class")
    (shards / "classnames.txt").write_text("red\ngreen\n")
    shards_refused(shards, r"2 class names, but ImageNet.* has 3 classes")
    (shards / "classnames.txt").unlink()
    shards_refused(shards, r"classnames.txt is missing: put there the 3 class names")


def test_a_missing_shard_and_other_counts_are_refused(tmp_path: Path) -> None:
    shards_refused(tmp_path, r"has no test images of ImageNet.*put there shards.* or a folder per class")
    write_shards(tmp_path, SAMPLES[:3])
    shards_refused(tmp_path, r"test: test images: 3 found, 4 published")
    (tmp_path / "test" / "1.tar").unlink()
    shards_refused(tmp_path, r"1.tar is missing, nshards.txt lists 2 shards")
    (tmp_path / "test" / "nshards.txt").write_text("two")
    shards_refused(tmp_path, r"nshards.txt: 'two' is not a number")


@pytest.mark.parametrize("label", [3, -1, "one", ""])
def test_an_unknown_class_is_named(tmp_path: Path, label: Any) -> None:
    write_shards(tmp_path, [*SAMPLES[:3], (RED, label)])
    shards_refused(tmp_path, r"1 samples cannot be used, first 1.tar/s0000003 \(class is not 0 to 2\)")
    context = toy_context(tmp_path, {}, allow_partial=True)
    assert read_image_set(context, FACTS).labels.tolist() == [0, 1, 2]
    assert "1 samples cannot be used" in context.notes[0]


def test_hostile_members_are_never_followed_and_a_shard_that_ends_too_early_is_named(shards: Path) -> None:
    shard = shards / "test" / "1.tar"
    add_member(shard, "s0000009.webp", b"", tarfile.SYMTYPE)
    add_member(shard, "s0000009.cls", b"0")
    add_member(shard, "../out.webp", encoded(RED))
    add_member(shard, "../out.cls", b"0")
    shards_refused(shards, r"2 samples cannot be used, first 1.tar/s0000009 \(0 images\)")
    assert read(shards, FACTS).labels.tolist() == [0, 1, 2, 0]
    shard = shards / "test" / "0.tar"
    shard.write_bytes(shard.read_bytes()[:700])
    shards_refused(shards, r"first 0.tar/.*\(broken shard\)")
    assert read(shards, FACTS).labels.tolist() == [2, 0]


THEIRS = {
    "imagenet_1k": "imagenet1k", "cifar10": "cifar10", "cifar100": "cifar100", "eurosat": "eurosat",
    "flowers102": "flowers", "sun397": "sun397", "food101": "food101", "pets": "pets", "cars": "cars",
    "fgvc_aircraft": "fgvc_aircraft", "dtd": "dtd", "stl10": "stl10", "svhn": "svhn", "mnist": "mnist",
    "gtsrb": "gtsrb", "country211": "country211", "rendered_sst2": "renderedsst2", "fer2013": "fer2013",
    "voc2007": "voc2007", "caltech101": "caltech101", "resisc45": "resisc45", "patch_camelyon": "pcam",
    "diabetic_retinopathy": "diabetic_retinopathy", "clevr_count": "clevr_count_all",
    "clevr_distance": "clevr_closest_object_distance", "dmlab": "dmlab",
    "kitti_distance": "kitti_closest_vehicle_distance", "smallnorb_azimuth": "smallnorb_label_azimuth",
    "smallnorb_elevation": "smallnorb_label_elevation", "dsprites_orientation": "dsprites_label_orientation",
    "dsprites_position": "dsprites_label_x_position",
}  # fmt: skip


def theirs(file: str) -> Any:
    return json.loads(files("clip_benchmark").joinpath(f"datasets/{file}").read_text("utf-8"))


def test_templates_and_class_names_are_those_of_clip_benchmark() -> None:
    templates, names = theirs("en_zeroshot_classification_templates.json"), theirs("en_classnames.json")
    assert [one for one in THEIRS if list(default_templates(image_sets()[one])) != templates[THEIRS[one]]] == []
    for name in ("eurosat", "mnist", "svhn", "flowers102"):
        assert list(image_sets()[name].class_names or ()) == names[THEIRS[name]], name
    assert list(imagenet_names("imagenet")) == names["imagenet1k"]
    unnamed = [
        name
        for name, facts in image_sets().items()
        if names.get(THEIRS.get(name, "")) is not None and facts.class_names is None and facts.layout != "pets"
    ]
    assert unnamed == [], "class names that CLIP changed are missing and no file of them is required"


def test_facts_are_consistent() -> None:
    def consistent(facts: ImageSetFacts) -> bool:
        lists = [names for names in (facts.class_names, facts.class_folders) if isinstance(names, tuple)]
        layout = facts.layout is None or facts.layout in LAYOUTS
        lengths = all(len(names) == facts.classes for names in lists)
        return bool(default_templates(facts) and facts.counts("test") and layout and lengths)

    assert [name for name, facts in image_sets().items() if not consistent(facts)] == []
