"""A project folder with evaluated encoders and a real MLflow store, made quickly."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from components.core.compute.provenance import LOCK
from components.core.settings import Settings
from components.core.tables.files import file_hash, write_json
from components.core.tracking import tracked_run
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.sidecar import WEIGHTS
from components.evaluation.scoring.benchmark import Scores
from components.evaluation.scoring.results import DEFAULT, Folders, Report, Result, write_results
from components.registry.gate import Judged
from components.registry.model import SHA_TAG

PRIMARY, RECALL, TOP1 = "paraphrased_retrieval/ao_at_10", "retrieval/t2i_recall_at_5", "zero_shot/top1"
QUERIES = 1000
SUMMARY = {"passed": True, "accepted": 90, "rows": 100}
SUMMARY_FILE = Path("data/quarantine/paraphrases/summary.json")
EXAMPLES = Path("data/validated/paraclip/paraphrases.parquet")


def scores(shares: Mapping[str, float]) -> Scores:
    """Hits of 1,000 queries, as many as the shares ask, in an order of each metric's own."""
    orders = {name: np.random.default_rng(len(name)).permutation(QUERIES) for name in shares}
    return Scores({name: (orders[name] < share * QUERIES).astype(np.float64) for name, share in shares.items()})


def judged(name: str, sha256: str, primary: float, recall: float = 0.5, top1: float = 0.5, data: str = "d") -> Judged:
    """An encoder's results; two encoders hit the same queries as far as their shares allow."""
    shares = {PRIMARY: primary, RECALL: recall, TOP1: top1}
    metrics = {key: Result(value=x, ci95=(x - 0.02, x + 0.02), higher_is_better=True) for key, x in shares.items()}
    report = Report(encoder=name, protocol="p=1", data_hash=data, encoder_sha256=sha256, metrics=metrics)
    return Judged(report, scores(shares))


@dataclass
class Project:
    """Makes encoders with results, as the stages `train` and `evaluate` would."""

    settings: Settings
    architecture: dict[str, object]

    def score(
        self, name: str, sha256: str, primary: float, recall: float = 0.5, data: str = "d", folders: Folders = DEFAULT
    ) -> Report:
        """Write results as stage `evaluate` does."""
        one = judged(name, sha256, primary, recall, data=data)
        write_results(one.report, one.scores, folders.metrics, folders.per_query)
        return one.report

    def add(self, name: str, seed: int, primary: float, recall: float = 0.5, data: str = "d", **given: Any) -> Encoder:
        """Draw, save and score an encoder with a finished run; `given` are its `commit` and the hashes `made_of`."""
        torch.manual_seed(seed)
        with tracked_run("train", name, self.settings, {"seed": seed}, {}) as run:
            encoder = Encoder.create(name, "tiny", self.architecture, name)
            hashes = {str(EXAMPLES): file_hash(EXAMPLES)} | given.get("made_of", {})
            facts = {"git_commit": given.get("commit", "c0ffee"), "data_hashes": hashes}
            encoder.sidecar = encoder.sidecar.model_copy(update=facts)
            encoder.save(Path("models") / name)
            write_json(Path("models") / name / "run.json", run.reference())
            run.log_artifact(Path("models") / name)
        self.score(name, encoder.sidecar.weights_sha256, primary, recall, data)
        lock_results()
        return encoder


def write_version_files(folder: Path) -> dict[str, str]:
    """The files of a version that are read before it is trusted; returns its tags."""
    weights = folder / "artifacts" / "encoder" / WEIGHTS
    weights.parent.mkdir(parents=True, exist_ok=True)
    weights.write_bytes(b"weights")
    report = judged("one", file_hash(weights), 0.5).report
    write_json(folder / "artifacts" / "metrics.json", report.model_dump(mode="json"))
    return {SHA_TAG: report.encoder_sha256}


def lock_results() -> None:
    """Note the results that are there in dvc.lock, as DVC does after stage `evaluate`."""
    found = yaml.safe_load(LOCK.read_text()) if LOCK.is_file() else {"stages": {}}
    for path in Path("reports/metrics").glob("*.json"):
        out = {"path": str(path), "md5": hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}
        found["stages"][f"evaluate@{path.stem}"] = {"outs": [out]}
    LOCK.write_text(yaml.safe_dump(found))


def make_project(settings: Settings, architecture: dict[str, object]) -> Project:
    """Validated examples and a base encoder that scores 0.4, in the current folder."""
    EXAMPLES.parent.mkdir(parents=True)
    EXAMPLES.write_bytes(b"examples")
    write_json(SUMMARY_FILE, SUMMARY)
    made = Project(settings, architecture)
    made.add("base", 1, 0.4)
    return made
