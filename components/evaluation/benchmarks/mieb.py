"""Tasks of MIEB and MTEB under the name `mieb:<task>`; the package mteb fetches their data and scores them.

MIEB (Xiao et al. 2025, arXiv 2504.10471) has 130 tasks with images. Rules, metrics and chance levels are a task's own.
As in mteb's wrapper of open_clip, features are not normalised, and a row with text and image has the sum of both. There
are no intervals, because mteb reports means; its correlations of score and confidence, `nauc_*`, are left out.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from components.core.compute.metrics import Features
from components.core.system.errors import InputError
from components.core.system.progress import track
from components.core.tables.files import content_hash
from components.encoders.embeddings import require_finite
from components.encoders.under_test import EncoderUnderTest, RawEncoder, raw_encoder
from components.evaluation.scoring.benchmark import Benchmark, Metric, Scores
from components.evaluation.scoring.published_context import PublishedContext

PREFIX = "mieb:"


@dataclass(frozen=True)
class MtebBenchmark(Benchmark[PublishedContext]):
    """A task of mteb, which fetches the data of that `revision` and decides which metrics there are."""

    revision: str = ""

    def data_hash(self, data: Path) -> str:
        return content_hash(self.name, self.revision)

    def metric(self, full_name: str) -> Metric:
        name = full_name.rsplit("/", 1)[-1]
        return Metric(name, name not in ("mae", "mse", "rmse"), "mteb's")


def mieb_benchmark(name: str) -> MtebBenchmark:
    """The benchmark of the task `name` of mteb, such as `CIFAR10ZeroShot`."""
    try:
        import mteb
    except ImportError:
        raise InputError(f"{PREFIX}<task> is scored by mteb: run `make .venv/.ready`, which installs it") from None
    try:
        task = mteb.get_task(name)
    except KeyError:
        close = difflib.get_close_matches(name, [one.metadata.name for one in mteb.get_tasks()], cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else "mteb.get_tasks() in Python lists them"
        raise InputError(f"--benchmark {PREFIX}{name}: mteb has no such task: {hint}") from None
    if others := sorted(set(task.modalities) - {"image", "text"}):
        raise InputError(f"--benchmark {PREFIX}{name} has {' and '.join(others)}: choose a task of images or texts")
    return MtebBenchmark(
        name=f"{PREFIX}{task.metadata.name}",
        version=1,
        needs=(),
        metrics=(),
        score=lambda context: _score(context, task),
        protocol=f"mteb {mteb.__version__}: {task.metadata.type}, {task.metadata.main_score}",
        citation="MIEB (arXiv 2504.10471)",
        text_only="image" not in task.modalities,
        revision=f"{task.metadata.dataset.get('revision')} {mteb.__version__}",
    )


def _score(context: PublishedContext, task: Any) -> Scores:
    """The task's main score over all splits and languages, and every score by split and language."""
    import mteb

    name = f"{PREFIX}{task.metadata.name}"
    try:
        # mteb's cache is in the home folder; results are kept with those of all benchmarks.
        (found,) = mteb.evaluate(HandedOver(context.under_test), task, cache=None).task_results
    except Exception as error:
        raise InputError(f"{name}: mteb fails with {type(error).__name__}: {' '.join(str(error).split())}") from error
    if not math.isfinite(main := float(found.get_score())):
        raise InputError(f"{name}: {task.metadata.main_score} is not a number: the encoder gives equal features")
    scalars = {f"{name}/{task.metadata.main_score}": main}
    for split, subset in ((split, subset) for split, subsets in found.scores.items() for subset in subsets):
        group = split if subset["hf_subset"] == "default" else f"{split}-{subset['hf_subset']}"
        for metric, value in subset.items():
            if isinstance(value, float) and math.isfinite(value) and not metric.startswith(("main_score", "nauc_")):
                scalars[f"{name}/{group}/{metric}"] = value
    return Scores({}, scalars=scalars)


class HandedOver:
    """An encoder under mteb's `EncoderProtocol`."""

    def __init__(self, under_test: EncoderUnderTest) -> None:
        from mteb.models import ModelMeta
        from mteb.similarity_functions import cos_sim, pairwise_cos_sim

        self._under_test, encoder = under_test, under_test.encoder
        self._texts = encoder.raw_texts if isinstance(encoder, RawEncoder) else encoder.embed_texts
        # mteb requires the form <organisation>/<name>.
        facts = {"name": f"cliptune/{under_test.name}", "revision": under_test.sha256}
        self.mteb_model_meta = ModelMeta.create_empty({**facts, "modalities": ["image", "text"]})
        self.similarity, self.similarity_pairwise = cos_sim, pairwise_cos_sim

    def encode(self, inputs: Any, **_: Any) -> Features:
        """Features `[rows, dim]` of batches with lists `text`, `image` (Pillow's) or both."""
        parts: dict[str, list[Features]] = {}
        for batch in track(inputs, "embed for mteb", len(inputs), "step"):
            for kind, embed in (("text", self._texts), ("image", self._pictures)):
                if kind in batch:
                    parts.setdefault(kind, []).append(embed(batch[kind]))
        features: Features = np.sum([np.concatenate(batches) for batches in parts.values()], axis=0)
        require_finite(features, self._under_test.name, "row", [str(row) for row in range(len(features))])
        return features

    def _pictures(self, images: list[Any]) -> Features:
        import torch

        encoder, preparation = raw_encoder(self._under_test), self._under_test.preparation
        if preparation is None:
            raise InputError(f"encoder '{self._under_test.name}' has no image tower: choose a task of texts")
        pixels = torch.from_numpy(np.stack([preparation.fitted(image) for image in images]))
        return encoder.raw_pixels(pixels.permute(0, 3, 1, 2))
