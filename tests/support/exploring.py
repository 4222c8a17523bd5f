"""Two encoders with one image tower before an index of twelve small pictures, as the explorer shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from components.captions.generating.questions import ParaphraseWriter
from components.core.settings import Settings
from components.core.tables.records import PARAPHRASE_QUERIES
from components.encoders.adapter.encoder import Encoder
from components.encoders.under_test import EncoderUnderTest
from components.evaluation.benchmarks.project.rankings import PARAPHRASED
from components.evaluation.scoring.benchmark import Scores
from components.evaluation.scoring.context import QUERIES_FILE
from components.evaluation.scoring.results import Folders, Report, Result, write_results
from components.registry.encoder_lookup import encoder_under_test
from components.serving.explorer.comparing import Explorer
from components.serving.explorer.server import Explored
from components.serving.index.building import build
from components.serving.index.image_index import ImageIndex
from components.serving.index.sources import find_source
from tests.support.evaluation_fixtures import write_rows

PICTURES = 12
HOSTILE = '<img src=x onerror="document.title=1">'
"""A caption that would be HTML where it is not escaped."""


def under_test(encoder: Encoder, name: str, seed: int | None = None) -> EncoderUnderTest:
    """The encoder under a name; with a seed, with a newly drawn text tower."""
    made = Encoder(deepcopy(encoder.model), encoder.sidecar, encoder.tokenizer)
    if seed is not None:
        torch.manual_seed(seed)
        with torch.no_grad():
            for part, weights in made.model.named_parameters():
                if not part.startswith("visual.") and weights.ndim > 1:
                    weights.copy_(torch.randn_like(weights) / weights.shape[-1] ** 0.5)
    made.sidecar = encoder.sidecar.model_copy(update={"name": name, "weights_sha256": f"weights of {name}"})
    return encoder_under_test(name, made)


def make_explored(folder: Path, settings: Settings, encoder: Encoder) -> Explored:
    """The explorer of encoders `base` and `tuned`."""
    pictures = folder / "pictures"
    pictures.mkdir()
    lines = ["image\tcaption\tgroup\tsplit"]
    for number in range(PICTURES):
        shade = 20 * number
        Image.new("RGB", (24, 16), (shade, 255 - shade, 40 * (number % 6))).save(pictures / f"{number:02d}.png")
        animal, group, split = ("dog", "odd", "train") if number % 2 else ("cat", "even", "test")
        caption = HOSTILE if number == 0 else f"picture {number} of a {animal}"
        lines.append(f"{number:02d}.png\t{caption}\t{group}\t{split}")
    (pictures / "captions.tsv").write_text("\n".join(lines) + "\n")
    encoders = [under_test(encoder, "base"), under_test(encoder, "tuned", seed=5)]
    build(folder / "index", find_source("folder").open(str(pictures), encoders[0], settings.prepare), "exact")
    explorer = Explorer(ImageIndex.open(folder / "index"), encoders)
    places = Folders(*(folder / name for name in ("models", "pairs", "embeddings", "evaluation", "reports")))
    return Explored(explorer, settings, ParaphraseWriter(settings), places)


Texts = Sequence[tuple[str, str]]


def write_evaluation(
    folders: Folders, queries: Texts, tiers: Sequence[str], depth: int, values: Mapping[str, Sequence[float]]
) -> None:
    """The evaluation of encoders whose AO of each query and paraphrase is given."""
    rows = [("i", *texts, tier, "scene") for texts, tier in zip(queries, tiers, strict=True)]
    write_rows(PARAPHRASE_QUERIES, folders.evaluation / QUERIES_FILE, rows)
    metric = f"{PARAPHRASED}/ao_at_{depth}"
    for name, found in values.items():
        results = {metric: Result(value=float(np.mean(found)), ci95=(0.0, 1.0), higher_is_better=True)}
        facts = {"encoder": name, "protocol": "p=1", "data_hash": "d", "encoder_sha256": f"weights of {name}"}
        report = Report(**facts, metrics=results)
        write_results(report, Scores({metric: np.array(found)}), folders.metrics, folders.per_query)
