"""Karpathy's test splits of COCO and Flickr30k, and COCO's val2017: images with all of their captions.

Captions are neither lower-cased nor cut to five an image, as others do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath

import numpy as np

from components.core.compute.metrics import Indices
from components.core.system.errors import InputError
from components.core.tables.folders import RequiredFile
from components.data.test_sets.files import Tested, TestSet, TestSetFiles


@dataclass(frozen=True)
class CaptionedImages:
    """Images with all of their captions.

    Attributes:
        images: file names, sorted, so that every format gives the same gallery.
        owners: row of each caption's image `[captions]`.
    """

    images: list[str]
    captions: list[str]
    owners: Indices


@dataclass(frozen=True)
class CaptionedSplit:
    """One test split.

    Attributes:
        images, captions: published counts.
        readers: annotation file -> its reader; the first existing file is read.
    """

    name: str
    images: int
    captions: int
    folder: str
    pictures: str
    readers: Mapping[str, Callable[[TestSetFiles, str], CaptionedImages]]
    files: Sequence[RequiredFile]

    def read(self, files: TestSetFiles, *, counted: bool = True) -> CaptionedImages:
        """The images and captions; unless `counted`, whatever their number."""
        path = next((path for path in self.readers if (files.folder / path).exists()), None)
        if path is None:
            raise InputError(f"{files.folder} has none of {', '.join(self.readers)}: put one of them there")
        captioned = self.readers[path](files, path)
        if counted:
            files.expect(f"{path}: test images", len(captioned.images), self.images)
            files.expect(f"{path}: test captions", len(captioned.captions), self.captions)
        return captioned


def read_coco_captions(files: TestSetFiles, path: str) -> CaptionedImages:
    """A file in COCO's caption format: `images` with id and file_name, `annotations` with image_id and caption.

    `coco_test_karpathy.json` of github.com/mehdidc/retrieval_annotations, which CLIP_benchmark reads, is one.
    """
    listed, annotations = files.read_lists(path, "images", "annotations")
    images = files.complete_rows(f"{path}: images", listed, {"id": int, "file_name": str})
    captions = files.complete_rows(f"{path}: annotations", annotations, {"image_id": int, "caption": str})
    names = {row["id"]: PurePosixPath(row["file_name"]).name for row in images}
    strays = [row for row in captions if row["image_id"] not in names]
    if strays:
        files.deviates(f"{path}: {len(strays)} captions belong to no image, first image_id {strays[0]['image_id']}")
    by_image: dict[str, list[str]] = {name: [] for name in names.values()}
    for row in captions:
        if row["image_id"] in names:
            by_image[names[row["image_id"]]].append(row["caption"])
    return captioned_images(files, path, by_image)


def read_karpathy_split(files: TestSetFiles, path: str) -> CaptionedImages:
    """The test rows of a `dataset_*.json` by Karpathy: `images` with filename, split and sentences, each with raw."""
    (listed,) = files.read_lists(path, "images")
    by_image = {}
    for row in files.complete_rows(f"{path}: images", listed, {"filename": str, "split": str, "sentences": list}):
        if row["split"] == "test":
            where = f"{path}: sentences of {row['filename']}"
            sentences = files.complete_rows(where, row["sentences"], {"raw": str})
            by_image[PurePosixPath(row["filename"]).name] = [sentence["raw"] for sentence in sentences]
    return captioned_images(files, path, by_image)


def read_flickr_lines(files: TestSetFiles, path: str) -> CaptionedImages:
    """`flickr30k_test_karpathy.txt` as CLIP_benchmark reads it: a title line, then `<name>.jpg,<caption>` in each line.

    Captions are not quoted and may contain commas, so only the first `.jpg,` separates.
    """
    try:
        lines = (files.folder / path).read_text("utf-8").splitlines()[1:]
    except UnicodeDecodeError as error:
        raise InputError(f"{files.folder / path} is damaged ({error}): fetch it again") from None
    by_image: dict[str, list[str]] = defaultdict(list)
    bad = []
    for number, line in enumerate(lines, start=2):
        name, separator, caption = line.strip().partition(".jpg,")
        if separator:
            by_image[f"{PurePosixPath(name).name}.jpg"].append(caption)
        elif line.strip():
            bad.append(number)
    if bad:
        files.deviates(f"{path}: {len(bad)} lines are not <name>.jpg,<caption>, first line {bad[0]}")
    return captioned_images(files, path, by_image)


def captioned_images(files: TestSetFiles, path: str, by_image: Mapping[str, list[str]]) -> CaptionedImages:
    """Images with their captions, by file name; those without a caption deviate."""
    silent = sorted(name for name, captions in by_image.items() if not captions)
    if silent:
        files.deviates(f"{path}: {len(silent)} images have no caption, first {silent[0]}")
    images = sorted(name for name, captions in by_image.items() if captions)
    if not images:
        raise InputError(f"{files.folder / path} has no captioned test image: fetch it again")
    captions = [caption for name in images for caption in by_image[name]]
    owners = np.repeat(np.arange(len(images)), [len(by_image[name]) for name in images])
    return CaptionedImages(images, captions, owners.astype(np.int64))


def _either_format(rows: Iterable[tuple[str, str, str, str]], licence: str) -> list[RequiredFile]:
    return [
        RequiredFile(path, f"{what}; one of two formats is enough", size, licence, source, optional=True)
        for path, what, size, source in rows
    ]


_ANNOTATIONS = "github.com/mehdidc/retrieval_annotations"
_KARPATHY = "cs.stanford.edu/people/karpathy/deepimagesent, caption_datasets.zip"
COCO = CaptionedSplit(
    "coco_retrieval", 5_000, 25_010, "coco", "val2014",
    {"coco_test_karpathy.json": read_coco_captions, "dataset_coco.json": read_karpathy_split},
    (
        *_either_format(
            (("coco_test_karpathy.json", "5,000 images, 25,010 captions", "5 MB", _ANNOTATIONS),
             ("dataset_coco.json", "Karpathy's splits", "140 MB", _KARPATHY)),
            "CC BY 4.0",
        ),
        RequiredFile("val2014", "COCO val2014; its 5,000 test images are enough", "6 GB", "Flickr terms",
                     "cocodataset.org"),
    ),
)  # fmt: skip
FLICKR = CaptionedSplit(
    "flickr30k_retrieval", 1_000, 5_000, "flickr30k", "flickr30k-images",
    {"flickr30k_test_karpathy.txt": read_flickr_lines, "dataset_flickr30k.json": read_karpathy_split},
    (
        *_either_format(
            (("flickr30k_test_karpathy.txt", "1,000 images, 5,000 captions", "1 MB", _ANNOTATIONS),
             ("dataset_flickr30k.json", "Karpathy's splits", "35 MB", _KARPATHY)),
            "research only",
        ),
        RequiredFile("flickr30k-images", "Flickr30k; its 1,000 test images are enough", "4 GB",
                     "Flickr terms, on request", "shannon.cs.illinois.edu/DenotationGraph"),
    ),
)  # fmt: skip
VAL2017 = CaptionedSplit(
    "coco_val2017_retrieval", 5_000, 25_014, "coco", "val2017",
    {"annotations/captions_val2017.json": read_coco_captions},
    (
        RequiredFile("annotations/captions_val2017.json", "25,014 captions", "4 MB", "CC BY 4.0", "cocodataset.org"),
        RequiredFile("val2017", "5,000 images", "1 GB", "Flickr terms", "cocodataset.org, val2017.zip"),
    ),
)  # fmt: skip


def _tested(files: TestSetFiles, split: CaptionedSplit) -> Tested:
    captioned = split.read(files, counted=False)
    return Tested(captioned.captions, [files.folder / split.pictures / name for name in captioned.images])


TEST_SETS = tuple(
    TestSet(split.name, split.folder, split.files, partial(_tested, split=split)) for split in (COCO, FLICKR, VAL2017)
)
