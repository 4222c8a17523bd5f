"""Image and text retrieval on Karpathy's test splits of COCO and Flickr30k, and on COCO's val2017.

Rules are CLIP_benchmark's. All captions of an image count, on COCO 25,010 for 5,000 images. An image's query is a hit
where any of its captions is among the first k. Two formats are read for Karpathy's splits: CLIP_benchmark's own files,
and Karpathy's `dataset_*.json`. Captions are neither lower-cased nor cut to five an image, as others do. Rows that are
not as published are counted and may be left out here; a source that trains (`components.data.sources.coco`) refuses the
same files for one of them.

ParaCLIP retrieves "on the COCO validation set" of no year. For OpenAI's weights it prints 54.8 where the Adapting paper
has 56.0 on Karpathy's images, so that this is another set. Its paraphrased retrieval is on val2017.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from components.benchmarks.benchmark import Benchmark, Need, Tested
from components.benchmarks.encoding.published_context import PublishedContext, checked, read_rows
from components.benchmarks.protocols.retrieval import SUMMED, TIES, WAYS, caption_recalls, recall_sum
from components.benchmarks.scores import Scores, metrics
from components.core.errors import InputError
from components.core.metrics import Indices


@dataclass(frozen=True)
class Captioned:
    """Images with all of their captions.

    Attributes:
        images: file names, sorted, so that every format gives the same gallery.
        captions: all captions, those of one image together and in the file's order.
        owners: row of each caption's image `[captions]`.
    """

    images: list[str]
    captions: list[str]
    owners: Indices


def read_coco_captions(context: PublishedContext, path: str) -> Captioned:
    """A file in COCO's caption format: `images` with id and file_name, `annotations` with image_id and caption.

    `coco_test_karpathy.json` of github.com/mehdidc/retrieval_annotations, which CLIP_benchmark reads, is one.

    Raises:
        InputError: the file is laid out otherwise, or a caption belongs to no image.
    """
    shown, told = _lists(context, path, "images", "annotations")
    images = checked(context, f"{path}: images", shown, {"id": int, "file_name": str})
    captions = checked(context, f"{path}: annotations", told, {"image_id": int, "caption": str})
    names = {row["id"]: PurePosixPath(row["file_name"]).name for row in images}
    strays = [row for row in captions if row["image_id"] not in names]
    if strays:
        context.amiss(f"{path}: {len(strays)} captions belong to no image, first image_id {strays[0]['image_id']}")
    found: dict[str, list[str]] = {name: [] for name in names.values()}
    for row in captions:
        if row["image_id"] in names:
            found[names[row["image_id"]]].append(row["caption"])
    return _captioned(context, path, found)


def read_karpathy_split(context: PublishedContext, path: str) -> Captioned:
    """The test rows of a `dataset_*.json` by Karpathy: `images` with filename, split and sentences, each with raw.

    Raises:
        InputError: the file is laid out otherwise.
    """
    columns = {"filename": str, "split": str, "sentences": list}
    (listed,) = _lists(context, path, "images")
    rows = checked(context, f"{path}: images", listed, columns)
    found = {}
    for row in rows:
        if row["split"] == "test":
            sentences = checked(context, f"{path}: sentences of {row['filename']}", row["sentences"], {"raw": str})
            found[PurePosixPath(row["filename"]).name] = [sentence["raw"] for sentence in sentences]
    return _captioned(context, path, found)


def read_caption_lists(context: PublishedContext, path: str) -> Captioned:
    """A list of `{"image": "val2014/<name>.jpg", "caption": [...]}`: BLIP's and COCO-TP's `coco_karpathy_test.json`.

    Raises:
        InputError: the file is laid out otherwise; nlpaug from 1.1.11 on writes lists in place of captions, too.
    """
    found = {}
    for row in read_rows(context, path, {"image": str, "caption": list}):
        texts = checked(
            context, f"{path}: {row['image']}", [{"caption": one} for one in row["caption"]], {"caption": str}
        )
        found[PurePosixPath(row["image"]).name] = [text["caption"] for text in texts]
    return _captioned(context, path, found)


def read_flickr_lines(context: PublishedContext, path: str) -> Captioned:
    """`flickr30k_test_karpathy.txt` as CLIP_benchmark reads it: a title line, then `<name>.jpg,<caption>` in each line.

    Captions are not quoted and may hold commas, so only the first `.jpg,` separates.

    Raises:
        InputError: the file is no text, or a line has no separator.
    """
    try:
        lines = (context.folder / path).read_text("utf-8").splitlines()[1:]
    except UnicodeDecodeError as error:
        raise InputError(f"{context.folder / path} is damaged ({error}): fetch it again") from None
    found: dict[str, list[str]] = defaultdict(list)
    bad = []
    for number, line in enumerate(lines, start=2):
        name, separator, caption = line.strip().partition(".jpg,")
        if separator:
            found[f"{PurePosixPath(name).name}.jpg"].append(caption)
        elif line.strip():
            bad.append(number)
    if bad:
        context.amiss(f"{path}: {len(bad)} lines are not <name>.jpg,<caption>, first line {bad[0]}")
    return _captioned(context, path, found)


def _lists(context: PublishedContext, path: str, *keys: str) -> Iterator[list[Any]]:
    """The lists that a JSON object has under `keys`."""
    content = context.read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"{context.folder / path} holds no JSON object: fetch it again")
    for key in keys:
        if not isinstance(content.get(key), list):
            raise InputError(f"{context.folder / path} has no list '{key}': fetch it again")
        yield content[key]


def _captioned(context: PublishedContext, path: str, found: dict[str, list[str]]) -> Captioned:
    silent = sorted(name for name, captions in found.items() if not captions)
    if silent:
        context.amiss(f"{path}: {len(silent)} images have no caption, first {silent[0]}")
    images = sorted(name for name, captions in found.items() if captions)
    if not images:
        raise InputError(f"{context.folder / path} has no captioned test image: fetch it again")
    captions = [caption for name in images for caption in found[name]]
    owners = np.repeat(np.arange(len(images)), [len(found[name]) for name in images])
    return Captioned(images, captions, owners.astype(np.int64))


@dataclass(frozen=True)
class Split:
    """One test split.

    Attributes:
        name: of its benchmark.
        images, captions: published counts.
        pictures: folder of the images.
        readers: annotation file -> its reader; the first that is there is read.
    """

    name: str
    images: int
    captions: int
    pictures: str
    readers: dict[str, Callable[[PublishedContext, str], Captioned]]

    def read(self, context: PublishedContext, *, counted: bool = True) -> Captioned:
        """The images and captions; unless `counted`, whatever their number.

        Raises:
            InputError: no file is there, it is damaged, or its counts are not the published ones.
        """
        path = next((path for path in self.readers if (context.folder / path).exists()), None)
        if path is None:
            raise InputError(f"{context.folder} has none of {', '.join(self.readers)}: put one of them there")
        found = self.readers[path](context, path)
        if counted:
            context.expect(f"{path}: test images", len(found.images), self.images)
            context.expect(f"{path}: test captions", len(found.captions), self.captions)
        return found


COCO = Split(
    "coco_retrieval",
    5_000,
    25_010,
    "val2014",
    {"coco_test_karpathy.json": read_coco_captions, "dataset_coco.json": read_karpathy_split},
)
VAL2017 = Split(
    "coco_val2017_retrieval", 5_000, 25_014, "val2017", {"annotations/captions_val2017.json": read_coco_captions}
)
FLICKR = Split(
    "flickr30k_retrieval",
    1_000,
    5_000,
    "flickr30k-images",
    {"flickr30k_test_karpathy.txt": read_flickr_lines, "dataset_flickr30k.json": read_karpathy_split},
)


def score(split: Split, context: PublishedContext) -> Scores:
    """Hit rates both ways at the context's depths, their mean and sum at 1, 5 and 10."""
    found = split.read(context)
    images = context.image_files(split.pictures, found.images)
    depths = sorted({*context.ks, *SUMMED})
    recalls = caption_recalls(images, context.texts(found.captions), found.owners, depths)
    total = recall_sum(recalls)
    return Scores(
        {f"{split.name}/{name}": values for name, values in recalls.items()},
        scalars={f"{split.name}/rsum": total, f"{split.name}/mean_recall": total / (len(WAYS) * len(SUMMED))},
        pictures={f"{split.name}/text_to_image/recall_at_{k}": found.owners for k in depths},
    )


