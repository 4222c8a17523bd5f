"""What is known of each image set: its classes, published numbers of images, licence and default prompts."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import yaml
from pydantic import BaseModel, ConfigDict

IMAGENET = "imagenet"
"""Class names, templates or class folders that open_clip and timm know."""
PUBLISHED = "published"
"""Class names that only a file beside the images has."""

_FOLDER = "assets"
_IMAGENET_CLASSES = 1000


class ImageSetFacts(BaseModel):
    """Facts of one image set; `assets/image_sets.yaml` says what each field means."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str
    classes: int
    test: tuple[int, ...]
    train: tuple[int, ...] = ()
    whole: int | None = None
    templates: str
    class_names: tuple[str, ...] | str | None = None
    class_folders: tuple[str, ...] | str | None = None
    folders: tuple[str, ...] = ("test",)
    layout: str | None = None
    size: str
    licence: str
    source: str
    citation: str

    def counts(self, split: str) -> tuple[int, ...]:
        """Published numbers of images of `test`, `train` or `whole`; none where no such split is published."""
        return {"test": self.test, "train": self.train, "whole": (self.whole,) if self.whole else ()}[split]


@cache
def image_sets() -> dict[str, ImageSetFacts]:
    """All image sets by name, in the order of the file."""
    rows = yaml.safe_load(files(__package__).joinpath(f"{_FOLDER}/image_sets.yaml").read_text("utf-8"))
    return {name: ImageSetFacts(name=name, **row) for name, row in rows.items()}


@cache
def template_lists() -> dict[str, tuple[str, ...]]:
    """Prompt templates by name, `{c}` standing for the class; ImageNet's 80 are asked of open_clip."""
    rows = yaml.safe_load(files(__package__).joinpath(f"{_FOLDER}/templates.yaml").read_text("utf-8"))
    return {name: tuple(row) for name, row in rows.items()}


def default_templates(facts: ImageSetFacts) -> tuple[str, ...]:
    """CLIP's templates for an image set."""
    if facts.templates != IMAGENET:
        return template_lists()[facts.templates]
    from open_clip import OPENAI_IMAGENET_TEMPLATES

    return tuple(template("{c}") for template in OPENAI_IMAGENET_TEMPLATES)


@cache
def wnids() -> tuple[str, ...]:
    """ImageNet's 1,000 synset ids in the order of the classes, which is the alphabetical one."""
    return _timm_lines("imagenet_synsets")


def subset(name: str) -> tuple[int, ...]:
    """Class numbers of `imagenet`, `imagenet_a` or `imagenet_r` within the 1,000."""
    return tuple(range(_IMAGENET_CLASSES)) if name == "imagenet" else tuple(map(int, _timm_lines(f"{name}_indices")))


def imagenet_names(name: str) -> tuple[str, ...]:
    """CLIP's names of the classes of `imagenet`, `imagenet_a` or `imagenet_r`, in their order."""
    from open_clip import IMAGENET_CLASSNAMES

    return tuple(IMAGENET_CLASSNAMES[number] for number in subset(name))


def imagenet_folders(name: str) -> tuple[str, ...]:
    """Class folders in their order: synset ids of a subset of ImageNet, or 0 to 999 for `numbers` (ImageNet-V2)."""
    if name == "numbers":
        return tuple(map(str, range(_IMAGENET_CLASSES)))
    return tuple(wnids()[number] for number in subset(name))


def _timm_lines(name: str) -> tuple[str, ...]:
    return tuple(files("timm.data").joinpath(f"_info/{name}.txt").read_text("utf-8").split())
