"""Score an encoder by any benchmark: those of the synthetic dataset on 40 drawn scenes, those of papers on their files.

    python docs/examples/benchmark.py swaps               # without a name: which benchmarks there are
    python docs/examples/benchmark.py sugar_crepe         # which files it needs, and how it scores

A benchmark declares the files that it needs and its metrics, and scores an encoder that it is given.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from components.core.settings import Counts, Settings, load_settings
from components.data.sources import find_source
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.model_configs import model_config
from components.encoders.under_test import EncoderUnderTest
from components.evaluation.benchmarks.project import benchmark_names, find_benchmark
from components.evaluation.benchmarks.published import published_benchmarks
from components.evaluation.scoring.context import ProjectContext
from components.evaluation.scoring.results import summarise

SCENES = 40


def context(settings: Settings, folder: Path) -> ProjectContext:
    """A small encoder of random weights before 40 scenes, whose questions are written into `folder`."""
    source = find_source("synthetic")
    scenes = [pair for pair in source.pairs(settings) if pair.split == "test"]
    for name, (table, rows) in source.evaluation(settings, scenes).items():
        table.write(folder / f"{name}.parquet", rows)
    torch.manual_seed(0)
    encoder = Encoder.create("small", "cliptune-tiny", model_config("cliptune-tiny"), "clip")
    features = encoder.embed_images([scene.image.raw or b"" for scene in scenes])
    under_test = EncoderUnderTest("small", encoder, "random weights")
    return ProjectContext(under_test, folder, settings.evaluate.top_k, [scene.image_id for scene in scenes], features)


def main(name: str) -> dict[str, float]:
    """Score; returns the metrics, none where a paper's files are needed, which are listed."""
    papers = published_benchmarks()
    found = papers[name] if name in papers else find_benchmark(name)
    print(f"{found.name}, version {found.version}. {found.citation}")
    for metric in found.metrics:
        print(f"  {metric.name}: {'higher' if metric.higher_is_better else 'lower'} is better; {metric.ties}")
    if name in papers:
        print(*(f"reads {found.folder}/{need.description}" for need in found.needs), sep="\n")
        return {}
    settings = load_settings()
    few = settings.prepare.model_copy(update={"counts": Counts(train=1, val=1, test=SCENES)})
    with TemporaryDirectory() as folder:
        before = context(settings.model_copy(update={"prepare": few}), Path(folder))
        if missing := found.missing(Path(folder)):
            print(*(f"the synthetic dataset has no {need.path}" for need in missing), sep="\n")
            return {}
        results = summarise(found, found.score(before), settings.evaluate.bootstrap, settings.evaluate.seed)
    for metric, result in results.items():
        low, high = result.span
        print(f"{metric} {100 * result.value:.1f} ({100 * low:.1f} to {100 * high:.1f})")
    return {metric: result.value for metric, result in results.items()}


if __name__ == "__main__":
    main(sys.argv[1]) if sys.argv[1:] else print(*benchmark_names(), *published_benchmarks(), sep="\n")
