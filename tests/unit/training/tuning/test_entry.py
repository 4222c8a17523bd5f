"""`cliptune tune`: halving, guards, shares of the base, and a search that resumes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.cli.commands import params
from components.core.settings import Settings
from components.core.tracking import make_client, tracked_run
from components.encoders.adapter.encoder import Encoder
from components.encoders.under_test import HalfScores, ShownGain
from components.training.mixing.mix import weights_of
from components.training.recipe import POINTS, recipe
from components.training.train import StoppedEarlyError
from components.training.tuning import entry as tuning
from components.training.tuning.entry import Tuned, planned, tune
from components.training.tuning.trials import gate_metrics

PRIMARY, GUARD = "paraphrased_retrieval/ao_at_10", "retrieval/t2i_recall_at_5"


START = [0.0]
"""The mean of the base's weight."""


def _scores(encoder: Encoder) -> HalfScores:
    """The primary metric is the mean shift of a weight from the base, up to 2; the guard loses half of it.

    The half that chooses nothing shows a tenth of both.
    """
    shift = float(weights_of(encoder)["text_projection"].mean()) - START[0]
    gain = min(shift, 2 - shift)
    shown = {PRIMARY: gain / 10, GUARD: 1 - shift / 20}
    return HalfScores({PRIMARY: gain, GUARD: 1 - shift / 2}, shown, ShownGain(gain / 10, gain / 10 - 0.02, 0.2, 30))


@pytest.fixture
def trained(
    tiny_encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, track_in: Callable[[Path], None]
) -> list[dict[str, Any]]:
    """The entries that were trained; training shifts the text projection by 10,000 times the learning rate."""
    track_in(tmp_path)
    tiny_encoder.save(Path("models/base"))
    start = weights_of(tiny_encoder)["text_projection"].clone()
    START[0] = float(start.mean())
    seen: list[dict[str, Any]] = []

    def train(settings: Settings, name: str, files: Any, observe: Any) -> bool:
        entry = settings.methods[name]
        seen.append(entry | {"stopped": False})
        with tracked_run("train", name, settings, {}, {}) as run:
            shift = entry["lr"] * 10_000
            try:
                for step in range(1, 5):
                    observe({tuning._EARLY: shift * step}, step)
            except StoppedEarlyError:
                seen[-1]["stopped"] = True
                return False
            tiny_encoder.model.load_state_dict(weights_of(tiny_encoder) | {"text_projection": start + shift})
            tiny_encoder.save(files.models / name)
            (files.models / name / "run.json").write_text(str(run.reference()).replace("'", '"'))
        return True

    monkeypatch.setattr(tuning, "train", train)
    return seen


def _settings(settings: Settings, allowed: float) -> Settings:
    policy = settings.promote.model_copy(update={"metric": PRIMARY, "guards": {GUARD: allowed, "zero_shot/top1": None}})
    entry = settings.methods["paraclip"] | {"lr": 1e-4, "epochs": 4}
    return settings.model_copy(update={"promote": policy, "methods": {"paraclip": entry}})


def _tune(settings: Settings, trials: int) -> Any:
    return tune(settings, "paraclip", trials, _scores, "sqlite:///tune.db")


def test_the_best_trial_within_guards_wins_and_resumes(trained: list[dict[str, Any]], settings: Settings) -> None:
    allowing = _settings(settings, 0.5)
    _tune(allowing, 4)
    found = _tune(allowing, 12)
    assert len(trained) == found.trials == 12
    # The entry itself comes first; an epoch is never less than one.
    assert (trained[0]["lr"], trained[0]["epochs"]) == (1e-4, 4)
    assert {entry["epochs"] for entry in trained} <= {2, 4, 8}
    assert found.stopped == sum(entry["stopped"] for entry in trained) > 0
    # A shift of one gains most; the guard allows exactly that. The gain is that of the half that chose nothing.
    assert 0.05 < found.gain.value <= 0.1
    assert found.gain.low == pytest.approx(found.gain.value - 0.02)
    assert found.broken == ()
    shift = found.values["lr"] * 10_000 * found.values.get("weight_ensemble", 1.0)
    assert found.gain.value == pytest.approx(min(shift, 2 - shift) / 10, abs=0.001)
    assert found.scores[GUARD] >= 0.95 - 1e-6
    client = make_client()
    experiment = client.get_experiment_by_name(settings.dataset.name)
    runs = client.search_runs([experiment.experiment_id])
    parents = {run.info.run_id for run in runs if run.info.run_name == "tune paraclip"}
    trials = [run for run in runs if run.data.tags.get("mlflow.parentRunId") in parents]
    assert (len(parents), len(trials)) == (2, 12)
    scored = [run for run in trials if "gain" in run.data.metrics]
    assert len(scored) == 12 - found.stopped
    assert not list(tuning.STATE.glob("*/encoder.safetensors"))


def test_the_plan_names_ranges_and_broken_guards(settings: Settings, trained: list[dict[str, Any]]) -> None:
    plan = planned(_settings(settings, 0.5), "paraclip", 12)
    assert "12 trials; lr 1.3e-05 to 0.0008; epochs 2, 4, 8; shares of the trained weights 1.0, 0.75, 0.5" in plan
    assert plan.endswith(f"scored by {PRIMARY}, {GUARD} on the validation split")
    found = _tune(_settings(settings, 0.001), 3)
    assert found.broken == (GUARD,)


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (ShownGain(0.02, 0.01, 0.03, 50), "gain +2.0 [+1.0, +3.0]"),
        (
            ShownGain(0.014, -0.002, 0.03, 412),
            "no gain is shown; if it is the truth, about 824 validation queries show it",
        ),
        (ShownGain(-0.01, -0.02, 0.0, 0), "no gain is shown: nothing to write"),
    ],
)
def test_only_a_gain_that_is_shown_is_written(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], gain: ShownGain, words: str
) -> None:
    written: list[Any] = []
    values = dict.fromkeys(gate_metrics(settings), 0.5)
    monkeypatch.setattr(tuning, "tune", lambda *_: Tuned({"lr": 1e-4}, gain, values, values, 12, 6))
    monkeypatch.setattr("components.core.system.checking.load_checked", lambda entries: settings)
    monkeypatch.setattr("components.evaluation.scoring.validation.ValidationScores.of", lambda *_: None)
    monkeypatch.setattr(params, "_write_blocks", lambda *block: written.append(block))
    params.tune("paraclip", 12, "", write=True, dry_run=False)
    assert words in capsys.readouterr().out
    assert len(written) == (gain.low > 0)


def test_points_are_met_and_continue_beyond() -> None:
    for rows, (lr, batch, epochs) in POINTS.items():
        found = recipe(rows)
        assert (found.lr, found.batch_size, found.epochs) == (lr, 1 << (batch.bit_length() - 1), epochs)
    assert (recipe(10**9).lr, recipe(10**9).epochs) == (5e-7, 1)
    assert (recipe(100).lr, recipe(100).batch_size) == (POINTS[1_000][0], 16)


@given(st.integers(1, 10**8))
def test_an_epoch_has_steps_and_the_warmup_fits(rows: int) -> None:
    found = recipe(rows)
    assert found.batch_size >= 2
    assert rows < 8 or rows // found.batch_size >= 4
    assert found.warmup_steps < max(1, rows // found.batch_size) * found.epochs
    assert 5e-7 <= found.lr <= max(lr for lr, *_ in POINTS.values())
