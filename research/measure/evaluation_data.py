"""The same pictures, captions and classes in the formats that `cliptune evaluate` and clip_benchmark read."""

from __future__ import annotations

import io
import random
import tarfile
from itertools import product
from pathlib import Path

import numpy as np
import open_clip
import torch
from more_itertools import chunked
from PIL import Image

WEIGHTS, CAPTIONS_PER_IMAGE, CLASSES = "weights.pt", 5, 100
TEMPLATES = (
    "a photo of a {c}.", "a blurry photo of a {c}.", "a black and white photo of a {c}.", "a bad photo of a {c}.",
    "a good photo of a {c}.", "a photo of a small {c}.", "a photo of a big {c}.", "a photo of the {c}.",
    "a blurry photo of the {c}.", "a bad photo of the {c}.",
)  # fmt: skip
_PARTS = (
    ("a dog", "two cats", "an old bus", "a small boat", "a woman in a red coat", "a man with a hat", "a child"),
    ("standing near", "looking at", "passing by", "sitting in front of", "moving quickly along", "waiting for"),
    ("a wooden fence", "the harbour", "a busy street", "an empty field", "a bridge over a river", "the market"),
    ("in the rain", "in warm evening light", "on a cold morning", "while others watch", "under a grey sky"),
    ("seen from above", "close by", "far away", "painted by hand", "out of focus"),
)
_JPEG_SIDE, _SHARDS = (320, 240), 2


def prepare(folder: Path, model: str, images: int) -> int:
    """Random weights, random pictures, and sentences of the length that COCO's captions have; returns their number.

    `cliptune evaluate` reads `data` below the folder, clip_benchmark reads `retrieval` and `classes`.
    """
    torch.manual_seed(0)
    torch.save(open_clip.create_model(model).state_dict(), folder / WEIGHTS)
    rng, pictures = random.Random(0), [_jpeg(number) for number in range(images)]
    # Sentences and names that differ: equal similarities would fall as rounding leaves them.
    every = [" ".join(parts).capitalize() for parts in product(*_PARTS)]
    captions = list(chunked(rng.sample(every, images * CAPTIONS_PER_IMAGE), CAPTIONS_PER_IMAGE))
    _flickr(folder / "data" / "flickr30k", pictures, captions)
    _shards(folder / "retrieval", "txt", pictures, ["\n".join(own) for own in captions])
    (folder / "retrieval" / "dataset_type.txt").write_text("retrieval")
    names = open_clip.IMAGENET_CLASSNAMES[:: len(open_clip.IMAGENET_CLASSNAMES) // CLASSES][:CLASSES]
    labels = [str(rng.randrange(CLASSES)) for _ in pictures]
    for place in (folder / "data" / "cifar100", folder / "classes"):
        _shards(place, "cls", pictures, labels)
        (place / "classnames.txt").write_text("\n".join(names))
        (place / "zeroshot_classification_templates.txt").write_text("\n".join(TEMPLATES))
    return images * CAPTIONS_PER_IMAGE + CLASSES * len(TEMPLATES)


def _jpeg(number: int) -> bytes:
    # Smooth noise: as large on disk as a photograph of this size, and each picture another.
    small = np.random.default_rng(number).integers(0, 256, (24, 32, 3)).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(small).resize(_JPEG_SIDE, Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def _flickr(folder: Path, pictures: list[bytes], captions: list[list[str]]) -> None:
    (folder / "flickr30k-images").mkdir(parents=True)
    lines = ["image,caption"]
    for number, (picture, own) in enumerate(zip(pictures, captions, strict=True)):
        (folder / "flickr30k-images" / f"{number}.jpg").write_bytes(picture)
        lines += [f"{number}.jpg,{caption}" for caption in own]
    (folder / "flickr30k_test_karpathy.txt").write_text("\n".join(lines) + "\n")


def _shards(folder: Path, kind: str, pictures: list[bytes], texts: list[str]) -> None:
    """One split `test` in clip_benchmark's webdataset layout, whose readers want a shard for each of two workers."""
    (folder / "test").mkdir(parents=True)
    (folder / "test" / "nshards.txt").write_text(str(_SHARDS))
    samples = list(enumerate(zip(pictures, texts, strict=True)))
    for shard in range(_SHARDS):
        with tarfile.open(folder / "test" / f"{shard}.tar", "w") as archive:
            for number, (image, text) in samples[shard::_SHARDS]:
                for ending, content in (("jpg", image), (kind, text.encode())):
                    member = tarfile.TarInfo(f"{number:06}.{ending}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
