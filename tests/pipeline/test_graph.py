"""The graph that DVC makes of dvc.yaml: a method needs the tables it reads, and `compare` needs every stage."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from components.core.system.stage_graph import Graph, read_graph
from tests.support.params import REPO, profile_text

ALL = {
    "paraphrases", "differences", "rewrites", "semclip_paraphrases", "negations", "hard_negatives", "negated_terms",
    "absences", "units",
}  # fmt: skip
METHODS: list[tuple[set[str], str]] = [
    ({"paraphrases"}, "paraclip paraclip_l1 paraclip_l2_l3 paraclip_retention paraclip_matryoshka"),
    ({"differences"}, "pc_clip pc_clip_mse"),
    ({"rewrites"}, "caption_ft rewrite_ft laclip_ft"),
    ({"semclip_paraphrases", "negations"}, "semclip semclip_paraphrase semclip_negation"),
    ({"hard_negatives"}, "negclip"),
    ({"negated_terms"}, "conclip"),
    ({"absences"}, "negation_clip"),
    ({"hard_negatives", "units"}, "cs_clip"),
    # These read the pairs.
    (set(), "lm_finetuned lm_frozen lm_bottleneck lm_alignment proclip clip_scratch leaf query_adapter"),
    # Of several families, which have only `data/validated` in common.
    (ALL, "omni_negclip read_clip joint"),
]
"""Tables, and the methods that read them."""


def _graph(folder: Path, params: str) -> Graph:
    shutil.copy(REPO / "dvc.yaml", folder)
    (folder / "params.yaml").write_text(params)
    subprocess.run([sys.executable, "-m", "dvc", "init", "--no-scm", "-q"], cwd=folder, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return read_graph()


def test_by_default_compare_needs_every_stage(tmp_path: Path) -> None:
    graph = _graph(tmp_path, (REPO / "params.yaml").read_text("utf-8"))
    assert set(graph.upstream(["compare"])) == set(graph.needs)
    assert {stage for stage in graph.needs if "@" in stage} == {
        "synthesize@paraphrase_1", "synthesize@paraphrase_2", "validate@paraphrases", "train@paraclip",
        "evaluate@base", "evaluate@paraclip",
    }  # fmt: skip


def test_a_method_needs_the_tables_that_it_reads_and_a_table_its_own_answers(tmp_path: Path) -> None:
    every_method = _graph(tmp_path, profile_text("methods"))
    needs = {
        stage.removeprefix("train@"): {need.removeprefix("validate@") for need in those if "validate@" in need}
        for stage, those in every_method.needs.items()
        if stage.startswith("train@")
    }
    assert needs == {method: tables for tables, methods in METHODS for method in methods.split()}
    upstream = every_method.upstream(["validate@semclip_paraphrases"])
    assert {stage for stage in upstream if stage.startswith(("synthesize@", "validate@"))} == {
        "synthesize@paraphrase_semclip", "synthesize@judge_paraphrase", "validate@semclip_paraphrases"
    }  # fmt: skip
    touched = every_method.downstream(["synthesize@judge_paraphrase"])
    trained = {stage.removeprefix("train@") for stage in touched if stage.startswith("train@")}
    assert trained == {"semclip", "semclip_paraphrase", "semclip_negation", "omni_negclip", "read_clip", "joint"}
