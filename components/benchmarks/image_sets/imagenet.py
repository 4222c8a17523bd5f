"""ImageNet's classes and those of its subsets, as timm and open_clip carry them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

_CLASSES = 1000


@cache
def wnids() -> tuple[str, ...]:
    """The 1,000 synset ids in the order of the classes, which is the alphabetical one."""
    return _lines("imagenet_synsets")


def subset(name: str) -> tuple[int, ...]:
    """Class numbers of `imagenet`, `imagenet_a` or `imagenet_r` within the 1,000."""
    return tuple(range(_CLASSES)) if name == "imagenet" else tuple(map(int, _lines(f"{name}_indices")))


def class_names(name: str) -> tuple[str, ...]:
    """CLIP's names of the classes of `imagenet`, `imagenet_a` or `imagenet_r`, in their order."""
    from open_clip import IMAGENET_CLASSNAMES

    return tuple(IMAGENET_CLASSNAMES[number] for number in subset(name))


def class_folders(name: str) -> tuple[str, ...]:
    """Class folders in the order of the classes: synset ids of a subset, or 0 to 999 for `numbers` (ImageNet-V2)."""
    if name == "numbers":
        return tuple(map(str, range(_CLASSES)))
    return tuple(wnids()[number] for number in subset(name))


def _lines(name: str) -> tuple[str, ...]:
    return tuple(files("timm.data").joinpath(f"_info/{name}.txt").read_text("utf-8").split())
