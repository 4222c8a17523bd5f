"""Benchmarks of sentences about pictures, on the four images whose features are the axes, by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from components.benchmarks.embedded import find_benchmark
from components.benchmarks.scoring.benchmark import Scores
from components.benchmarks.scoring.bootstrap import correlation_value
from components.benchmarks.scoring.encoding.context import EmbeddedContext
from components.benchmarks.scoring.protocols.choices import composite_score
from components.benchmarks.scoring.protocols.geometry import gaussian_potential
from components.core.system.errors import InputError
from components.core.tables.records import COMPARISONS, SWAPS
from components.core.tables.table import Table

Vectors = dict[str, Sequence[float]]
ROOT = np.sqrt(2)


def _score(name: str, context: EmbeddedContext, **vectors: Sequence[float]) -> Scores:
    known = context.under_test.encoder.vectors | {text.replace("_", " "): vector for text, vector in vectors.items()}  # type: ignore[attr-defined]
    context.under_test.encoder.vectors = known  # type: ignore[attr-defined]
    return find_benchmark(name).score(context)


def _rewrite(context: EmbeddedContext, table: Table, file: str, **columns: list[object]) -> None:
    rows = table.read(context.folder / file).to_pydict() | columns
    table.write(context.folder / file, rows)


def test_negations_by_hand(context: EmbeddedContext) -> None:
    values = _score("negations", context).values
    # Image a is nearer to its negation; c's caption and negation are the same vector: a tie is a failure.
    assert values["negations/original_over_negation"].tolist() == [0, 0, 1]
    assert values["negations/paraphrase_over_negation"].tolist() == [1, 0, 1]
    assert values["negations/caption_top1"].tolist() == [1, 1, 1]
    assert values["negations/paraphrase_top1"].tolist() == [0, 0, 1]
    assert values["negations/cue_no/original_over_negation"].tolist() == [0, 1]
    assert values["negations/cue_not/paraphrase_over_negation"].tolist() == [0]
    assert len(values) == 9


def test_the_composite_is_clamped_below_one_half(context: EmbeddedContext) -> None:
    values = _score("negations", context).values["negations/composite"]
    assert values == pytest.approx([1 / 3, 1 / 3, 2 / 3])
    assert values.mean() == pytest.approx(composite_score(1, 1 / 3, 1 / 3))


def test_the_composite_above_one_half(context: EmbeddedContext) -> None:
    values = _score("negations", context, a_negation=(0, 0, 0, 0)).values["negations/composite"]
    assert values == pytest.approx([2 / 3, 0, 1])
    assert values.mean() == pytest.approx(composite_score(1, 1 / 3, 2 / 3))


def test_a_tie_of_texts_is_a_failure(context: EmbeddedContext) -> None:
    values = _score("negations", context, a_negation=(0.8, 0.9, 0.1, 0.0)).values
    assert values["negations/paraphrase_over_negation"].tolist() == [0, 0, 1]


def test_differences_by_hand(context: EmbeddedContext) -> None:
    scores = _score("differences", context)
    values = scores.values
    # The third pair's sentences are at right angles to the difference: a tie, and a cosine of zero.
    assert values["differences/accuracy"].tolist() == [1, 1, 0, 0, 1]
    assert values["differences/sign_accuracy"].tolist() == [1, 0, 0, 0, 1]
    assert values["differences/kind_size/accuracy"].tolist() == [1, 1]
    assert values["differences/kind_size/sign_accuracy"].tolist() == [1, 0]
    assert values["differences/kind_object/accuracy"].tolist() == [0]
    assert values["differences/kind_position/sign_accuracy"].tolist() == [1]
    groups = scores.strata["differences/macro_accuracy"]
    assert groups[0] == groups[1]
    assert len(set(groups.tolist())) == 4


def test_pictures_are_ordered_by_the_sentence_about_the_first(context: EmbeddedContext) -> None:
    # Of c and d the second is larger: "the first is larger" points away from c - d, rightly.
    assert _score("differences", context).values["differences/size_ordering_accuracy"].tolist() == [1, 1]


@pytest.mark.parametrize(("depth", "ordered"), [(0.5, 0), (0.4, 0), (0.6, 1)])
def test_a_zero_cosine_orders_nothing(context: EmbeddedContext, depth: float, ordered: int) -> None:
    context.under_test.encoder.vectors["c larger than d"] = (0, 0, 0.5, depth)  # type: ignore[attr-defined]
    found = find_benchmark("differences").score(context).values["differences/size_ordering_accuracy"]
    assert found.tolist() == [1, ordered]


def test_exchanged_pictures_and_sentences_score_the_same(context: EmbeddedContext) -> None:
    before = _score("differences", context).values
    rows = COMPARISONS.read(context.folder / "comparisons.parquet").to_pydict()
    exchanged = {"first": "second", "second": "first"}
    _rewrite(
        context, COMPARISONS, "comparisons.parquet", first_id=rows["second_id"], second_id=rows["first_id"],
        true_difference=rows["false_difference"], false_difference=rows["true_difference"],
        answer=[exchanged[word] for word in rows["answer"]],
    )  # fmt: skip
    after = _score("differences", context).values
    assert after["differences/accuracy"].tolist() == before["differences/accuracy"].tolist()


@pytest.mark.parametrize(("column", "word"), [("kind", "colour"), ("answer", "third")])
def test_an_unknown_word_is_named(context: EmbeddedContext, column: str, word: str) -> None:
    _rewrite(context, COMPARISONS, "comparisons.parquet", **{column: [word] * 5})
    with pytest.raises(InputError, match=rf"comparisons.parquet: {column} '{word}' is unknown: use one of"):
        _score("differences", context)


def test_kinds_that_the_table_lacks_are_left_out(context: EmbeddedContext) -> None:
    _rewrite(context, COMPARISONS, "comparisons.parquet", kind=["object"] * 5)
    values = _score("differences", context).values
    assert set(values) == {
        f"differences/{name}"
        for name in ("accuracy", "sign_accuracy", "macro_accuracy", "kind_object/accuracy", "kind_object/sign_accuracy")
    }


def test_triplets_by_hand(context: EmbeddedContext) -> None:
    values = _score("triplets", context).values
    # The first negative is its own paraphrase, the third its own caption: ties are failures.
    assert values["triplets/i_p1_n"].tolist() == [1, 1, 0, 1]
    assert values["triplets/i_p2_n"].tolist() == [0, 1, 0, 1]
    assert values["triplets/itt"].tolist() == [0, 1, 0, 1]
    assert values["triplets/tot"].tolist() == [0, 1, 0, 1]
    assert values["triplets/kind_relation/tot"].tolist() == [0, 1, 0]
    assert values["triplets/kind_attribute/itt"].tolist() == [1]


@pytest.mark.parametrize("near", [(1.65, 0, 0, 0), (0, 1.7, 0, 0)])
def test_both_captions_must_be_far_from_the_negative(context: EmbeddedContext, near: Sequence[float]) -> None:
    # The two captions' similarity is 1.45; the negative's is 1.49 with the one, or 1.53 with the other.
    assert _score("triplets", context, c_query=near).values["triplets/tot"][1] == 0


def test_a_swap_without_a_paraphrase_is_named(context: EmbeddedContext) -> None:
    _rewrite(context, SWAPS, "swaps.parquet", image_id=["a", "b", "c", "d"])
    with pytest.raises(InputError, match=r"swaps.parquet: row 1 names image 'b', which paraphrase_queries.parquet"):
        _score("triplets", context)


def test_text_similarity_by_hand(context: EmbeddedContext) -> None:
    scores = _score("text_similarity", context)
    found = {metric: correlation_value(columns) for metric, columns in scores.correlations.items()}
    # Cosines 0.99, 0.09, 0.17 and 1, shares 1, 0, 0.5 and 0.25: ranks differ by 1, 0, 1 and 2, so 1 - 6 * 6 / (4 * 15).
    assert found["text_similarity/spearman"] == pytest.approx(0.4)
    assert found["text_similarity/tier_common/spearman"] == pytest.approx(1)
    assert found["text_similarity/tier_rare/spearman"] == pytest.approx(-1)


def test_half_truths_by_hand(context: EmbeddedContext) -> None:
    values = _score("half_truths", context).values
    # Short, half and full: 0.9, 0.8 and 0.95; 0.8, 0.9 and 0.95; 0.9, 0.9 and 0.1; 0.9, 0.8 and 0.9. Ties are failures.
    assert values["half_truths/accuracy"].tolist() == [1, 0, 0, 1]
    assert values["half_truths/ordered_accuracy"].tolist() == [1, 0, 0, 0]
    assert values["half_truths/kind_object/accuracy"].tolist() == [1, 0]
    assert values["half_truths/kind_relation/ordered_accuracy"].tolist() == [0, 0]


def test_geometry_by_hand(context: EmbeddedContext) -> None:
    values = {name.removeprefix("geometry/"): found for name, found in _score("geometry", context).values.items()}
    assert values["image_difference/distance"] == pytest.approx(
        [1 - 0.8 / ROOT, 1 + 0.4 / ROOT, 1, 1 + 0.4 / ROOT, 1 - 0.9 / ROOT]
    )
    assert values["image_difference/reverse_distance"][:2] == pytest.approx([1 + 0.8 / ROOT, 1 + 0.8 / ROOT])
    # Captions of a and d differ by (0.9, 0.7, -0.1, -0.9).
    assert values["caption_difference/distance"][0] == pytest.approx(1 - 0.72 / np.sqrt(2.12))
    assert values["caption_difference/reverse_distance"][0] == pytest.approx(1 + 0.72 / np.sqrt(2.12))
    assert values["difference_text/antisymmetry"][:2] == pytest.approx([-0.18, -0.56])
    assert values["image_caption/alignment"][0] == pytest.approx(0.66)
    assert values["paraphrase/alignment"] == pytest.approx([0.02, 0.86, 0], abs=1e-6)
    assert values["image/gaussian_potential"] == pytest.approx([np.exp(-4)] * 3)
    assert len(values) == 9


def test_opposite_texts_are_antisymmetric(context: EmbeddedContext) -> None:
    for text, vector in {"a larger than d": (1, 0, 0, 0), "d larger than a": (-1, 0, 0, 0)}.items():
        context.under_test.encoder.vectors[text] = vector  # type: ignore[attr-defined]
    assert find_benchmark("geometry").score(context).values["geometry/difference_text/antisymmetry"][0] == 1


def test_a_compared_image_without_a_caption_is_named(context: EmbeddedContext) -> None:
    _rewrite(context, COMPARISONS, "comparisons.parquet", second_id=["d", "d", "b", "a", "a"])
    with pytest.raises(InputError, match=r"comparisons.parquet: row 2 names image 'b', which paraphrase_queries"):
        _score("geometry", context)


def test_the_potential_at_its_ends() -> None:
    assert gaussian_potential(np.ones((3, 1), dtype=np.float32)).tolist() == [1, 1, 1]
    assert gaussian_potential(np.ones((1, 1), dtype=np.float32)).tolist() == [0]


def test_an_encoder_that_says_the_same_of_everything_is_never_right(context: EmbeddedContext) -> None:
    context.under_test.encoder.vectors = dict.fromkeys(context.under_test.encoder.vectors, (0.5, 0.5, 0.5, 0.5))  # type: ignore[attr-defined]
    for name in ("negations", "differences", "triplets", "half_truths"):
        for metric, values in find_benchmark(name).score(context).values.items():
            if "top1" not in metric and "composite" not in metric:
                assert values.sum() == 0, metric
