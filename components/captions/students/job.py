"""One student's training job: its lessons, its files and its record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from components.captions.students.lessons import STATE, Lesson, hash_of, lessons_of, teacher_files
from components.core.compute.checkpoint import Checkpoints
from components.core.compute.provenance import hash_of_code
from components.core.settings import Settings, Student
from components.core.system.errors import InputError
from components.core.tables.files import content_hash, file_hash, write_json
from components.encoders.language_models.language_model import BASE_NAME, revision_of

ADAPTER, RECORD = "adapter_model.safetensors", "student.json"
_UNCHANGING = {
    "acceptance", "captions", "checkpoint_every", "merge", "micro_batch", "per_task", "processes", "tasks", "teacher",
}  # fmt: skip
"""Settings that do not change the adapter, or do so by the lessons alone."""


@dataclass(frozen=True)
class StudentJob:
    """A student to train."""

    name: str
    student: Student
    folder: Path
    lessons: list[Lesson]
    base: str

    @cached_property
    def lessons_hash(self) -> str:
        """Hash of the questions and answers."""
        return hash_of(self.lessons)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with everything that the adapter depends on."""
        return content_hash(self.student.model_dump_json(exclude=_UNCHANGING), self.base, self.lessons_hash)

    @property
    def checkpoints(self) -> Checkpoints:
        """Checkpoints of this fingerprint and of the current code."""
        return Checkpoints(STATE / self.name / f"checkpoints-{content_hash(self.fingerprint, code_hash())[:16]}")

    @property
    def inputs(self) -> dict[str, Path]:
        """The files that it learns from, by name."""
        return {file.stem: file for file in teacher_files(self.name, self.student)}

    def is_done(self) -> bool:
        """Whether its adapter exists, with the same settings, base, lessons and (where recorded) code."""
        record = read_record(self.folder)
        same = record.get("fingerprint") == self.fingerprint and record.get("code", code_hash()) == code_hash()
        return same and (self.folder / ADAPTER).is_file()

    def describe(self, folder: Path, examples: int, measured: Mapping[str, Any]) -> None:
        """Write the record of the adapter to `folder`."""
        # peft writes a path of the base, which may exist only on this machine.
        config = json.loads((folder / "adapter_config.json").read_text("utf-8"))
        named = {"base_model_name_or_path": self.student.base or BASE_NAME}
        write_json(
            folder / "adapter_config.json", config | named | {"target_modules": sorted(config["target_modules"])}
        )
        teacher = self.student.teacher
        record = {
            "base": self.base,
            "teacher": teacher if isinstance(teacher, str) else [file.name for file in teacher],
            "teacher_sha256": {path.name: file_hash(path) for path in self.inputs.values()},
            "lessons_sha256": self.lessons_hash,
            "tasks": sorted({lesson.task.name for lesson in self.lessons}),
            "examples": examples,
            "settings": self.student.model_dump(mode="json", exclude={"tasks", "teacher"}),
            "fingerprint": self.fingerprint,
            "code": code_hash(),
            **measured,
            "date": datetime.now(UTC).date().isoformat(),
        }
        write_json(folder / RECORD, record)


@cache
def code_hash() -> str:
    """Hash of the files that compute an adapter, without docstrings and comments."""
    return hash_of_code(*(Path(__file__).parent / name for name in ("train.py", "trainer.py")))


def find_student(settings: Settings, name: str) -> Student:
    """The settings that params.yaml has under `students.<name>`; raises `InputError` if there is no such block."""
    if name not in settings.students:
        known = ", ".join(settings.students) or "none"
        raise InputError(f"params.yaml has no block students.{name}: add one, or choose one of {known}")
    return settings.students[name]


def find_job(settings: Settings, name: str, output: Path) -> StudentJob:
    """The job of the student called `name`, whose folder is below `output`."""
    student = find_student(settings, name)
    lessons = lessons_of(settings, name, student)
    return StudentJob(name, student, output / name, lessons, revision_of(None, student.base))


def read_record(folder: Path) -> dict[str, Any]:
    """The record of the adapter in `folder`; empty where it is missing or broken."""
    try:
        record: dict[str, Any] = json.loads((folder / RECORD).read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return record
