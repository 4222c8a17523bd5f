"""A student's training: when it is done, what counts in the loss, what is reported, and that a killed run goes on."""

from __future__ import annotations

import json
import math
import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.utils import _telemetry

from components.captions.prompting.task import completion
from components.captions.prompting.tasks import find_task
from components.captions.students.lessons import Lesson, chat_of
from components.captions.students.train import (
    ADAPTER,
    RECORD,
    StudentJob,
    code_hash,
    encode,
    find_job,
    fit,
    make_trainer,
    newest_checkpoint,
)
from components.core.compute.distributed import World
from components.core.settings import Settings, Student
from components.core.system.errors import InputError
from components.encoders.language_models.language_model import LanguageModel, load_language_model
from tests.support.tiny_language_model import save_tiny_language_model

COUNT = 18
"""Lessons; of an epoch's five batches the last is half empty."""
WORDS = ("dog", "cat", "sofa", "red", "small", "hat", "two", "long", "green", "kite")


def make_lessons(count: int, seed: int = 0) -> list[Lesson]:
    """Captions of a few words and other words for them."""
    rng = random.Random(seed)
    return [Lesson(find_task("paraphrase_1"), {"caption": _words(rng)}, _words(rng).capitalize()) for _ in range(count)]


def make_plan(**changes: Any) -> Student:
    given = {"tasks": ["paraphrase_1"], "teacher": ["teacher.tsv"], "batch_size": 4, "epochs": 2, "lr": 0.01}
    return Student.model_validate(given | {"checkpoint_every": 2, "acceptance": 0} | changes)


def load_tiny(base: Path) -> LanguageModel:
    return load_language_model(None, torch.float32, str(base))


def _words(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(2, 12)))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_language_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Killed(BaseException):
    """The process ends here."""


class Trained:
    """A run that may be killed when it reports a step."""

    def __init__(self, base: Path, name: str, kill_at: int | None = None, count: int = COUNT, **plan: Any) -> None:
        self.reported: list[dict[str, float]] = []
        self.kill_at = kill_at
        lessons = make_lessons(count)
        self.job = StudentJob(name, make_plan(**plan), Path("out"), lessons, "base-1")
        self.trainer = make_trainer(self.job, load_tiny(base), lessons, lessons[:5], World(), "cpu", self._report)
        with nullcontext() if kill_at is None else pytest.raises(Killed):
            self.steps = fit(self.trainer, self.job, World())

    def _report(self, metrics: dict[str, float], step: int) -> None:
        self.reported.append(metrics)
        if step == self.kill_at:
            raise Killed

    @property
    def losses(self) -> list[float]:
        return [metrics["train/loss"] for metrics in self.reported]

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        return {name: weights for name, weights in self.trainer.model.named_parameters() if weights.requires_grad}


def test_the_adapter_learns_the_answers_and_the_base_stays(base: Path) -> None:
    run = Trained(base, "one", epochs=4, rank=8)
    assert run.steps == len(run.reported) == 4 * math.ceil(COUNT / 4)
    assert all(metrics.keys() == {"train/loss", "train/lr", "train/gradient_norm"} for metrics in run.reported)
    with run.trainer.model.disable_adapter():
        before = run.trainer.evaluate()["eval_loss"]
    assert run.trainer.evaluate()["eval_loss"] < 0.9 * before
    fresh = {name: weights for name, weights in load_tiny(base).model.named_parameters() if "proj" not in name}
    kept = {name.removeprefix("base_model.model."): weights for name, weights in run.trainer.model.named_parameters()}
    assert all(torch.equal(weights, kept[name]) for name, weights in fresh.items())


@pytest.mark.parametrize(("kill_at", "first"), [(1, 1), (4, 3)])
def test_a_run_killed_in_its_first_epoch_ends_as_an_undisturbed_one(kill_at: int, first: int, base: Path) -> None:
    whole = Trained(base, "whole", epochs=1)
    Trained(base, "killed", kill_at, epochs=1)
    resumed = Trained(base, "killed", epochs=1)
    assert resumed.losses == whole.losses[first - 1 :]
    assert all(torch.equal(weights, whole.weights[name]) for name, weights in resumed.weights.items())


