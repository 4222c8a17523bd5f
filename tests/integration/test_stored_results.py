"""The stored results of the study's seeds still give the verdicts that docs/claims.md has."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from components.core.system.profiles import settings_with
from components.evaluation.scoring.results import Folders
from research.claims import claims

REPO = Path(__file__).parents[2]
RESULTS = REPO / "research/papers/results"
VERDICTS = {
    "paraclip_keeps": "holds",
    "semclip_delta": "holds",
    "semclip_negation": "holds",
    "pc_clip_retrieval": "does not hold",
    "frozen_language_model": "does not hold",
    "frozen_language_model_images": "does not hold",
    "language_similarity": "undecided",
    "semclip_negation_alone": "undecided",
    "frozen_loses_clip": "does not hold",
    "paraclip_composition": "undecided",
    "query_expansion": "not measured",
    "semclip_negation_contrastive": "not measured",
}
"""Far enough from their bounds that 100 resamples decide them as 1,000 do."""


def test_the_stored_seeds_are_judged_without_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in RESULTS.glob("*.tar.xz"):
        with tarfile.open(seed) as archive:
            archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(REPO)
    reports = tmp_path / "reports"
    settings = settings_with("claims")
    evaluate = settings.evaluate.model_copy(update={"bootstrap": 100})
    content = claims.run(
        settings.model_copy(update={"evaluate": evaluate}),
        "papers",
        {0: Folders(reports=reports)} | {seed: Folders(reports=reports / f"study/{seed}") for seed in (1, 2)},
        tmp_path / "claims",
    )
    verdicts = {claim.name: claim.verdict for claim in content.judged}
    assert {name: verdicts[name] for name in VERDICTS} == VERDICTS
