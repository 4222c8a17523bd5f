"""A student's training: what it learns, and that neither a kill nor the size of pieces changes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from components.core.compute.checkpoint import Checkpoints
from components.core.compute.distributed import World
from components.core.errors import InputError
from components.core.settings import Student
from components.students.loop import (
    Place,
    add_adapter,
    answer_loss,
    answer_tokens,
    check_scores,
    encode,
    fit,
    mean_loss,
    padded,
)
from tests.support.student_making import adapter_of, load_tiny, make_lessons, make_plan, start
from tests.support.tiny_language_model import save_tiny_language_model

COUNT = 18
"""Lessons; an epoch of four batches leaves two over."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_language_model(tmp_path_factory.mktemp("tiny"))


class Killed(BaseException):
    """The process ends here."""


def _train(base: Path, folder: Path, plan: Student, kill_at: int | None = None) -> tuple[Any, list[float]]:
    model, examples = start(base, COUNT)
    losses: list[float] = []

    def report(metrics: dict[str, float], step: int) -> None:
        losses.append(metrics["train/loss"])
        if step == kill_at:
            raise Killed

    fit("tiny", model, examples, plan, Place(), Checkpoints(folder), report)
    return model, losses


def test_the_adapter_learns_the_answers_and_the_base_stays(base: Path, tmp_path: Path) -> None:
    model, examples = start(base, COUNT, rank=8)
    before = mean_loss(model, examples, 4, Place())
    frozen = {name: weights.clone() for name, weights in model.named_parameters() if not weights.requires_grad}
    steps = fit("tiny", model, examples, make_plan(epochs=4), Place(), Checkpoints(tmp_path), lambda *_: None)
    assert steps == 4 * (COUNT // 4)
    assert mean_loss(model, examples, 4, Place()) < 0.9 * before
    with model.disable_adapter():
        assert mean_loss(model, examples, 4, Place()) == before
    assert all(torch.equal(weights, frozen[name]) for name, weights in model.named_parameters() if name in frozen)


def test_every_linear_layer_but_the_head_gets_an_adapter(base: Path) -> None:
    layers = {name.split(".lora_")[0].split("layers.")[1] for name in adapter_of(start(base, 1)[0])}
    kinds = {"self_attn." + part for part in ("q_proj", "k_proj", "v_proj", "o_proj")}
    kinds |= {"mlp." + part for part in ("gate_proj", "up_proj", "down_proj")}
    assert layers == {f"{layer}.{kind}" for layer in (0, 1) for kind in kinds}


@pytest.fixture(scope="module")
def undisturbed(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, torch.Tensor], list[float]]:
    """The weights of a whole run, and its losses."""
    model, losses = _train(base, tmp_path_factory.mktemp("whole"), make_plan())
    return adapter_of(model), losses


@pytest.mark.slow
@pytest.mark.parametrize("kill_at", [1, 3, 4, 5, 8])
def test_a_killed_run_ends_as_one_that_nobody_disturbed(
    kill_at: int, base: Path, undisturbed: tuple[dict[str, torch.Tensor], list[float]], tmp_path: Path
) -> None:
    with pytest.raises(Killed):
        _train(base, tmp_path, make_plan(), kill_at)
    resumed, later = _train(base, tmp_path, make_plan())
    (whole, losses), again = undisturbed, adapter_of(resumed)
    assert all(torch.equal(again[name], whole[name]) for name in whole)
    # The step that was killed had not been saved yet.
    assert later == losses[(kill_at - 1) // 2 * 2 :]


def test_a_finished_run_has_nothing_left_to_do(base: Path, tmp_path: Path) -> None:
    plan = make_plan(epochs=1)
    model, _ = _train(base, tmp_path, plan)
    again, losses = _train(base, tmp_path, plan)
    assert losses == []
    assert all(torch.equal(weights, adapter_of(again)[name]) for name, weights in adapter_of(model).items())


@pytest.mark.parametrize("micro_batch", [1, 3])
def test_small_pieces_compute_the_same(
    micro_batch: int, base: Path, undisturbed: tuple[dict[str, torch.Tensor], list[float]], tmp_path: Path
) -> None:
    _, losses = _train(base, tmp_path, make_plan(micro_batch=micro_batch))
    assert losses == pytest.approx(undisturbed[1], rel=1e-4)


def test_the_loss_is_the_models_own_on_the_answers(base: Path) -> None:
    model, examples = start(base, 5)
    batch = padded(examples, "cpu")
    own = model(input_ids=batch.ids, attention_mask=batch.mask, labels=batch.labels).loss
    torch.testing.assert_close(answer_loss(model, examples, Place()), own)
    assert answer_tokens(examples) == int((batch.labels[:, 1:] >= 0).sum())


@pytest.mark.parametrize("steps", [1, 2, 9, 10, 11])
def test_runs_of_any_length_have_a_schedule(steps: int, base: Path, tmp_path: Path) -> None:
    model, examples = start(base, steps)
    rates: list[float] = []
    plan = make_plan(batch_size=1, epochs=1, checkpoint_every=100)
    fit("tiny", model, examples, plan, Place(), Checkpoints(tmp_path), lambda found, _: rates.append(found["train/lr"]))
    assert len(rates) == steps
    assert all(0 < rate <= plan.lr for rate in rates)


def test_a_loss_that_is_not_finite_stops_in_one_line(base: Path, tmp_path: Path) -> None:
    model, examples = start(base, COUNT)
    with torch.no_grad():
        model.get_base_model().lm_head.weight.fill_(float("nan"))
    with pytest.raises(InputError, match="tiny: the loss is not finite at step 1: lower lr"):
        fit("tiny", model, examples, make_plan(), Place(), Checkpoints(tmp_path), lambda *_: None)


def test_too_few_lessons_for_a_batch_are_refused(base: Path, tmp_path: Path) -> None:
    model, examples = start(base, 3)
    with pytest.raises(InputError, match="3 lessons make no batch of 4: lower batch_size"):
        fit("tiny", model, examples, make_plan(), Place(), Checkpoints(tmp_path), lambda *_: None)


def test_a_batch_that_ranks_cannot_share_is_refused(base: Path, tmp_path: Path) -> None:
    model, examples = start(base, COUNT)
    with pytest.raises(InputError, match="batch_size 4 cannot be shared by 3 ranks"):
        fit("tiny", model, examples, make_plan(), Place(World(0, 3)), Checkpoints(tmp_path), lambda *_: None)


def test_a_model_that_scales_its_scores_is_refused(base: Path) -> None:
    loaded = load_tiny(base)
    model = add_adapter(loaded.model, 2, 0)
    examples = encode(loaded.tokenizer, make_lessons(1))
    check_scores(model, examples, Place())
    inner = model.get_base_model()
    own = inner.forward
    inner.forward = lambda **given: _halved(own(**given))
    with pytest.raises(InputError, match="changes its scores after the last layer"):
        check_scores(model, examples, Place())


def _halved(output: Any) -> Any:
    output.logits = output.logits * 0.5
    return output