def test_a_later_epoch_resumes_too_and_a_half_written_checkpoint_is_passed_over(base: Path) -> None:
    killed = Trained(base, "killed", kill_at=9)
    folder = killed.job.checkpoints.folder
    assert {path.name for path in folder.glob("checkpoint-*")} == {"checkpoint-6", "checkpoint-8"}
    (folder / "checkpoint-8" / "trainer_state.json").unlink()
    assert newest_checkpoint(folder) == str(folder / "checkpoint-6")
    assert len(Trained(base, "killed").reported) == 4
    finished = Trained(base, "killed")
    assert (finished.steps, finished.reported) == (10, [])
    assert newest_checkpoint(folder / "none") is None


def test_small_pieces_have_the_models_own_loss_on_the_answers(base: Path) -> None:
    whole, pieces = Trained(base, "whole", epochs=1), Trained(base, "pieces", epochs=1, micro_batch=3)
    assert (whole.trainer.args.gradient_accumulation_steps, pieces.trainer.args.gradient_accumulation_steps) == (1, 2)
    assert pieces.losses == pytest.approx(whole.losses, rel=1e-4)
    run, loaded = (Trained(base, "one", epochs=1, batch_size=32, lr=1e-9), load_tiny(base))
    parts = []
    for row in encode(loaded.tokenizer, make_lessons(COUNT)):
        ids, labels = torch.tensor([row["input_ids"]]), torch.tensor(row["labels"])
        scores = loaded.model(ids).logits[0, :-1].log_softmax(-1)
        parts += [-scores[place, label] for place, label in enumerate(labels[1:]) if label >= 0]
    assert run.losses == pytest.approx([torch.stack(parts).mean().item()], rel=1e-3)


def test_a_loss_that_is_not_finite_and_a_batch_that_cannot_be_shared_are_refused(base: Path) -> None:
    with pytest.raises(InputError, match="broken: the loss is not finite at step 1: lower lr"):
        Trained(_broken(base), "broken")
    lessons = make_lessons(4)
    job = StudentJob("shared", make_plan(), Path("out"), lessons, "base-1")
    with pytest.raises(InputError, match="batch_size 4 cannot be shared by 3 ranks"):
        make_trainer(job, load_tiny(base), lessons, lessons, World(0, 3), "cpu", lambda *_: None)


def _broken(base: Path) -> Path:
    """The same model with scores that are not numbers."""
    loaded = load_tiny(base)
    loaded.model.lm_head.weight.data *= float("nan")
    loaded.model.save_pretrained("broken-base")
    loaded.tokenizer.save_pretrained("broken-base")
    return Path("broken-base")


