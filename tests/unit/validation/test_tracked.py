"""The stage is an MLflow run with counts and reports, which fails with the stage and has them all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.core.errors import InputError
from components.tracking import make_client
from components.validation.reporting.report import metrics_of


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all tests of this module."""
    return tmp_path_factory.mktemp("tracking")


@pytest.fixture(autouse=True)
def project(store: Path, track_in: Callable[[Path], None]) -> None:
    track_in(store)


def _last_run() -> Any:
    client = make_client()
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    return client.search_runs(experiments, order_by=["attributes.start_time DESC"], max_results=1)[0]


def _artifacts(run: Any, folder: str = "") -> set[str]:
    return {entry.path for entry in make_client().list_artifacts(run.info.run_id, folder)}


def test_counts_and_reports_are_in_the_run(tracked_stage: Callable[..., Any], answer: Any) -> None:
    tracked_stage([answer(), answer(pair=1, text_1="dog cat"), answer(pair=2)], min_accepted_share=0.5)
    run = _last_run()
    assert (run.info.status, run.data.tags["stage"]) == ("FINISHED", "validate")
    assert len(run.data.tags["input.captions.sha256"]) == 64
    assert run.data.params["min_accepted_share"] == "0.5"
    wanted = {"rows": 3, "accepted": 2, "quarantined": 1, "rejected/paraphrase_1_length": 1}
    found = {name: run.data.metrics[f"validate/paraphrases/{name}"] for name in wanted}
    assert found == wanted
    assert run.data.metrics["validate/paraphrases/accepted_share"] == pytest.approx(2 / 3)
    assert _artifacts(run) == {"summary.json", "paraphrases"}
    assert {"paraphrases/index.html", "paraphrases/rejected_paraphrases.html"} <= _artifacts(run, "paraphrases")
    assert _artifacts(run, "paraphrases/quality") == {"paraphrases/quality/paraphrases.png"}


@pytest.mark.slow
def test_a_broken_limit_fails_the_run_with_all_that_it_found(tracked_stage: Callable[..., Any], answer: Any) -> None:
    with pytest.raises(InputError, match=r"breaks validate\.min_accepted_share"):
        tracked_stage(
            [answer(), answer(pair=1, text_1=None, found_2=False, reason_1="failed: HTTP 500: <oops> #é")],
            min_accepted_share=0.9,
        )
    run = _last_run()
    assert run.info.status == "FAILED"
    assert run.data.metrics["validate/paraphrases/rejected/paraphrase_1_rejected_failed_ HTTP 500_ _oops_ __"] == 1
    assert _artifacts(run) == {"summary.json", "paraphrases"}


def test_reasons_that_look_alike_to_mlflow_are_added_up(counted: Any) -> None:
    metrics = metrics_of(counted({"failed: a?": 2, "failed: a!": 3, "x" * 500: 1}))
    assert metrics["validate/table/rejected/failed_ a_"] == 5
    assert max(map(len, metrics)) < 250