def tested(split: Split, context: PublishedContext) -> Tested:
    """All images of the split and their captions."""
    found = split.read(context, counted=False)
    return Tested(found.captions, [context.folder / split.pictures / name for name in found.images])


_EITHER = "one of two formats is enough"
COCO_NEEDS = (
    Need("coco_test_karpathy.json", f"5,000 images, 25,010 captions; {_EITHER}", "5 MB", "CC BY 4.0",
         "github.com/mehdidc/retrieval_annotations", optional=True),
    Need("dataset_coco.json", f"Karpathy's splits; {_EITHER}", "140 MB", "CC BY 4.0",
         "cs.stanford.edu/people/karpathy/deepimagesent, caption_datasets.zip", optional=True),
    Need("val2014", "COCO val2014; its 5,000 test images are enough", "6 GB", "Flickr terms", "cocodataset.org"),
)  # fmt: skip
VAL2017_NEEDS = (
    Need("annotations/captions_val2017.json", "25,014 captions", "4 MB", "CC BY 4.0", "cocodataset.org"),
    Need("val2017", "5,000 images", "1 GB", "Flickr terms", "cocodataset.org, val2017.zip"),
)
_FLICKR_NEEDS = (
    Need("flickr30k_test_karpathy.txt", f"1,000 images, 5,000 captions; {_EITHER}", "1 MB", "research only",
         "github.com/mehdidc/retrieval_annotations", optional=True),
    Need("dataset_flickr30k.json", f"Karpathy's splits; {_EITHER}", "35 MB", "research only",
         "cs.stanford.edu/people/karpathy/deepimagesent, caption_datasets.zip", optional=True),
    Need("flickr30k-images", "Flickr30k; its 1,000 test images are enough", "4 GB", "Flickr terms, on request",
         "shannon.cs.illinois.edu/DenotationGraph"),
)  # fmt: skip

_SPLIT = "split by Karpathy and Fei-Fei (arXiv 1412.2306)"

BENCHMARKS = tuple(
    Benchmark(
        name=split.name,
        version=version,
        protocol=f"CLIP_benchmark: {shown}, all captions, hit rate; RSUM of 1, 5 and 10 both ways",
        citation=source,
        folder=folder,
        needs=needs,
        metrics=metrics(TIES, "recall_at_k", "mean_recall", "rsum"),
        score=partial(score, split),
        tested=partial(tested, split),
    )
    for split, version, shown, folder, needs, source in (
        (COCO, 2, "Karpathy test", "coco", COCO_NEEDS, f"COCO Captions (arXiv 1504.00325), {_SPLIT}"),
        (FLICKR, 2, "Karpathy test", "flickr30k", _FLICKR_NEEDS, f"Flickr30k (Young et al. 2014), {_SPLIT}"),
        (VAL2017, 1, "all of val2017", "coco", VAL2017_NEEDS, "COCO Captions (arXiv 1504.00325)"),
    )
)
