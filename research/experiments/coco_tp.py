"""COCO-TP: loss of retrieval on COCO with perturbed captions (Qiu et al. 2024; Cheng et al. 2024, table B.5).

Six perturbations of characters, five of words and five of sentences; RSUM of each, on Karpathy's test split, and its
drop relative to the clean captions. The average is over all sixteen, its drop that of the average, as in table B.5. A
perturbation's value is the mean over its severities; the papers do not state which of the seven they include.

`coco_tp` reads the output of the released code (github.com/Jielin-Qiu/MM_Robustness),
`coco_tp/annotation_<method>/<severity>/coco_karpathy_test.json`, or `coco_tp/<perturbation>.json` of the same layout.
`coco_tp_generated` perturbs the first five captions of each image by parts/perturbations.py, at severities 1 to 7; it
is only comparable with itself. Averages need all of their parts. RSUM is a sum of six shares, a hundredth of the
papers' figures.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import PurePosixPath

import numpy as np

from components.core.compute.metrics import Features
from components.core.system.errors import InputError
from components.core.tables.folders import RequiredFile
from components.data.test_sets.files import TestSetFiles
from components.data.test_sets.readers.captions import COCO, CaptionedImages, captioned_images
from components.evaluation.scoring.benchmark import Benchmark, Scores, metrics
from components.evaluation.scoring.protocols.retrieval import SUMMED, TIES, caption_recalls, recall_sum
from components.evaluation.scoring.published_context import PublishedContext
from research.experiments.parts.perturbations import perturbations, perturbed
from research.experiments.parts.wordnet import read_wordnet

NAME = FOLDER = "coco_tp"
GENERATED, WORDNET, SEVERITIES = "coco_tp_generated", "wordnet", range(1, 8)
LEVELS = {
    "character": {
        "keyboard": "KeyboardAug", "ocr": "OcrAug", "char_insert": "RandomCharAug_insert",
        "char_replace": "RandomCharAug_substitute", "char_swap": "RandomCharAug_swap",
        "char_delete": "RandomCharAug_delete",
    },
    "word": {
        "synonym_replacement": "sr", "word_insertion": "ri", "word_swap": "rs", "word_deletion": "rd",
        "insert_punctuation": "ip",
    },
    "sentence": {
        "formal": "formal", "casual": "casual", "passive": "passive", "active": "active",
        "back_translation": "back_trans",
    },
}  # fmt: skip
"""Level -> perturbation -> the released code's name for it."""


def score(context: PublishedContext) -> Scores:
    """RSUM and its drop on captions that were perturbed beforehand."""
    clean, images = _clean(context)
    sums: dict[str, float] = {}
    for methods in LEVELS.values():
        for name, method in methods.items():
            paths = _paths(context, name, method)
            rsums = [_rsum(context, images, _same_images(_read_lists(context, path), clean, path)) for path in paths]
            if rsums:
                sums[name] = float(np.mean(rsums))
    if not sums:
        raise InputError(f"{context.folder / FOLDER} has no perturbed captions: put COCO-TP's annotation folders there")
    return Scores({}, scalars=_scalars(NAME, _rsum(context, images, clean), sums))


def score_generated(context: PublishedContext) -> Scores:
    """RSUM and its drop on captions that are perturbed here; a sixth or seventh is kept, as in the released code."""
    clean, images = _clean(context)
    folder = context.folder / WORDNET
    synonyms = cache(read_wordnet(folder).synonyms) if folder.exists() else None
    places = np.arange(len(clean.captions)) - np.searchsorted(clean.owners, clean.owners)
    sums: dict[str, float] = {}
    for name, perturb in perturbations(synonyms).items():
        rsums = []
        for severity in SEVERITIES:
            captions = [
                perturbed(text, perturb, severity, context.seed) if place < 5 else text
                for text, place in zip(clean.captions, places, strict=True)
            ]
            rsums.append(_rsum(context, images, CaptionedImages(clean.images, captions, clean.owners)))
        sums[name] = float(np.mean(rsums))
    return Scores({}, scalars=_scalars(GENERATED, _rsum(context, images, clean), sums))


