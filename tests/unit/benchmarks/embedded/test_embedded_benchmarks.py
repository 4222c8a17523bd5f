from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from components.benchmarks.embedded import benchmark_names, find_benchmark, table_files
from components.benchmarks.scoring.bootstrap import correlation_value
from components.benchmarks.scoring.encoding.context import EmbeddedContext, EncoderUnderTest
from components.core.system.errors import InputError
from components.core.tables.records import CAPTION_QUERIES, LABELS
from components.evaluation.results import Folders

Vectors = dict[str, Sequence[float]]
RANGES = {"geometry": (-1, 4), "ranking_stability": (-1, 1), "zero_shot": (-1, 1), "comparative_prompting": (-1, 1)}
"""Values of benchmarks that are no shares: distances and their squares, correlations."""


def test_paraphrased_retrieval_by_hand(context: EmbeddedContext) -> None:
    values = find_benchmark("paraphrased_retrieval").score(context).values
    # Top 2 of query and paraphrase: ab/ba, cd/ac, dc/dc.
    assert values["paraphrased_retrieval/ao_at_1"] == pytest.approx([0, 0, 1])
    assert values["paraphrased_retrieval/ao_at_2"] == pytest.approx([0.5, 0.25, 1])
    assert values["paraphrased_retrieval/js_at_2"] == pytest.approx([1, 1 / 3, 1])
    assert values["paraphrased_retrieval/paraphrase_recall_at_1"] == pytest.approx([0, 0, 1])
    assert values["paraphrased_retrieval/paraphrase_recall_at_2"] == pytest.approx([1, 1, 1])
    assert values["paraphrased_retrieval/tier_common/ao_at_2"] == pytest.approx([0.5, 1])
    assert values["paraphrased_retrieval/tier_unseen/js_at_2"] == pytest.approx([1 / 3])
    assert values["paraphrased_retrieval/held_out_pair/paraphrase_recall_at_1"] == pytest.approx([1])
    assert values["paraphrased_retrieval/held_out_scene/ao_at_2"] == pytest.approx([0.5, 0.25])


def test_paraphrased_retrieval_keeps_both_rankings(context: EmbeddedContext) -> None:
    rankings = find_benchmark("paraphrased_retrieval").score(context).rankings
    assert rankings["paraphrased_retrieval/query_top"].tolist() == [[0, 1], [2, 3], [3, 2]]
    assert rankings["paraphrased_retrieval/paraphrase_top"].tolist() == [[1, 0], [0, 2], [3, 2]]


def test_retrieval_by_hand(context: EmbeddedContext) -> None:
    values = find_benchmark("retrieval").score(context).values
    assert values["retrieval/t2i_recall_at_1"].tolist() == [1, 1, 1]
    assert values["retrieval_alt_text/t2i_recall_at_1"].tolist() == [1]
    # Image d: "d query" at 0.9 before "c query" at 0.8; the plain texts alone are its gallery.
    assert values["retrieval/i2t_recall_at_1"].tolist() == [1, 1, 1]
    assert len(values) == 8


def test_an_image_is_found_by_its_best_text(context: EmbeddedContext) -> None:
    rows = [("b", "c query"), ("a", "d query"), ("a", "a query")]
    columns: dict[str, list[object]] = {
        "image_id": [image for image, _ in rows],
        "text": [text for _, text in rows],
        "register": ["plain"] * 3,
    }
    CAPTION_QUERIES.write(context.folder / "caption_queries.parquet", columns)
    values = find_benchmark("retrieval").score(context).values
    # Image a: its better text is the best of all. Image b: its text ties with one and loses to another.
    assert values["retrieval/i2t_recall_at_1"].tolist() == [1, 0]
    assert values["retrieval/t2i_recall_at_1"].tolist() == [0, 0, 1]


def test_zero_shot_by_hand(context: EmbeddedContext) -> None:
    values = find_benchmark("zero_shot").score(context).values
    # Image c is closer to dog (0.8) than to its own label cat (0.7).
    assert values["zero_shot/top1"].tolist() == [1, 1, 0]
    assert values["zero_shot/top5"].tolist() == [1, 1, 1]
    assert values["zero_shot/ensemble/top1"].tolist() == [1, 1, 0]
    # "Not a picture of a cat" is farther from the cat than "not a picture of a dog" is, but for image c.
    assert values["zero_shot/semclip/top1_negated"].tolist() == [0, 0, 1]
    assert values["zero_shot/semclip/delta"].tolist() == [1, 1, -1]


