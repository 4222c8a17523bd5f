"""Do similarities of images and captions follow human ratings? (CLIPScore: Hessel et al. 2021, section 4)

Kendall's tau-c of the cosine with experts' ratings from 1 to 4, one row per rating. Captions get the prefix "A photo
depicts", as in the paper. The paper's clamp of negative cosines is omitted: CLIP has none, but encoders with negative
cosines would lose their order.
"""

from __future__ import annotations

import numpy as np

from components.core.tables.records import CAPTION_RATINGS
from components.evaluation.benchmarks.project import on_test_split
from components.evaluation.scoring.benchmark import Correlation, Scores, metrics
from components.evaluation.scoring.context import ProjectContext
from components.evaluation.scoring.protocols.choices import row_cosine

NAME = "caption_ratings"
FILE = "caption_ratings.parquet"
PROMPT = "A photo depicts {caption}"


def score(context: ProjectContext) -> Scores:
    """The correlation over all ratings; its interval is of resampled images."""
    table = context.read(CAPTION_RATINGS, FILE)
    gold = context.rows(table["image_id"].to_pylist(), FILE)
    texts = context.texts([PROMPT.format(caption=caption) for caption in table["caption"].to_pylist()])
    cosines = row_cosine(context.image_features[gold], texts).astype(np.float64)
    correlation = Correlation("tau_c", table["rating"].to_numpy().astype(np.float64), cosines)
    return Scores({}, correlations={f"{NAME}/tau_c": correlation}, pictures={f"{NAME}/tau_c": gold})


BENCHMARK = on_test_split(
    NAME,
    score,
    [FILE],
    metrics("pairs of rows that tie in either column count neither as concordant nor as discordant", "tau_c"),
    key_metrics=(f"{NAME}/tau_c",),
)
