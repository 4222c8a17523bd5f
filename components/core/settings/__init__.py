"""params.yaml as frozen, strict settings: one block per stage, an unknown key is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from components.core.settings.block import Block, Device, Name, explain_fault, explain_yaml, read_yaml
from components.core.settings.captions import Limits, Student, Synthesize, Task, Validate, WrittenTestSet
from components.core.settings.data import Base, Counts, Depends, Embed, Fit, Prepare, Scratch, WorldSettings
from components.core.settings.training import Card, Compare, Evaluate, Mix, Promote, Shards, Study, Train
from components.core.system.errors import InputError
from components.core.system.project import GO_THERE

__all__ = [
    "PARAMS", "Base", "Block", "Card", "Compare", "Counts", "Depends", "Embed", "Evaluate", "Fit", "Limits",
    "Mix", "Prepare", "Promote", "Scratch", "Settings", "Shards", "Student", "Study", "Synthesize", "Task",
    "Train", "Validate", "WrittenTestSet", "explain_fault", "load_settings", "parsed_settings",
]  # fmt: skip

PARAMS = Path("params.yaml")


class Settings(Block):
    """All of params.yaml."""

    dataset: WorldSettings
    device: Device = "auto"
    """Where stages train and embed; ranks of torchrun get a GPU each."""
    depends: Depends = Depends()
    prepare: Prepare
    base: Base
    embed: Embed
    students: dict[Name, Student] = Field(default_factory=dict)
    """Name of a student -> its settings; its adapter is `models/students/<name>`."""
    synthesize: Synthesize
    test_set: WrittenTestSet = WrittenTestSet()
    validation: Validate = Field(alias="validate")
    train: Train
    methods: dict[Name, dict[str, Any]]
    mixes: dict[Name, Mix] = Field(default_factory=dict)
    compare_encoders: tuple[Name, ...]
    evaluate: Evaluate
    compare: Compare
    promote: Promote
    study: Study = Study()


def load_settings(path: Path = PARAMS) -> Settings:
    """Read and check params.yaml.

    >>> load_settings(Path("params.yaml")).promote.metric
    'paraphrased_retrieval/ao_at_10'
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise InputError(f"{path} is missing: {GO_THERE}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not valid YAML: {explain_yaml(error)}") from None
    return parsed_settings(text, str(path))


def parsed_settings(text: str, subject: str) -> Settings:
    """The settings of a text of params.yaml; `subject` begins the message about one that is not valid."""
    try:
        raw = read_yaml(text)
    except yaml.YAMLError as error:
        raise InputError(f"{subject} is not valid YAML: {explain_yaml(error)}") from None
    if not isinstance(raw, dict):
        fault = "is empty" if raw is None else "has no blocks"
        raise InputError(f"{subject} {fault}: restore it, for example by `git checkout {PARAMS}`")
    try:
        return Settings.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"{subject}: {explain_fault(error, Settings)}") from None
