"""Retrieval of images by texts, agreement of queries with paraphrases, and similarity of sentence pairs, on features.

Images may have several captions, as on Karpathy's splits. Agreement of the results of a query and its paraphrase
follows Cheng et al. 2024, equations 1 and 2; an expanded query is the mean of its own and its expansions' features
(equation 5). Correlation of cosines with human scores of sentence pairs follows SimCSE, section 6 and appendix B.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from components.core.compute.devices import FeatureGallery, Values, library, placed, taken
from components.core.compute.metrics import (
    BLOCK,
    Features,
    Indices,
    Reals,
    average_overlap,
    finite,
    gold_ranks,
    hit_at_k,
    in_blocks,
    jaccard_similarity,
    top_k,
)
from components.evaluation.scoring.benchmark import Correlation
from components.evaluation.scoring.correlations import correlation_value

TIES = "the earlier gallery row first, images sorted by name"
SUMMED = (1, 5, 10)
"""Depths of mean recall and RSUM, in both directions."""
_DECIMALS = 6
"""Of a cosine: features have single precision, so further decimals are noise."""
WAYS = ("text_to_image", "image_to_text")


def best_gold_ranks(queries: Features, gallery: Features, owners: Indices) -> Indices:
    """Rank `[queries]` of the best gold row of each query, 0 being the first; ties go to the earlier gallery row.

    `owners` `[items]` is the query whose gold item each gallery row is; every query has at least one.
    """
    finite(queries, gallery)
    against = FeatureGallery(np.ascontiguousarray(gallery.T).T)

    def ranks(rows: slice) -> Values:
        similarity = against.similarities(queries[rows])
        numbers, owner, positions = (
            placed(values, against.device)
            for values in (np.arange(len(queries))[rows, None], owners, np.arange(len(gallery)))
        )
        own = library(similarity).where(owner == numbers, similarity, -np.inf)
        best = own.argmax(axis=1)[:, None]
        reference = taken(similarity, best)
        return ((similarity > reference) | ((similarity == reference) & (positions < best))).sum(axis=1)

    return in_blocks(len(queries), against, ranks, BLOCK)


def caption_recalls(images: Features, captions: Features, owners: Indices, ks: Sequence[int]) -> dict[str, Reals]:
    """`<direction>/recall_at_k`: the share of queries with a gold item among the first k (hit rate).

    Values are `[captions]` for text to image, `[images]` for image to text; `owners` is each caption's image.
    """
    ranks = dict(
        zip(WAYS, (gold_ranks(captions, images, owners), best_gold_ranks(images, captions, owners)), strict=True)
    )
    return {f"{way}/recall_at_{k}": hit_at_k(ranks[way], k) for way in WAYS for k in ks}


def recall_sum(recalls: Mapping[str, Reals]) -> float:
    """RSUM: the sum of recall at 1, 5 and 10 in both directions, as shares, so a hundredth of the papers' figures."""
    finite(*recalls.values())
    return float(sum(recalls[f"{way}/recall_at_{k}"].mean() for way in WAYS for k in SUMMED))


def paraphrase_agreement(
    queries: Features, paraphrases: Features, gallery: Features, gold: Indices, ks: Sequence[int]
) -> dict[str, Reals]:
    """AO@k and JS@k of the two rankings of one gallery, and recall@k of the query's and the paraphrase's image.

    Queries and paraphrases `[pairs, dim]` have the same meaning row by row; `gold` is the gallery row of each pair's
    image. Ties go to the earlier gallery row in both rankings. Depths beyond the gallery are skipped.
    """
    depths = [k for k in ks if k <= len(gallery)]
    scores: dict[str, Reals] = {}
    if depths:
        query_top, paraphrase_top = (top_k(features, gallery, max(depths)) for features in (queries, paraphrases))
        scores |= {f"ao_at_{k}": average_overlap(query_top, paraphrase_top, k) for k in depths}
        scores |= {f"js_at_{k}": jaccard_similarity(query_top, paraphrase_top, k) for k in depths}
    for name, features in (("query", queries), ("paraphrase", paraphrases)):
        ranks = gold_ranks(features, gallery, gold)
        scores |= {f"{name}_recall_at_{k}": hit_at_k(ranks, k) for k in depths}
    return scores


_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


def averaged(features: Features, owners: Indices, queries: int) -> Features:
    """Mean feature `[queries, dim]` of each query and its expansions, as a unit vector (equation 5).

    `owners` is the query that each text of `features` `[texts, dim]` belongs to, at least one for every query. The sum
    is enough, because a cosine does not depend on length.
    """
    finite(features)
    sums = np.zeros((queries, features.shape[1]), dtype=np.float64)
    np.add.at(sums, owners, features)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.asarray(sums / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def synonym_expansions(
    query: str, synonyms: Callable[[str], list[str]], stop_words: Collection[str], count: int, seed: int
) -> list[str]:
    """Up to `count` copies of `query`, each with one word replaced by a synonym; stop words are kept.

    The paper does not state which word and synonym: they are drawn without repetition from all pairs, by a generator
    that depends only on the seed and the query. `synonyms` and `stop_words` are of words in lower case.
    """
    words = [word for word in _WORD.finditer(query) if word.group().lower() not in stop_words]
    pairs = [(word, other) for word in words for other in synonyms(word.group().lower())]
    generator = np.random.default_rng([seed, *query.encode("utf-8")])
    drawn = [pairs[number] for number in generator.permutation(len(pairs))]
    changed = dict.fromkeys(query[: word.start()] + other + query[word.end() :] for word, other in drawn)
    return list(changed)[:count]


def pair_cosines(first: Features, second: Features) -> Reals:
    """Cosine `[pairs]` of each row of `first` with that of `second`, both `[pairs, dim]`; 0 if one is the zero vector.

    Rounded to six decimals. Many pairs of STS 2012's translations are the same sentence twice: unrounded, noise would
    rank them, and a subset's Spearman would move by 0.001 from one batch size to another, as in the released code.
    """
    finite(first, second)
    left, right = first.astype(np.float64), second.astype(np.float64)
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    cosines = np.zeros(len(lengths))
    np.divide(np.einsum("nd,nd->n", left, right), lengths, out=cosines, where=lengths > 0)
    return cosines.round(_DECIMALS)


def spearman_by_subset(benchmark: str, subsets: Mapping[str, tuple[Reals, Reals]]) -> dict[str, Correlation]:
    """Spearman columns of each subset and of all pairs pooled, "all" in SimCSE's appendix B.

    `subsets` has the gold and the predicted similarities of each, `[pairs]`.
    """
    gold = np.concatenate([one for one, _ in subsets.values()])
    predicted = np.concatenate([one for _, one in subsets.values()])
    finite(gold, predicted)
    return {f"{benchmark}/all/spearman": Correlation("spearman", gold, predicted)} | {
        f"{benchmark}/{name}/spearman": Correlation("spearman", *columns) for name, columns in subsets.items()
    }


def mean_spearman(benchmark: str, subsets: Mapping[str, tuple[Reals, Reals]]) -> dict[str, float]:
    """Mean over subsets of their Spearman correlations, plain and weighted by pairs: SentEval's own aggregations."""
    values = [correlation_value(Correlation("spearman", *columns)) for columns in subsets.values()]
    return {
        f"{benchmark}/mean/spearman": float(np.mean(values)),
        f"{benchmark}/wmean/spearman": float(np.average(values, weights=[len(gold) for gold, _ in subsets.values()])),
    }
