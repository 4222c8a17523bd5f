"""The facts of all image sets hang together and agree with what CLIP_benchmark publishes."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest

from components.test_sets.image_sets.image_set import default_templates, image_sets, imagenet_names
from components.test_sets.image_sets.reading import LAYOUTS

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


@pytest.mark.parametrize("name", THEIRS)
def test_templates_are_those_of_clip_benchmark(name: str) -> None:
    assert (
        list(default_templates(image_sets()[name])) == theirs("en_zeroshot_classification_templates.json")[THEIRS[name]]
    )


def test_class_names_are_those_of_clip_benchmark() -> None:
    names = theirs("en_classnames.json")
    assert list(image_sets()["eurosat"].class_names or ()) == names["eurosat"]
    assert list(image_sets()["mnist"].class_names or ()) == names["mnist"]
    assert list(image_sets()["svhn"].class_names or ()) == names["svhn"]
    assert list(image_sets()["flowers102"].class_names or ()) == names["flowers"]
    assert list(imagenet_names("imagenet")) == names["imagenet1k"]


@pytest.mark.parametrize("name", image_sets())
def test_names_that_clip_changed_are_known_or_asked_for(name: str) -> None:
    changed = theirs("en_classnames.json").get(THEIRS.get(name, ""))
    facts = image_sets()[name]
    assert changed is None or facts.class_names is not None or facts.layout == "pets"


@pytest.mark.parametrize("name", image_sets())
def test_facts_hang_together(name: str) -> None:
    facts = image_sets()[name]
    assert default_templates(facts)
    assert facts.layout is None or facts.layout in LAYOUTS
    for listed in (facts.class_names, facts.class_folders):
        assert not isinstance(listed, tuple) or len(listed) == facts.classes
    assert facts.counts("test")