def test_comparative_prompting_by_hand(context: EmbeddedContext) -> None:
    values = find_benchmark("comparative_prompting").score(context).values
    # Corrected, cat is (0.82, 0.26, 1.01, 0) of length 1.33 and dog (0.18, 0.74, 0.79, -0.1) of length 1.10.
    assert values["comparative_prompting/top1"].tolist() == [1, 1, 1]
    assert values["comparative_prompting/gain"].tolist() == [0, 0, 1]


@pytest.mark.parametrize(("third", "hit"), [(1.0, 0), (1.5, 1)])
def test_the_ensemble_is_a_renormalised_mean(
    context: EmbeddedContext, vectors: Vectors, third: float, hit: int
) -> None:
    vectors |= {f"{prefix} cat": (0.9, 0.2, third, 0.0) for prefix in ("a photo of a", "an image of one")}
    context.under_test.encoder.vectors = vectors  # type: ignore[attr-defined]
    values = find_benchmark("zero_shot").score(context).values
    assert values["zero_shot/top1"].tolist() == [1, 1, 0]
    # Cat's mean is (0.9, 0.2, 0.82), of length 1.23: above dog's 0.8 for image c, but below 0.70 at length 1.
    assert values["zero_shot/ensemble/top1"].tolist() == [1, 1, hit]


def test_swaps_by_hand(context: EmbeddedContext) -> None:
    scores = find_benchmark("swaps").score(context)
    # The third row's captions are the same text: a tie is a failure.
    assert scores.values["swaps/relation_accuracy"].tolist() == [1, 1, 0]
    assert scores.values["swaps/attribute_accuracy"].tolist() == [1]
    groups = scores.strata["swaps/relation_macro_accuracy"]
    assert groups[0] == groups[1] != groups[2]


def test_caption_ratings_by_hand(context: EmbeddedContext) -> None:
    scores = find_benchmark("caption_ratings").score(context)
    correlation = scores.correlations["caption_ratings/tau_c"]
    np.testing.assert_allclose(correlation.predicted, [0.1, 0.3, 0.2, 0.9], rtol=1e-6)
    # Of six pairs four are in order, one (0.3 for a 2, 0.2 for a 4) is not, and two fours tie; three distinct ratings.
    assert correlation_value(correlation) == pytest.approx((4 - 1) * 2 / (4**2 * (3 - 1) / 3))
    assert scores.pictures["caption_ratings/tau_c"].tolist() == [0, 0, 1, 2]


def test_ranking_stability_by_hand(context: EmbeddedContext) -> None:
    values = find_benchmark("ranking_stability").score(context).values
    # Ranks of a: 4 3 2 1 and 3 4 2 1; of c: 2 1 4 3 and 4 1 3 2; of d the same twice. 1 - 6 sum(d^2) / (4 * 15).
    assert values["ranking_stability/rank_correlation"] == pytest.approx([0.8, 0.4, 1])
    assert values["ranking_stability/overlap_at_1"].tolist() == [0, 0, 1]
    assert values["ranking_stability/overlap_at_2"].tolist() == [1, 0.5, 1]
    assert values["ranking_stability/tier_unseen/rank_correlation"] == pytest.approx([0.4])


def test_typos_by_hand(context: EmbeddedContext) -> None:
    values = find_benchmark("typos").score(context).values
    assert values["typos/t2i_recall_at_1"] == pytest.approx([1, 2 / 3, 1 / 3])
    assert values["typos/worst_t2i_recall_at_1"].tolist() == [1, 0, 0]
    # d's ranking holds c second, a's holds d last.
    assert values["typos/t2i_recall_at_2"] == pytest.approx([1, 1, 1 / 3])


