"""Image and text retrieval on Karpathy's test splits of COCO and Flickr30k, and on COCO's val2017.

Rules are CLIP_benchmark's. All captions of an image count, on COCO 25,010 for 5,000 images. An image's query is a hit
if any of its captions is among the first k.

ParaCLIP retrieves "on the COCO validation set" of no stated year. For OpenAI's weights it prints 54.8 where the
Adapting paper has 56.0 on Karpathy's images, so it must be another set. Its paraphrased retrieval is on val2017.
"""

from __future__ import annotations

from functools import partial

from components.data.test_sets.readers.captions import COCO, FLICKR, VAL2017, CaptionedSplit
from components.evaluation.scoring.benchmark import Benchmark, Scores, metrics
from components.evaluation.scoring.protocols.retrieval import SUMMED, TIES, WAYS, caption_recalls, recall_sum
from components.evaluation.scoring.published_context import PublishedContext


def score(split: CaptionedSplit, context: PublishedContext) -> Scores:
    """Hit rates in both directions at the context's depths, their mean and sum at 1, 5 and 10."""
    captioned = split.read(context)
    images = context.image_files(split.pictures, captioned.images)
    depths = sorted({*context.ks, *SUMMED})
    recalls = caption_recalls(images, context.texts(captioned.captions), captioned.owners, depths)
    total = recall_sum(recalls)
    return Scores(
        {f"{split.name}/{name}": values for name, values in recalls.items()},
        scalars={f"{split.name}/rsum": total, f"{split.name}/mean_recall": total / (len(WAYS) * len(SUMMED))},
        pictures={f"{split.name}/text_to_image/recall_at_{k}": captioned.owners for k in depths},
    )


_SPLIT = "split by Karpathy and Fei-Fei (arXiv 1412.2306)"
BENCHMARKS = tuple(
    Benchmark(
        name=split.name,
        version=version,
        protocol=f"CLIP_benchmark: {shown}, all captions, hit rate; RSUM of 1, 5 and 10 both ways",
        citation=source,
        folder=split.folder,
        needs=tuple(split.files),
        metrics=metrics(TIES, "recall_at_k", "mean_recall", "rsum"),
        score=partial(score, split),
    )
    for split, version, shown, source in (
        (COCO, 2, "Karpathy test", f"COCO Captions (arXiv 1504.00325), {_SPLIT}"),
        (FLICKR, 2, "Karpathy test", f"Flickr30k (Young et al. 2014), {_SPLIT}"),
        (VAL2017, 1, "all of val2017", "COCO Captions (arXiv 1504.00325)"),
    )
)
