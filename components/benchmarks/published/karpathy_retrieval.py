"""Image and text retrieval on Karpathy's test splits of COCO and Flickr30k, by CLIP_benchmark's rules.

All captions of an image count, on COCO 25,010 for 5,000 images. An image's query is a hit where any of its captions is
among the first k. Two formats are read for each: CLIP_benchmark's own files, and Karpathy's `dataset_*.json`. Captions
are neither lower-cased nor cut to five an image, as others do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from components.benchmarks.benchmark import Benchmark, Need, Tested
from components.benchmarks.encoding.picture_source import picture_file
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.files.karpathy_files import (
    Captioned,
    read_captioned,
    read_coco_captions,
    read_flickr_lines,
    read_karpathy_split,
)
from components.benchmarks.protocols.caption_retrieval import SUMMED, WAYS, caption_recalls, recall_sum
from components.benchmarks.scores import Metric, Scores


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

    def read(self, context: PublishedContext) -> Captioned:
        """The images and captions.

        Raises:
            InputError: no file is there, it is damaged, or its counts are not the published ones.
        """
        path, found = read_captioned(context, self.readers)
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
    images = context.images([picture_file(context.folder / split.pictures / name) for name in found.images])
    depths = sorted({*context.ks, *SUMMED})
    recalls = caption_recalls(images, context.texts(found.captions), found.owners, depths)
    total = recall_sum(recalls)
    return Scores(
        {f"{split.name}/{name}": values for name, values in recalls.items()},
        scalars={
            f"{split.name}/rsum": total,
            f"{split.name}/mean_recall": total / (len(WAYS) * len(SUMMED)),
        },
        pictures={f"{split.name}/text_to_image/recall_at_{k}": found.owners for k in depths},
    )


def tested(split: Split, context: PublishedContext) -> Tested:
    """All images of the split and their captions."""
    _, found = read_captioned(context, split.readers)
    return Tested(found.captions, [context.folder / split.pictures / name for name in found.images])


_TIES = "the earlier gallery row first, images sorted by name"
METRICS = (
    Metric("recall_at_k", higher_is_better=True, ties=_TIES),
    Metric("mean_recall", higher_is_better=True, ties=_TIES),
    Metric("rsum", higher_is_better=True, ties=_TIES),
)
_EITHER = "one of two formats is enough"
COCO_NEEDS = (
    Need("coco_test_karpathy.json", f"5,000 images, 25,010 captions; {_EITHER}", "5 MB", "CC BY 4.0",
         "github.com/mehdidc/retrieval_annotations", optional=True),
    Need("dataset_coco.json", f"Karpathy's splits; {_EITHER}", "140 MB", "CC BY 4.0",
         "cs.stanford.edu/people/karpathy/deepimagesent, caption_datasets.zip", optional=True),
    Need("val2014", "COCO val2014; its 5,000 test images are enough", "6 GB", "Flickr terms", "cocodataset.org"),
)  # fmt: skip
_FLICKR_NEEDS = (
    Need("flickr30k_test_karpathy.txt", f"1,000 images, 5,000 captions; {_EITHER}", "1 MB", "research only",
         "github.com/mehdidc/retrieval_annotations", optional=True),
    Need("dataset_flickr30k.json", f"Karpathy's splits; {_EITHER}", "35 MB", "research only",
         "cs.stanford.edu/people/karpathy/deepimagesent, caption_datasets.zip", optional=True),
    Need("flickr30k-images", "Flickr30k; its 1,000 test images are enough", "4 GB", "Flickr terms, on request",
         "shannon.cs.illinois.edu/DenotationGraph"),
)  # fmt: skip
_PROTOCOL = "CLIP_benchmark: Karpathy test, all captions, hit rate; RSUM of 1, 5 and 10 both ways"

BENCHMARKS = (
    Benchmark(
        name=COCO.name,
        version=2,
        protocol=_PROTOCOL,
        citation="COCO Captions (arXiv 1504.00325), split by Karpathy and Fei-Fei (arXiv 1412.2306)",
        folder="coco",
        needs=COCO_NEEDS,
        metrics=METRICS,
        score=partial(score, COCO),
        tested=partial(tested, COCO),
    ),
    Benchmark(
        name=FLICKR.name,
        version=2,
        protocol=_PROTOCOL,
        citation="Flickr30k (Young et al. 2014), split by Karpathy and Fei-Fei (arXiv 1412.2306)",
        folder="flickr30k",
        needs=_FLICKR_NEEDS,
        metrics=METRICS,
        score=partial(score, FLICKR),
        tested=partial(tested, FLICKR),
    ),
)
