"""After a run: dvc.lock and the state of git are with the flow run and with the MLflow runs that trained encoders."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from components.core.tables.files import file_hash
from components.core.tracking import make_client
from components.registry.evidence import record_lock


@pytest.mark.integration
@pytest.mark.usefixtures("prefect_server")
def test_the_lock_file_and_a_dirty_tree_are_kept_with_both_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from uuid import UUID

    from prefect import flow, get_client
    from prefect.artifacts import Artifact
    from prefect.runtime import flow_run

    from flows.artifacts import record_state

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("CLIPTUNE_MLFLOW_PAGES", "http://127.0.0.1:5000")
    git = ["git", "-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "-q"], ["add", "code.py"], ["commit", "-qm", "code"]):
        Path("code.py").write_text("1")
        subprocess.run([*git, *command], check=True)
    Path("code.py").write_text("2")
    Path("dvc.lock").write_text("stages: {train@a: {}}\n")
    client = make_client()
    run_id = client.create_run(client.create_experiment("world"), run_name="a").info.run_id
    Path("models/a").mkdir(parents=True)
    Path("models/a/run.json").write_text(json.dumps({"run_id": run_id}))

    @flow
    def recorded() -> str:
        record_state(["a", "none"])
        return str(flow_run.id)

    made = recorded()
    tags = client.get_run(run_id).data.tags
    assert tags["dvc_lock_sha256"] == file_hash(Path("dvc.lock"))
    assert (tags["prefect_flow_run"], tags["flow_git_dirty"]) == (made, "true")
    assert [one.path for one in client.list_artifacts(run_id)] == ["dvc.lock"]
    with get_client(sync_client=True) as prefect:
        assert "git-dirty" in prefect.read_flow_run(UUID(made)).tags
    lock, link = Artifact.get("dvc-lock"), Artifact.get("mlflow-a")
    assert lock is not None
    assert "train@a" in str(lock.data)
    assert link is not None
    assert f"http://127.0.0.1:5000/#/experiments/1/runs/{run_id}" in str(link.data)
    # A later lock file tells of other stages: the first one stays.
    Path("dvc.lock").write_text("stages: {train@b: {}}\n")
    assert record_lock(Path("models/a"), {"prefect_flow_run": "another"}) == (run_id, "1")
    assert client.get_run(run_id).data.tags == tags
