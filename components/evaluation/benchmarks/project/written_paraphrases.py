"""`paraphrased_retrieval` of queries by a language model, for data that has paraphrases by people as well."""

from __future__ import annotations

from functools import partial

from components.evaluation.benchmarks.project import on_test_split
from components.evaluation.benchmarks.project.paraphrased_retrieval import METRICS, score_table

NAME = "written_paraphrases"
FILE = "written_paraphrases.parquet"

BENCHMARK = on_test_split(
    NAME, partial(score_table, name=NAME, file=FILE), [FILE], METRICS, key_metrics=(f"{NAME}/ao_at_10",)
)
