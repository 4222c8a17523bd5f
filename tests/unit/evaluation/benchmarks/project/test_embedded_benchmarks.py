"""Benchmarks on four images whose features are the axes, with values computed by hand; typing errors; key metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein
from scipy.stats import spearmanr

from components.core.compute.metrics import rank_correlation
from components.core.system.errors import InputError
from components.core.tables.records import CAPTION_QUERIES, COMPARISONS, LABELS, SWAPS
from components.core.tables.table import Table
from components.encoders.under_test import EncoderUnderTest
from components.evaluation.benchmarks.project import benchmark_names, find_benchmark, table_files
from components.evaluation.benchmarks.project.rankings import with_typing_errors
from components.evaluation.scoring.benchmark import Scores, key_metrics, tracked_metrics
from components.evaluation.scoring.context import ProjectContext
from components.evaluation.scoring.correlations import correlation_value
from components.evaluation.scoring.results import Folders


@pytest.fixture
def context(stub: Any, vectors: dict[str, Sequence[float]], folders: Folders) -> ProjectContext:
    return ProjectContext(
        EncoderUnderTest("stub", stub(vectors), ""),
        folders.evaluation,
        (1, 2),
        ["a", "b", "c", "d"],
        np.eye(4, dtype=np.float32),
    )


Vectors = dict[str, Sequence[float]]
ROOT = np.sqrt(2)
EXPECTED: dict[str, dict[str, list[float]]] = {
    # Top 2 of query and paraphrase: ab/ba, cd/ac, dc/dc.
    "paraphrased_retrieval": {
        "ao_at_1": [0, 0, 1],
        "ao_at_2": [0.5, 0.25, 1],
        "js_at_2": [1, 1 / 3, 1],
        "paraphrase_recall_at_1": [0, 0, 1],
        "paraphrase_recall_at_2": [1, 1, 1],
        "tier_common/ao_at_2": [0.5, 1],
        "tier_unseen/js_at_2": [1 / 3],
        "held_out_pair/paraphrase_recall_at_1": [1],
        "held_out_scene/ao_at_2": [0.5, 0.25],
    },
    # Image d: "d query" at 0.9 before "c query" at 0.8; only the plain texts are its gallery.
    "retrieval": {"t2i_recall_at_1": [1, 1, 1], "i2t_recall_at_1": [1, 1, 1]},
    # Image c is closer to dog (0.8) than to its own label cat (0.7). "Not a picture of a cat" is farther from the cat
    # than "not a picture of a dog" is, but for image c.
    "zero_shot": {
        "top1": [1, 1, 0],
        "top5": [1, 1, 1],
        "ensemble/top1": [1, 1, 0],
        "semclip/top1_negated": [0, 0, 1],
        "semclip/delta": [1, 1, -1],
    },
    # Corrected, cat is (0.82, 0.26, 1.01, 0) of length 1.33 and dog (0.18, 0.74, 0.79, -0.1) of length 1.10.
    "comparative_prompting": {"top1": [1, 1, 1], "gain": [0, 0, 1]},
    # The third row's captions are the same text: a tie is a failure.
    "swaps": {"relation_accuracy": [1, 1, 0], "attribute_accuracy": [1]},
    # Ranks of a: 4 3 2 1 and 3 4 2 1; of c: 2 1 4 3 and 4 1 3 2; of d the same twice. 1 - 6 sum(d^2) / (4 * 15).
    "ranking_stability": {
        "rank_correlation": [0.8, 0.4, 1],
        "overlap_at_1": [0, 0, 1],
        "overlap_at_2": [1, 0.5, 1],
        "tier_unseen/rank_correlation": [0.4],
    },
    # The ranking of d has c second, that of a has d last.
    "typos": {
        "t2i_recall_at_1": [1, 2 / 3, 1 / 3],
        "worst_t2i_recall_at_1": [1, 0, 0],
        "t2i_recall_at_2": [1, 1, 1 / 3],
    },
    # Image a is nearer to its negation; c's caption and negation are the same vector: a tie is a failure.
    "negations": {
        "original_over_negation": [0, 0, 1],
        "paraphrase_over_negation": [1, 0, 1],
        "caption_top1": [1, 1, 1],
        "paraphrase_top1": [0, 0, 1],
        "cue_no/original_over_negation": [0, 1],
        "cue_not/paraphrase_over_negation": [0],
        "composite": [1 / 3, 1 / 3, 2 / 3],
    },
    # The third pair's sentences are at right angles to the difference: a tie, and a cosine of zero. Of c and d the
    # second is larger: "the first is larger" has the opposite direction of c - d, which is right.
    "differences": {
        "accuracy": [1, 1, 0, 0, 1],
        "sign_accuracy": [1, 0, 0, 0, 1],
        "kind_size/accuracy": [1, 1],
        "kind_size/sign_accuracy": [1, 0],
        "kind_object/accuracy": [0],
        "kind_position/sign_accuracy": [1],
        "size_ordering_accuracy": [1, 1],
    },
    # The first negative is its own paraphrase, the third its own caption: ties are failures.
    "triplets": {
        "i_p1_n": [1, 1, 0, 1],
        "i_p2_n": [0, 1, 0, 1],
        "itt": [0, 1, 0, 1],
        "tot": [0, 1, 0, 1],
        "kind_relation/tot": [0, 1, 0],
        "kind_attribute/itt": [1],
    },
    # Short, half and full: 0.9, 0.8 and 0.95; 0.8, 0.9 and 0.95; 0.9, 0.9 and 0.1; 0.9, 0.8 and 0.9.
    "half_truths": {
        "accuracy": [1, 0, 0, 1],
        "ordered_accuracy": [1, 0, 0, 0],
        "kind_object/accuracy": [1, 0],
        "kind_relation/ordered_accuracy": [0, 0],
    },
    "geometry": {
        "image_difference/distance": [1 - 0.8 / ROOT, 1 + 0.4 / ROOT, 1, 1 + 0.4 / ROOT, 1 - 0.9 / ROOT],
        "paraphrase/alignment": [0.02, 0.86, 0],
        "image/gaussian_potential": [np.exp(-4)] * 3,
    },
}


def _score(name: str, context: ProjectContext, **vectors: Sequence[float]) -> Scores:
    known = context.under_test.encoder.vectors | {text.replace("_", " "): vector for text, vector in vectors.items()}  # type: ignore[attr-defined]
    context.under_test.encoder.vectors = known  # type: ignore[attr-defined]
    return find_benchmark(name).score(context)


def _rewrite(context: ProjectContext, table: Table, file: str, **columns: list[object]) -> None:
    rows = table.read(context.folder / file).to_pydict() | columns
    table.write(context.folder / file, rows)


@pytest.mark.parametrize("name", EXPECTED)
def test_values_by_hand(name: str, context: ProjectContext) -> None:
    values = _score(name, context).values
    for metric, expected in EXPECTED[name].items():
        assert values[f"{name}/{metric}"] == pytest.approx(expected, abs=1e-6), metric


def test_rankings_groups_correlations_and_distances_by_hand(context: ProjectContext) -> None:
    rankings = _score("paraphrased_retrieval", context).rankings
    assert rankings["paraphrased_retrieval/query_top"].tolist() == [[0, 1], [2, 3], [3, 2]]
    assert rankings["paraphrased_retrieval/paraphrase_top"].tolist() == [[1, 0], [0, 2], [3, 2]]
    assert _score("retrieval", context).values["retrieval_alt_text/t2i_recall_at_1"].tolist() == [1]
    groups = _score("swaps", context).strata["swaps/relation_macro_accuracy"]
    assert groups[0] == groups[1] != groups[2]
    scores = _score("caption_ratings", context)
    correlation = scores.correlations["caption_ratings/tau_c"]
    np.testing.assert_allclose(correlation.predicted, [0.1, 0.3, 0.2, 0.9], rtol=1e-6)
    # Of six pairs four are in order, one (0.3 for a 2, 0.2 for a 4) is not, and two fours tie; three distinct ratings.
    assert correlation_value(correlation) == pytest.approx((4 - 1) * 2 / (4**2 * (3 - 1) / 3))
    assert scores.pictures["caption_ratings/tau_c"].tolist() == [0, 0, 1, 2]
    found = {
        metric.removeprefix("text_similarity/"): correlation_value(columns)
        for metric, columns in _score("text_similarity", context).correlations.items()
    }
    # Cosines 0.99, 0.09, 0.17 and 1, shares 1, 0, 0.5 and 0.25: ranks differ by 1, 0, 1 and 2, so 1 - 6 * 6 / (4 * 15).
    assert found == pytest.approx({"spearman": 0.4, "tier_common/spearman": 1, "tier_rare/spearman": -1})
    values = {name.removeprefix("geometry/"): found for name, found in _score("geometry", context).values.items()}
    assert values["image_difference/reverse_distance"][:2] == pytest.approx([1 + 0.8 / ROOT, 1 + 0.8 / ROOT])
    # Captions of a and d differ by (0.9, 0.7, -0.1, -0.9).
    assert values["caption_difference/distance"][0] == pytest.approx(1 - 0.72 / np.sqrt(2.12))
    assert values["caption_difference/reverse_distance"][0] == pytest.approx(1 + 0.72 / np.sqrt(2.12))
    assert values["difference_text/antisymmetry"][:2] == pytest.approx([-0.18, -0.56])
    assert values["image_caption/alignment"][0] == pytest.approx(0.66)


def test_the_best_text_of_an_image_counts_and_absent_kinds_have_no_metric(
    context: ProjectContext,
) -> None:
    columns = {"image_id": ["b", "a", "a"], "text": ["c query", "d query", "a query"], "register": ["plain"] * 3}
    CAPTION_QUERIES.write(context.folder / "caption_queries.parquet", columns)
    values = _score("retrieval", context).values
    # Image a: its better text is the best of all. Image b: its text ties with one and loses to another.
    assert values["retrieval/i2t_recall_at_1"].tolist() == [1, 0]
    assert values["retrieval/t2i_recall_at_1"].tolist() == [0, 0, 1]
    _rewrite(context, COMPARISONS, "comparisons.parquet", kind=["object"] * 5)
    wanted = ("accuracy", "sign_accuracy", "macro_accuracy", "kind_object/accuracy", "kind_object/sign_accuracy")
    assert set(_score("differences", context).values) == {f"differences/{name}" for name in wanted}


def _cats(third: float) -> Vectors:
    return {f"{prefix}_cat": (0.9, 0.2, third, 0.0) for prefix in ("a_photo_of_a", "an_image_of_one")}


@pytest.mark.parametrize(
    ("name", "texts", "metric", "expected"),
    [
        ("zero_shot", _cats(1.0), "top1", [1, 1, 0]),
        ("zero_shot", _cats(1.5), "top1", [1, 1, 0]),
        # Cat's mean is (0.9, 0.2, 0.82), of length 1.23: above dog's 0.8 for image c, but below 0.70 at length 1.
        ("zero_shot", _cats(1.0), "ensemble/top1", [1, 1, 0]),
        ("zero_shot", _cats(1.5), "ensemble/top1", [1, 1, 1]),
        ("negations", {"a_negation": (0, 0, 0, 0)}, "composite", [2 / 3, 0, 1]),
        ("negations", {"a_negation": (0.8, 0.9, 0.1, 0)}, "paraphrase_over_negation", [0, 0, 1]),
        ("differences", {"c_larger_than_d": (0, 0, 0.5, 0.5)}, "size_ordering_accuracy", [1, 0]),
        ("differences", {"c_larger_than_d": (0, 0, 0.5, 0.4)}, "size_ordering_accuracy", [1, 0]),
        ("differences", {"c_larger_than_d": (0, 0, 0.5, 0.6)}, "size_ordering_accuracy", [1, 1]),
        # The two captions' similarity is 1.45; the negative's is 1.49 with the one, or 1.53 with the other.
        ("triplets", {"c_query": (1.65, 0, 0, 0)}, "tot", [0, 0, 0, 1]),
        ("triplets", {"c_query": (0, 1.7, 0, 0)}, "tot", [0, 0, 0, 1]),
        ("geometry", {"a_larger_than_d": (1, 0, 0, 0), "d_larger_than_a": (-1, 0, 0, 0)},
         "difference_text/antisymmetry", [1, -0.56, -0.5, -0.09, 0]),
    ],
)  # fmt: skip
def test_changed_texts_change_values(
    context: ProjectContext, name: str, texts: Vectors, metric: str, expected: list[float]
) -> None:
    assert _score(name, context, **texts).values[f"{name}/{metric}"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", benchmark_names())
def test_every_metric_is_declared_and_has_a_picture_for_each_query(name: str, context: ProjectContext) -> None:
    benchmark = find_benchmark(name)
    scores = benchmark.score(context)
    declared = {benchmark.metric(metric).name for metric in (*scores.values, *scores.correlations)}
    # Only a test set that a model wrote has mixed swaps.
    written = {"mixed_accuracy"} if name == "swaps" else set()
    assert declared | written == {metric.name for metric in benchmark.metrics}
    rows = {metric: len(values) for metric, values in scores.values.items()}
    rows |= {metric: len(columns.gold) for metric, columns in scores.correlations.items()}
    for metric, pictures in scores.pictures.items():
        assert pictures.shape in {(rows[metric],), (rows[metric], 2)}


def test_missing_tables_are_named(folders: Folders) -> None:
    for name in benchmark_names():
        benchmark = find_benchmark(name)
        for need in benchmark.needs:
            path = folders.evaluation / need.path
            content = path.read_bytes()
            path.unlink()
            message = f"{path.name} is missing, benchmark '{name}' requires it.*remove '{name}' from evaluate.benchmark"
            with pytest.raises(InputError, match=message):
                table_files([benchmark], folders.evaluation)
            path.write_bytes(content)


def test_a_text_is_embedded_once_and_queries_about_one_picture_name_it(context: ProjectContext) -> None:
    for name in benchmark_names():
        find_benchmark(name).score(context)
    asked = context.under_test.encoder.asked  # type: ignore[attr-defined]
    assert len(asked) == len(set(asked)) == 44
    pictures: dict[str, dict[str, list[object]]] = {}
    for name in benchmark_names():
        found = _score(name, context).pictures.items()
        pictures[name] = {metric.removeprefix(f"{name}/"): rows.tolist() for metric, rows in found}
    assert pictures["swaps"] == {"relation_accuracy": [0, 0, 2], "relation_macro_accuracy": [0, 0, 2]}
    assert (pictures["triplets"]["tot"], pictures["triplets"]["kind_relation/itt"]) == ([0, 0, 2, 3], [0, 0, 2])
    assert pictures["paraphrased_retrieval"] == pictures["negations"] == pictures["zero_shot"] == {}
    pairs = [[0, 3], [2, 3], [0, 2], [2, 0], [3, 0]]
    assert pictures["differences"]["macro_accuracy"] == pictures["geometry"]["image_difference/distance"] == pairs
    assert pictures["differences"]["size_ordering_accuracy"] == pairs[:2]


@pytest.mark.parametrize(
    ("name", "table", "file", "columns", "message"),
    [
        ("zero_shot", LABELS, "labels", {"image_id": ["a", "z", "b"]},
         "labels.parquet: row 1 names image 'z', not in the test split"),
        ("zero_shot", LABELS, "labels", {"image_id": [], "label": []}, "labels.parquet has no rows"),
        ("triplets", SWAPS, "swaps", {"image_id": ["a", "b", "c", "d"]},
         "swaps.parquet: row 1 names image 'b', which paraphrase_queries.parquet"),
        ("geometry", COMPARISONS, "comparisons", {"second_id": ["d", "d", "b", "a", "a"]},
         "comparisons.parquet: row 2 names image 'b', which paraphrase_queries"),
        ("differences", COMPARISONS, "comparisons", {"kind": ["colour"] * 5},
         "comparisons.parquet: kind 'colour' is unknown: use one of"),
        ("differences", COMPARISONS, "comparisons", {"answer": ["third"] * 5},
         "comparisons.parquet: answer 'third' is unknown: use one of"),
    ],
)  # fmt: skip
def test_bad_tables_are_named(
    context: ProjectContext, name: str, table: Table, file: str, columns: dict[str, list[object]], message: str
) -> None:
    _rewrite(context, table, f"{file}.parquet", **columns)
    with pytest.raises(InputError, match=message):
        _score(name, context)


def test_wrong_benchmarks_lists_and_encoders_are_named(context: ProjectContext, stub: Any, folders: Folders) -> None:
    with pytest.raises(InputError, match=r"'swap'.*paraphrased_retrieval, .*, swaps, text_similarity, triplets, typos"):
        find_benchmark("swap")
    with pytest.raises(InputError, match="'c query' a non-finite feature"):
        _score("retrieval", context, c_query=(np.nan, 0, 0, 0))
    with pytest.raises(InputError, match=r"evaluate.top_k has 5, but the test split has only 4 images"):
        ProjectContext(EncoderUnderTest("stub", stub({}), ""), folders.evaluation, (1, 5), [*"abcd"], np.eye(4))


WRITTEN = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).filter(lambda text: bool(text.strip()))


@given(WRITTEN, st.integers(1, 12))
def test_every_error_changes_one_character_and_errors_differ(text: str, count: int) -> None:
    found = with_typing_errors(text, count)
    assert len(set(found)) == len(found) == count
    assert {Levenshtein.distance(text, one) for one in found} == {1}
    assert found == with_typing_errors(text, count)


def test_errors_insert_drop_and_replace_and_spaces_have_none() -> None:
    text = "a cat on a mat"
    assert {len(one) - len(text) for one in with_typing_errors(text, 30)} == {-1, 0, 1}
    with pytest.raises(ValueError, match="a text of spaces"):
        with_typing_errors("  ", 1)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 40))
def test_rank_correlation_is_scipys(seed: int, items: int) -> None:
    rng = np.random.default_rng(seed)
    # Small whole numbers, so that many images are equally similar.
    one, other = rng.integers(-2, 3, (2, 5, 3)).astype(np.float32)
    gallery = rng.integers(-2, 3, (items, 3)).astype(np.float32)
    found = rank_correlation(one, other, gallery)
    for row in range(5):
        similarity = gallery @ one[row], gallery @ other[row]
        if all(np.ptp(values) > 0 for values in similarity):
            assert found[row] == pytest.approx(spearmanr(*similarity).statistic)
        else:
            assert found[row] == 0


PAIRED = [find_benchmark("paraphrased_retrieval")]


def test_key_metrics_are_those_at_the_nearest_depth_and_runs_get_them() -> None:
    measured = [f"paraphrased_retrieval/{name}_at_{k}" for name in ("ao", "js") for k in (1, 8, 50)]
    assert key_metrics(PAIRED, measured) == ["paraphrased_retrieval/ao_at_8", "paraphrased_retrieval/js_at_8"]
    assert key_metrics(PAIRED, ["zero_shot/top1"]) == []
    paired = [f"paraphrased_retrieval/{name}" for name in ("ao_at_1", "ao_at_10", "tier_rare/ao_at_10")]
    assert tracked_metrics(PAIRED, [*paired, "zero_shot/top5"]) == [paired[1], "zero_shot/top5"]
