"""The facts of all image sets are consistent and agree with CLIP_benchmark."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from research.image_sets.image_set import ImageSetFacts, default_templates, image_sets, imagenet_names
from research.image_sets.reading import LAYOUTS

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