def test_nothing_is_reported_to_the_makers_of_a_library(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    for setting in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setattr(f"huggingface_hub.constants.{setting}", False)
    monkeypatch.setattr(_telemetry, "_start_telemetry_thread", lambda: pytest.fail("it reports its use"))
    run = Trained(base, "one", epochs=1)
    assert (run.trainer.args.report_to, run.trainer.args.push_to_hub) == ([], False)


@pytest.fixture(scope="module")
def loaded(base: Path) -> LanguageModel:
    return load_tiny(base)


def _decoded(loaded: LanguageModel, lesson: Lesson) -> tuple[str, str]:
    """Question and answer of an encoded lesson; only the answer's tokens are labels."""
    (row,) = encode(loaded.tokenizer, [lesson])
    prompt = row["labels"].count(-100)
    assert row["labels"] == [-100] * prompt + row["input_ids"][prompt:]
    return loaded.tokenizer.decode(row["input_ids"][:prompt]), loaded.tokenizer.decode(row["input_ids"][prompt:])


def test_a_lesson_is_the_engines_question_then_the_answer_and_its_end(loaded: LanguageModel) -> None:
    (lesson,) = make_lessons(1)
    question = loaded.tokenizer.apply_chat_template(chat_of(lesson), tokenize=False, add_generation_prompt=True)
    assert question.startswith("<s><system>")
    assert _decoded(loaded, lesson) == (question, f"{lesson.answer}\n")


@pytest.mark.parametrize(("prompt", "continued"), [("Q: what?\nA:", " Good.</s>"), ("A: ", "Good.</s>")])
def test_a_completion_is_continued_without_a_template(loaded: LanguageModel, prompt: str, continued: str) -> None:
    task = replace(find_task("paraphrase_1"), messages=lambda _: completion(prompt))
    assert _decoded(loaded, Lesson(task, {"caption": "x"}, "Good.")) == (f"<s>{prompt}", continued)


def test_a_chat_template_that_does_not_fit_is_refused(loaded: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    for template, fault in (
        ("{{ raise_exception('no system here') }}", r"cannot render task 'paraphrase_1' \(no system here\)"),
        ("{{ messages | length }}", "changes a question after its answer"),
        (None, "cannot render task 'paraphrase_1'"),
    ):
        monkeypatch.setattr(loaded.tokenizer, "chat_template", template)
        with pytest.raises(InputError, match=fault) as caught:
            encode(loaded.tokenizer, make_lessons(1))
        assert "\n" not in str(caught.value)


@pytest.fixture
def teacher(tmp_path: Path) -> Path:
    (tmp_path / "set.tsv").write_text("caption\tparaphrase_1\nIMG dog\tA dog.\n")
    return tmp_path / "set.tsv"


def _job(folder: Path, lessons: int = 4, **changes: Any) -> StudentJob:
    return StudentJob("taught", make_plan(**changes), folder / "taught", make_lessons(lessons), "base-1")


def _finish(job: StudentJob, **more: str) -> None:
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / ADAPTER).write_bytes(b"weights")
    record = {"fingerprint": job.fingerprint, "base": job.base, "tasks": ["paraphrase_1"], **more}
    (job.folder / RECORD).write_text(json.dumps(record))


def test_changes_of_adapter_or_code_train_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = _job(tmp_path)
    assert not job.is_done()
    _finish(job)
    changing = {"lr": 0.5, "rank": 3, "epochs": 9, "batch_size": 2, "seed": 1, "held_out": 0.2, "base": "b"}
    assert not any(_job(tmp_path, **{name: value}).is_done() for name, value in changing.items())
    assert not _job(tmp_path, lessons=5).is_done()
    assert not StudentJob(job.name, job.student, job.folder, job.lessons, "base-2").is_done()
    others = {"processes": 2, "micro_batch": 1, "acceptance": 7, "merge": True, "checkpoint_every": 9}
    assert all(_job(tmp_path, **{name: value}).is_done() for name, value in others.items())
    assert job.checkpoints.folder == _job(tmp_path, processes=2).checkpoints.folder
    assert job.checkpoints.folder != _job(tmp_path, lr=0.5).checkpoints.folder
    (job.folder / ADAPTER).unlink()
    assert not job.is_done()
    _finish(job, code=code_hash())
    before = job.checkpoints.folder
    assert job.is_done()
    monkeypatch.setattr("components.captions.students.train.code_hash", lambda: "edited")
    assert not job.is_done()
    assert job.checkpoints.folder != before


def test_a_student_learns_the_wording_of_the_settings(settings: Settings, teacher: Path, tmp_path: Path) -> None:
    block, student = settings.synthesize, make_plan(tasks=["paraphrase_1"], teacher=[teacher])
    for prompt in ("own", "published"):
        asked = block.tasks["paraphrase_1"].model_copy(update={"prompt": prompt})
        changed = block.model_copy(update={"tasks": block.tasks | {"paraphrase_1": asked}})
        taught = settings.model_copy(update={"students": {"taught": student}, "synthesize": changed})
        (lesson,) = find_job(taught, "taught", tmp_path).lessons
        assert chat_of(lesson) == find_task("paraphrase_1").render({"caption": "IMG dog"}, prompt)


def test_the_record_holds_no_path_of_this_machine(teacher: Path, tmp_path: Path) -> None:
    job = _job(tmp_path, teacher=[teacher])
    config = {"base_model_name_or_path": str(tmp_path / "cache"), "target_modules": ["v_proj", "k_proj"], "r": 2}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    job.describe(tmp_path, 3, {"held_out": 1})
    written = json.loads((tmp_path / "adapter_config.json").read_text("utf-8"))
    base = "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert written == {"base_model_name_or_path": base, "target_modules": ["k_proj", "v_proj"], "r": 2}
    record = json.loads((tmp_path / RECORD).read_text("utf-8"))
    assert record["teacher"] == list(record["teacher_sha256"]) == ["set.tsv"]
    assert (record["examples"], record["held_out"], record["tasks"]) == (3, 1, ["paraphrase_1"])
    assert record["settings"]["lr"] == job.student.lr
    assert str(tmp_path) not in (tmp_path / RECORD).read_text("utf-8")