@pytest.mark.parametrize("name", benchmark_names())
def test_every_value_is_declared_per_query_and_has_its_pictures(name: str, context: EmbeddedContext) -> None:
    benchmark = find_benchmark(name)
    scores = benchmark.score(context)
    assert benchmark.name == name
    found = {benchmark.metric(metric).name for metric in (*scores.values, *scores.correlations)}
    assert found == {metric.name for metric in benchmark.metrics}
    for values in scores.values.values():
        assert values.ndim == 1
        assert values.dtype == np.float64
        low, high = RANGES.get(name, (0, 1))
        assert ((values >= low) & (values <= high)).all()

    rows = {metric: len(values) for metric, values in scores.values.items()}
    rows |= {metric: len(found.gold) for metric, found in scores.correlations.items()}
    for metric, pictures in scores.pictures.items():
        assert pictures.shape in {(rows[metric],), (rows[metric], 2)}


def test_queries_about_one_picture_are_known_by_it(context: EmbeddedContext) -> None:
    def pictures(name: str) -> dict[str, list[object]]:
        return {metric: found.tolist() for metric, found in find_benchmark(name).score(context).pictures.items()}

    swaps = {"swaps/relation_accuracy": [0, 0, 2], "swaps/relation_macro_accuracy": [0, 0, 2]}
    assert pictures("swaps") == swaps
    found = pictures("triplets")
    assert (found["triplets/tot"], found["triplets/kind_relation/itt"]) == ([0, 0, 2, 3], [0, 0, 2])
    assert pictures("paraphrased_retrieval") == pictures("negations") == pictures("zero_shot") == {}
    pairs = [[0, 3], [2, 3], [0, 2], [2, 0], [3, 0]]
    found = pictures("differences")
    assert found["differences/macro_accuracy"] == found["differences/sign_accuracy"] == pairs
    assert found["differences/size_ordering_accuracy"] == pairs[:2]
    assert pictures("geometry")["geometry/image_difference/distance"] == pairs


def test_missing_tables_are_named(folders: Folders) -> None:
    for name in benchmark_names():
        benchmark = find_benchmark(name)
        for need in benchmark.needs:
            path = folders.evaluation / need.path
            content = path.read_bytes()
            path.unlink()
            message = (
                f"{path.name} is missing, benchmark '{name}' requires it.*remove '{name}' from evaluate.benchmarks"
            )
            with pytest.raises(InputError, match=message):
                table_files([benchmark], folders.evaluation)
            path.write_bytes(content)


def test_an_unknown_benchmark_lists_the_known() -> None:
    with pytest.raises(
        InputError,
        match=r"'swap'.*paraphrased_retrieval, .*, swaps, text_similarity, triplets, typos, zero_shot",
    ):
        find_benchmark("swap")


def test_a_text_is_embedded_once(context: EmbeddedContext) -> None:
    for name in benchmark_names():
        find_benchmark(name).score(context)
    asked = context.under_test.encoder.asked  # type: ignore[attr-defined]
    assert len(asked) == len(set(asked)) == 44


def test_an_unknown_image_is_named(context: EmbeddedContext) -> None:
    LABELS.write(context.folder / "labels.parquet", {"image_id": ["a", "z"], "label": ["cat", "dog"]})
    with pytest.raises(InputError, match=r"labels.parquet: row 1 names image 'z'"):
        find_benchmark("zero_shot").score(context)


def test_an_empty_table_is_named(context: EmbeddedContext) -> None:
    LABELS.write(context.folder / "labels.parquet", {"image_id": [], "label": []})
    with pytest.raises(InputError, match=r"labels.parquet has no rows"):
        find_benchmark("zero_shot").score(context)


def test_a_broken_encoder_is_noticed(context: EmbeddedContext, vectors: Vectors) -> None:
    vectors["c query"] = (np.nan, 0, 0, 0)
    context.under_test.encoder.vectors = vectors  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="'c query' a non-finite feature"):
        find_benchmark("retrieval").score(context)


def test_a_depth_beyond_the_gallery_is_refused(stub: Any, folders: Folders) -> None:
    with pytest.raises(InputError, match=r"evaluate.top_k has 5, but the test split has only 4 images"):
        EmbeddedContext(
            EncoderUnderTest("stub", stub({}), ""),
            folders.evaluation,
            (1, 5),
            ["a", "b", "c", "d"],
            np.eye(4, dtype=np.float32),
        )
