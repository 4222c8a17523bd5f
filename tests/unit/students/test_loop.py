"""A student's training: its batches, its loss, and that neither a kill nor the size of pieces changes the result."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from components.captions.language_models.language_model import LanguageModel
from components.captions.prompting.task import completion
from components.captions.prompting.tasks import find_task
from components.core.compute.checkpoint import Checkpoints
from components.core.compute.distributed import World
from components.core.settings import Student
from components.core.system.errors import InputError
from components.students.lessons import Lesson
from components.students.loop import (
    IGNORED,
    EncodedLesson,
    Place,
    answer_loss,
    answer_tokens,
    batches_of_like_length,
    chat_of,
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


@pytest.fixture(scope="module")
def undisturbed(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, torch.Tensor], list[float]]:
    """The weights of a whole run, and its losses."""
    model, losses = _train(base, tmp_path_factory.mktemp("whole"), make_plan())
    return adapter_of(model), losses


@pytest.mark.slow
@pytest.mark.parametrize("kill_at", [1, 3, 4, 5, 8, 9])
def test_a_killed_run_ends_as_an_undisturbed_one(
    kill_at: int, base: Path, undisturbed: tuple[dict[str, torch.Tensor], list[float]], tmp_path: Path
) -> None:
    # There are eight steps: the last run is finished and has nothing left to do.
    with pytest.raises(Killed) if kill_at <= 8 else nullcontext():
        _train(base, tmp_path, make_plan(), kill_at)
    resumed, later = _train(base, tmp_path, make_plan())
    (whole, losses), again = undisturbed, adapter_of(resumed)
    assert all(torch.equal(again[name], whole[name]) for name in whole)
    # The killed step had not been saved yet.
    assert later == losses[(kill_at - 1) // 2 * 2 :]


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


def test_a_loss_that_is_not_finite_and_a_batch_that_cannot_be_made_or_shared_are_refused(
    base: Path, tmp_path: Path
) -> None:
    for count, world, scale, message in (
        (COUNT, World(), float("nan"), "tiny: the loss is not finite at step 1: lower lr"),
        (3, World(), 1, "3 lessons make no batch of 4: lower batch_size"),
        (COUNT, World(0, 3), 1, "batch_size 4 cannot be shared by 3 ranks"),
    ):
        model, examples = start(base, count)
        model.get_base_model().lm_head.weight.data *= scale
        with pytest.raises(InputError, match=message):
            fit("tiny", model, examples, make_plan(), Place(world), Checkpoints(tmp_path), lambda *_: None)


def test_a_model_that_scales_its_scores_is_refused(base: Path) -> None:
    model, examples = start(base, 1)
    check_scores(model, examples, Place())
    inner = model.get_base_model()
    whole = inner.forward

    def halved(**inputs: Any) -> Any:
        output = whole(**inputs)
        output.logits = output.logits * 0.5
        return output

    inner.forward = halved
    with pytest.raises(InputError, match="changes its scores after the last layer"):
        check_scores(model, examples, Place())


@pytest.fixture(scope="module")
def loaded(base: Path) -> LanguageModel:
    return load_tiny(base)


def _padding(batches: list[list[EncodedLesson]]) -> int:
    return sum(max(len(ids) for ids, _ in batch) * len(batch) - sum(len(ids) for ids, _ in batch) for batch in batches)


def test_batches_are_whole_differ_between_epochs_and_have_little_padding() -> None:
    rng = random.Random(1)
    lengths = [rng.randint(2, 300) for _ in range(165)]
    examples = [EncodedLesson(np.full(length, number, np.int32), 1) for number, length in enumerate(lengths)]
    first, second = (batches_of_like_length(examples, 8, rng) for _ in range(2))
    one, two = ([frozenset(int(ids[0]) for ids, _ in batch) for batch in epoch] for epoch in (first, second))
    assert [len(numbers) for numbers in one] == [8] * 20
    assert len(frozenset().union(*one)) == 160
    assert set(one).isdisjoint(two)
    assert _padding(first) < 0.2 * _padding([examples[start : start + 8] for start in range(0, 160, 8)])


def _decoded(loaded: LanguageModel, lesson: Lesson) -> tuple[str, str]:
    """Question and answer of an encoded lesson."""
    ((ids, prompt),) = encode(loaded.tokenizer, [lesson])
    return loaded.tokenizer.decode(ids[:prompt]), loaded.tokenizer.decode(ids[prompt:])


def test_a_lesson_is_the_engines_question_then_the_answer_and_its_end(loaded: LanguageModel) -> None:
    (lesson,) = make_lessons(1)
    question = loaded.tokenizer.apply_chat_template(chat_of(lesson), tokenize=False, add_generation_prompt=True)
    assert question.startswith("<s><system>")
    assert _decoded(loaded, lesson) == (question, f"{lesson.answer}\n")


@pytest.mark.parametrize(("prompt", "continued"), [("Q: what?\nA:", " Good.</s>"), ("A: ", "Good.</s>")])
def test_a_completion_is_continued_without_a_template(loaded: LanguageModel, prompt: str, continued: str) -> None:
    task = replace(find_task("paraphrase_1"), messages=lambda _: completion(prompt))
    assert _decoded(loaded, Lesson(task, {"caption": "x"}, "Good.")) == (f"<s>{prompt}", continued)


def test_a_chat_template_that_does_not_fit_is_refused_in_one_line(
    loaded: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for template, fault in (
        ("{{ raise_exception('no system here') }}", r"cannot render task 'paraphrase_1' \(no system here\)"),
        ("{{ messages | length }}", "changes a question after its answer"),
        (None, "cannot render task 'paraphrase_1'"),
    ):
        monkeypatch.setattr(loaded.tokenizer, "chat_template", template)
        with pytest.raises(InputError, match=fault) as caught:
            encode(loaded.tokenizer, make_lessons(1))
        assert "\n" not in str(caught.value)


def test_a_batch_scores_only_the_answers_tokens() -> None:
    examples = [EncodedLesson(np.arange(1, 6, dtype=np.int32), 3), EncodedLesson(np.arange(10, 50, dtype=np.int32), 39)]
    batch = padded(examples, "cpu")
    assert batch.ids.shape == (2, 64)
    assert batch.ids[0, :5].tolist() == [1, 2, 3, 4, 5]
    assert batch.mask.sum(1).tolist() == [5, 40]
    assert [row[row != IGNORED].tolist() for row in batch.labels] == [[4, 5], [49]]
    assert answer_tokens(examples) == 3
