"""How alike the results of a query and of its paraphrase are (Cheng et al. 2024, equations 1 and 2)."""

from __future__ import annotations

from collections.abc import Sequence

from components.core.metrics import (
    Features,
    Indices,
    Reals,
    average_overlap,
    gold_ranks,
    hit_at_k,
    jaccard_similarity,
    top_k,
)


def paraphrase_agreement(
    queries: Features, paraphrases: Features, gallery: Features, gold: Indices, ks: Sequence[int]
) -> dict[str, Reals]:
    """AO@k and JS@k of the two rankings of one gallery, and recall@k of the query's and the paraphrase's own image.

    Ties go to the earlier gallery row in both rankings. Depths beyond the gallery are left out.

    Args:
        queries, paraphrases: `[pairs, dim]`, row by row of the same meaning.
        gallery: `[images, dim]`.
        gold: gallery row of each pair's image `[pairs]`.
        ks: depths.

    Returns:
        `[pairs]` for each metric.
    """
    depths = [k for k in ks if k <= len(gallery)]
    found: dict[str, Reals] = {}
    if depths:
        query_top, paraphrase_top = (top_k(features, gallery, max(depths)) for features in (queries, paraphrases))
        found |= {f"ao_at_{k}": average_overlap(query_top, paraphrase_top, k) for k in depths}
        found |= {f"js_at_{k}": jaccard_similarity(query_top, paraphrase_top, k) for k in depths}
    for name, features in (("query", queries), ("paraphrase", paraphrases)):
        ranks = gold_ranks(features, gallery, gold)
        found |= {f"{name}_recall_at_{k}": hit_at_k(ranks, k) for k in depths}
    return found
