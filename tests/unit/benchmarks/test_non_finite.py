"""NaN and infinite numbers: no metric takes them, and no comparison that is false for NaN turns into a good score."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.benchmarks import protocols
from components.benchmarks.bootstrap import correlation_interval, interval, paired_difference, sign_flip_p
from components.benchmarks.embedded import find_benchmark
from components.benchmarks.embedded.geometry import gaussian_potential
from components.benchmarks.scores import Correlation, Scores
from components.core import metrics
from components.evaluation.results import summarise

MODULES = [metrics, *(importlib.import_module(f"{protocols.__name__}.{one.name}")
                      for one in pkgutil.iter_modules(protocols.__path__))]  # fmt: skip
ROWS, DIM = 6, 3
LABELS = np.array([0, 1, 0, 1, 0, 1])
NUMBERS = np.arange(ROWS)

ARGUMENTS: dict[str, Any] = {
    "k": 2, "depth": 1, "ks": (1, 2), "seed": 0, "queries": None, "alpha": 0.5, "ties": None, "name": "x",
    "gold": NUMBERS, "owners": NUMBERS, "labels": LABELS, "described": NUMBERS, "updated": NUMBERS[::-1],
    "pictures": NUMBERS, "classes": {0, 1}, "questions": np.array([[0, 1, 2, 3]]),
}  # fmt: skip
"""Arguments that are no features and no scores, by name."""
SPECIAL: dict[tuple[str, str], Any] = {
    ("averaged", "queries"): ROWS,
    ("classified", "ties"): "right",
    ("composite_score", "original"): 0.5,
    ("composite_score", "paraphrased"): 0.5,
    ("composite_score", "over_negation"): 0.5,
    ("prompt_ensemble", "prompts"): np.ones((2, ROWS, DIM), np.float32),
    ("spearman_by_subset", "benchmark"): "x",
    ("mean_spearman", "benchmark"): "x",
}
NO_NUMBERS = {
    "finite", "shared", "drawn", "unlike_pairs", "held_out", "group_numbers", "most_confused", "confusion_matrix",
    "synonym_expansions", "best_exponent", "comparative_scores", "released_scores", "confused_cells", "few_of_each",
    "caption_scores", "has_java", "require_scorers", "released_splits",
    # Minus infinity is the score of rows that a filter leaves out.
    "best_columns",
}  # fmt: skip
"""Public functions that are given neither features nor scores, or may be given infinite ones."""


def _functions() -> dict[str, Callable[..., Any]]:
    return {
        name: found
        for module in MODULES
        for name, found in vars(module).items()
        if inspect.isfunction(found) and found.__module__ == module.__name__ and not name.startswith("_")
    }


SCORED = sorted(_functions().keys() - NO_NUMBERS)


def _arguments(name: str) -> tuple[dict[str, Any], list[np.ndarray[Any, Any]]]:
    """Good arguments of a function, and the arrays among them that hold features or scores."""
    generator = np.random.default_rng(0)
    given_to: dict[str, Any] = {}
    arrays: list[np.ndarray[Any, Any]] = []

    def array(*shape: int) -> np.ndarray[Any, Any]:
        arrays.append(generator.random(shape))
        return arrays[-1]

    for parameter in inspect.signature(_functions()[name]).parameters.values():
        kind = str(parameter.annotation)
        if (name, parameter.name) in SPECIAL:
            value = SPECIAL[name, parameter.name]
            if isinstance(value, np.ndarray):
                value = array(*value.shape)
            elif isinstance(value, float):
                value = array(1)
        elif kind == "Sequence[Reals]":
            value = [array(ROWS), array(ROWS)]
        elif kind == "Mapping[str, Reals]":
            value = {f"{way}/recall_at_{k}": array(ROWS) for way in ("text_to_image", "image_to_text")
                     for k in (1, 5, 10)}  # fmt: skip
        elif kind == "Mapping[str, tuple[Reals, Reals]]":
            value = {"one": (array(ROWS), array(ROWS)), "two": (array(ROWS), array(ROWS))}
        elif kind == "Features" or parameter.name.startswith("ranks_"):
            value = array(ROWS, DIM)
        elif "Reals" in kind or (name, parameter.name) == ("hit_at_k", "ranks"):
            value = array(ROWS)
        elif parameter.default is not inspect.Parameter.empty:
            continue
        else:
            value = ARGUMENTS[parameter.name]
        given_to[parameter.name] = value
    return given_to, arrays


def test_every_public_function_is_looked_at() -> None:
    assert len(SCORED) > 25
    assert _functions().keys() >= NO_NUMBERS
    for name in SCORED:
        assert _arguments(name)[1], f"{name}: which of its arguments hold features or scores?"


@pytest.mark.parametrize("name", SCORED)
@given(st.data())
def test_every_metric_refuses_what_is_not_finite(name: str, data: st.DataObject) -> None:
    arguments, arrays = _arguments(name)
    chosen = data.draw(st.sampled_from(arrays))
    chosen.flat[data.draw(st.integers(0, chosen.size - 1))] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    with pytest.raises(ValueError, match="NaN or infinite"):
        _functions()[name](**arguments)


def test_intervals_tests_and_scalars_refuse_them_too() -> None:
    good, bad = np.ones(4), np.array([1, np.nan, 1, 1])
    for call in (
        lambda: interval(bad, 10, 0),
        lambda: sign_flip_p(good, bad, 10, 0),
        lambda: paired_difference(bad, good, 10, 0),
        lambda: correlation_interval(Correlation("spearman", good, bad), 10, 0),
        lambda: gaussian_potential(np.array([[np.inf]])),
        lambda: summarise(find_benchmark("swaps"), Scores({}, scalars={"x/y": np.nan}), 10, 0),
    ):
        with pytest.raises(ValueError, match="NaN or infinite"):
            call()
