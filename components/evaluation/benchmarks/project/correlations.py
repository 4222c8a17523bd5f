"""Do similarities follow the scores of people or of facts?"""

from __future__ import annotations

import numpy as np

from components.core.tables.records import CAPTION_RATINGS, TEXT_PAIRS
from components.evaluation.benchmarks.project import on_test_split
from components.evaluation.scoring.benchmark import Correlation, Scores, metrics
from components.evaluation.scoring.context import ProjectContext
from components.evaluation.scoring.protocols.choices import row_cosine
from components.evaluation.scoring.protocols.retrieval import pair_cosines

RATINGS_FILE, PAIRS_FILE = "caption_ratings.parquet", "text_pairs.parquet"
PROMPT = "A photo depicts {caption}"


def score_ratings(context: ProjectContext) -> Scores:
    """Do similarities of images and captions follow human ratings? (CLIPScore: Hessel et al. 2021, section 4)

    Kendall's tau-c of the cosine with experts' ratings from 1 to 4, one row per rating; its interval is of resampled
    images. Captions get the prefix "A photo depicts", as in the paper. The paper's clamp of negative cosines is
    omitted: CLIP has none, but encoders with negative cosines would lose their order.
    """
    table, gold = context.read_shown(CAPTION_RATINGS, RATINGS_FILE)
    texts = context.texts([PROMPT.format(caption=caption) for caption in table["caption"].to_pylist()])
    cosines = row_cosine(context.image_features[gold], texts).astype(np.float64)
    correlation = Correlation("tau_c", table["rating"].to_numpy().astype(np.float64), cosines)
    name = "caption_ratings/tau_c"
    return Scores({}, correlations={name: correlation}, pictures={name: gold})


def score_text_pairs(context: ProjectContext) -> Scores:
    """Are two sentences as similar as their meanings? (semantic textual similarity, as in ParaCLIP's table 1)

    Spearman's correlation of the cosine of two sentences with the share of facts that they have in common, over all
    pairs and per tier of the hardest word of either. STS has human scores; synthetic scenes have facts: objects, their
    sizes, place, count and the background. Pairs are of different scenes and so independent.
    """
    table = context.read(TEXT_PAIRS, PAIRS_FILE)
    first, second = context.columns(table, "sentence", "other_sentence")
    cosines, gold = pair_cosines(first, second), table["shared"].to_numpy().astype(np.float64)
    tiers = np.array(table["tier"].to_pylist())
    chosen = {"": np.ones(len(gold), dtype=np.bool_)} | {
        f"tier_{tier}/": tiers == tier for tier in dict.fromkeys(tiers)
    }
    columns = {group: Correlation("spearman", gold[rows], cosines[rows]) for group, rows in chosen.items()}
    return Scores({}, correlations={f"text_similarity/{group}spearman": column for group, column in columns.items()})


TABLE_BENCHMARKS = (
    on_test_split(
        name="caption_ratings",
        score=score_ratings,
        files=[RATINGS_FILE],
        metrics=metrics(
            "pairs of rows that tie in either column count neither as concordant nor as discordant", "tau_c"
        ),
        key_metrics=("caption_ratings/tau_c",),
    ),
    on_test_split(
        name="text_similarity",
        score=score_text_pairs,
        files=[PAIRS_FILE],
        metrics=metrics("similarities equal to six decimals share the mean of their ranks", "spearman"),
        key_metrics=("text_similarity/spearman",),
    ),
)