def _clean(context: PublishedContext) -> tuple[CaptionedImages, Features]:
    clean = COCO.read(context)
    return clean, context.image_files(COCO.pictures, clean.images)


def _read_lists(files: TestSetFiles, path: str) -> CaptionedImages:
    """A list of `{"image": "val2014/<name>.jpg", "caption": [...]}`: BLIP's and COCO-TP's `coco_karpathy_test.json`."""
    by_image = {}
    for row in files.read_rows(path, {"image": str, "caption": list}):
        captions = [{"caption": caption} for caption in row["caption"]]
        texts = files.complete_rows(f"{path}: {row['image']}", captions, {"caption": str})
        by_image[PurePosixPath(row["image"]).name] = [text["caption"] for text in texts]
    return captioned_images(files, path, by_image)


def _rsum(context: PublishedContext, images: Features, captioned: CaptionedImages) -> float:
    # A new context each time: one with the texts of all perturbations would fill the memory.
    captions = PublishedContext(context.under_test, context.folder).texts(captioned.captions)
    return recall_sum(caption_recalls(images, captions, captioned.owners, SUMMED))


def _paths(context: PublishedContext, name: str, method: str) -> list[str]:
    """Files of a perturbation: its one file, or that of each severity."""
    one = context.folder / FOLDER / f"{name}.json"
    each = (context.folder / FOLDER).glob(f"annotation_{method}/*/coco_karpathy_test.json")
    return [path.relative_to(context.folder).as_posix() for path in ([one] if one.exists() else sorted(each))]


def _same_images(perturbed: CaptionedImages, clean: CaptionedImages, path: str) -> CaptionedImages:
    if perturbed.images != clean.images or not np.array_equal(perturbed.owners, clean.owners):
        raise InputError(f"{path} has other images or numbers of captions than the clean captions: perturb those")
    return perturbed


def _scalars(benchmark: str, clean: float, sums: dict[str, float]) -> dict[str, float]:
    """RSUM and relative drop of each perturbation, and of each complete level and of all."""
    averaged = dict(sums)
    for level, methods in LEVELS.items():
        if methods.keys() <= sums.keys():
            averaged[level] = float(np.mean([sums[name] for name in methods]))
    names = [name for methods in LEVELS.values() for name in methods]
    if set(names) <= sums.keys():
        averaged["all"] = float(np.mean([sums[name] for name in names]))
    scalars = {f"{benchmark}/clean/rsum": clean}
    for name, value in averaged.items():
        scalars[f"{benchmark}/{name}/rsum"] = value
        # Without a single hit on clean captions there is no drop.
        scalars[f"{benchmark}/{name}/relative_drop"] = 1 - value / clean if clean else 0.0
    return scalars


_RELEASED = Benchmark(
    name=NAME,
    version=1,
    protocol="released perturbations; RSUM with all captions, average over 16 perturbations as in arXiv 2405.03190",
    citation="Benchmarking robustness of multimodal image-text models (arXiv 2212.08044)",
    folder="coco",
    needs=(
        *COCO.files,
        RequiredFile(
            FOLDER, "perturbed captions, a folder per method and severity", "200 MB",
            "Apache-2.0 code, captions CC BY 4.0", "a run of github.com/Jielin-Qiu/MM_Robustness",
        ),
    ),
    metrics=(*metrics(TIES, "rsum"), *metrics(TIES, "relative_drop", higher_is_better=False)),
    score=score,
)  # fmt: skip
_WORDNET = RequiredFile(
    WORDNET, "files of WordNet 3's dict/ folder, for the two perturbations with synonyms", "35 MB",
    "WordNet licence", "wordnet.princeton.edu", optional=True,
)  # fmt: skip
_OURS = "this project's perturbations at the released rates, without the fidelity gate; no sentence level"
BENCHMARKS = (
    _RELEASED,
    replace(_RELEASED, name=GENERATED, protocol=_OURS, needs=(*COCO.files, _WORDNET), score=score_generated),
)
