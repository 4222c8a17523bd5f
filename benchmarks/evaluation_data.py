"""The same pictures, captions and classes in the formats that both engines read."""

from __future__ import annotations

import io
import random
import tarfile
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import open_clip
import torch
from more_itertools import chunked
from PIL import Image

CAPTIONS_PER_IMAGE, CLASSES = 5, 100
TEMPLATES = (
    "a photo of a {c}.", "a blurry photo of a {c}.", "a black and white photo of a {c}.", "a bad photo of a {c}.",
    "a good photo of a {c}.", "a photo of a small {c}.", "a photo of a big {c}.", "a photo of the {c}.",
    "a blurry photo of the {c}.", "a bad photo of the {c}.",
)  # fmt: skip
_SUBJECTS = ("a dog", "two cats", "an old bus", "a small boat", "a woman in a red coat", "a man with a hat", "a child")
_ACTIONS = ("standing near", "looking at", "passing by", "sitting in front of", "moving quickly along", "waiting for")
_PLACES = ("a wooden fence", "the harbour", "a busy street", "an empty field", "a bridge over a river", "the market")
_LIGHTS = ("in the rain", "in warm evening light", "on a cold morning", "while others watch", "under a grey sky")
_MANNERS = ("seen from above", "close by", "far away", "painted by hand", "out of focus")
_JPEG_SIDE, _SHARDS = (320, 240), 2


@dataclass(frozen=True)
class Prepared:
    """Folders of one benchmark run: ours below `data`, the peer's in `retrieval` and `classes`."""

    data: Path
    retrieval: Path
    classes: Path
    weights: Path
    images: int
    texts: int


def prepare(folder: Path, model: str, images: int) -> Prepared:
    """Random weights, random pictures, and sentences of the length that COCO's captions have."""
    torch.manual_seed(0)
    weights = folder / "weights.pt"
    torch.save(open_clip.create_model(model).state_dict(), weights)
    rng = random.Random(0)
    pictures = [_jpeg(number) for number in range(images)]
    captions = list(chunked(_captions(images * CAPTIONS_PER_IMAGE), CAPTIONS_PER_IMAGE))
    data = folder / "data"
    _flickr(data / "flickr30k", pictures, captions)
    _shards(
        folder / "retrieval", [(image, "txt", "\n".join(own)) for image, own in zip(pictures, captions, strict=True)]
    )
    (folder / "retrieval" / "dataset_type.txt").write_text("retrieval")
    # Names that differ: equal similarities would fall as rounding leaves them.
    names = open_clip.IMAGENET_CLASSNAMES[:: len(open_clip.IMAGENET_CLASSNAMES) // CLASSES][:CLASSES]
    labelled = [(image, "cls", str(rng.randrange(CLASSES))) for image in pictures]
    for place in (data / "cifar100", folder / "classes"):
        _shards(place, labelled)
        (place / "classnames.txt").write_text("\n".join(names))
        (place / "zeroshot_classification_templates.txt").write_text("\n".join(TEMPLATES))
    texts = images * CAPTIONS_PER_IMAGE + CLASSES * len(TEMPLATES)
    return Prepared(data, folder / "retrieval", folder / "classes", weights, 2 * images, texts)


def _jpeg(number: int) -> bytes:
    # Smooth noise: as large on disk as a photograph of this size, and each picture another.
    generator = np.random.default_rng(number)
    small = generator.integers(0, 256, (24, 32, 3)).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(small).resize(_JPEG_SIDE, Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def _captions(count: int) -> list[str]:
    """Sentences of which no two are equal: those of equal similarity would fall as rounding leaves them."""
    every = [" ".join(parts).capitalize() for parts in product(_SUBJECTS, _ACTIONS, _PLACES, _LIGHTS, _MANNERS)]
    return random.Random(0).sample(every, count)


def _flickr(folder: Path, pictures: list[bytes], captions: list[list[str]]) -> None:
    (folder / "flickr30k-images").mkdir(parents=True)
    lines = ["image,caption"]
    for number, (picture, own) in enumerate(zip(pictures, captions, strict=True)):
        (folder / "flickr30k-images" / f"{number}.jpg").write_bytes(picture)
        lines += [f"{number}.jpg,{caption}" for caption in own]
    (folder / "flickr30k_test_karpathy.txt").write_text("\n".join(lines) + "\n")


def _shards(folder: Path, samples: list[tuple[bytes, str, str]]) -> None:
    """One split `test` in CLIP_benchmark's webdataset layout, whose readers want a shard for each of two workers."""
    (folder / "test").mkdir(parents=True)
    (folder / "test" / "nshards.txt").write_text(str(_SHARDS))
    for shard in range(_SHARDS):
        with tarfile.open(folder / "test" / f"{shard}.tar", "w") as archive:
            for number, (image, kind, text) in list(enumerate(samples))[shard::_SHARDS]:
                for name, content in ((f"{number:06}.jpg", image), (f"{number:06}.{kind}", text.encode())):
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
