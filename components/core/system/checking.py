"""Checks params.yaml as a whole: every name exists, and rooms accept their blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from components.core.settings import PARAMS, Settings, load_settings
from components.core.system.discovery import choose, in_rooms, names_in
from components.core.system.errors import InputError
from components.core.tables.records import SYNTHESISED

BASE = "base"
"""The encoder that is not made by a method."""


def load_checked(path: Path = PARAMS, entries: Sequence[str] | None = None) -> Settings:
    """`load_settings`, then `check_settings`."""
    settings = load_settings(path)
    check_settings(settings, entries)
    return settings


def check_settings(settings: Settings, entries: Sequence[str] | None = None) -> None:
    """`check_names`, then the function `check(settings, entries)` of each room that has a file `checks.py`.

    Args:
        entries: the entries of `methods` to check; None for all. Stages after `synthesize` check only those that they
            train, so they import no other method.
    """
    check_names(settings)
    for module in in_rooms("checks"):
        module.check(settings, entries)


def check_names(settings: Settings) -> None:
    """Check every name of a file of components/ or of another entry of params.yaml."""
    if not settings.compare_encoders:
        raise InputError(f"params.yaml: compare_encoders is empty: list '{BASE}' and the entries of methods to score")
    _check_mixes(settings)
    check_once(settings.compare_encoders, "compare_encoders")
    for encoder in settings.compare_encoders:
        choose([BASE, *settings.methods, *settings.mixes], encoder, "params.yaml: compare_encoders:")
    benchmarks = names_in("components.evaluation.benchmarks.project")
    check_once(settings.evaluate.benchmarks, "evaluate.benchmarks")
    for benchmark in settings.evaluate.benchmarks:
        choose(benchmarks, benchmark, "params.yaml: evaluate.benchmarks:")
    _check_promotion(settings)
    choose(names_in("components.data.sources"), settings.prepare.source, "params.yaml: prepare.source")
    _check_captions(settings)
    _check_study(settings)


def check_once(names: Iterable[str], key: str) -> None:
    """Raise InputError if a list of params.yaml names one of its entries more than once."""
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"params.yaml: {key} names '{name}' {count} times: name it once")


def _check_promotion(settings: Settings) -> None:
    """Check that `promote` names benchmarks of `evaluate.benchmarks` and tables of `validate.tables`."""
    promote, scored = settings.promote, list(settings.evaluate.benchmarks)
    guards = promote.active_guards
    metrics = (("metric", [promote.metric]), ("guards", guards), ("require_benchmarks", promote.require_benchmarks))
    for key, names in metrics:
        for name in names:
            choose(scored, name.partition("/")[0], f"params.yaml: promote.{key}: evaluate.benchmarks:")
    for table in promote.require_valid_tables:
        choose(list(settings.validation.tables), table, "params.yaml: promote.require_valid_tables: validate.tables:")


def _check_mixes(settings: Settings) -> None:
    """Check that every mix is made of entries before it, so that none contains itself."""
    known = list(settings.methods)
    for name, mix in settings.mixes.items():
        if name in (BASE, *known):
            raise InputError(f"params.yaml: mixes.{name} would replace another encoder: rename it")
        for member in (mix.a, mix.b):
            choose(known, member, f"params.yaml: mixes.{name}:")
        known.append(name)


def _check_study(settings: Settings) -> None:
    study = settings.study
    check_once(study.encoders, "study.encoders")
    scored = [encoder for encoder in settings.compare_encoders if encoder in settings.methods]
    for encoder in study.encoders:
        choose(scored, encoder, "params.yaml: study.encoders:")
    for name in study.mixes:
        choose([mix for mix in settings.mixes if mix in settings.compare_encoders], name, "params.yaml: study.mixes:")
        for member in (settings.mixes[name].a, settings.mixes[name].b):
            choose([*study.encoders], member, f"params.yaml: study.encoders lacks a member of study.mixes.{name}:")
    seeds = [settings.train.seed, *study.seeds]
    if len(set(seeds)) < len(seeds):
        raise InputError(f"params.yaml: study.seeds and train.seed contain a seed twice: {seeds}")


def _check_captions(settings: Settings) -> None:
    wanted, tasks = settings.synthesize, names_in("components.captions.prompting.tasks")
    engines = names_in("components.captions.generating.engines")
    for name, model in wanted.llms.items():
        choose(engines, str(model.get("engine")), f"params.yaml: synthesize.llms.{name}.engine")
    choose(list(wanted.llms), wanted.default_llm, "params.yaml: synthesize.default_llm")
    for key in ("llm", "judge_llm"):
        if (chosen := getattr(settings.test_set, key)) is not None:
            choose(list(wanted.llms), chosen, f"params.yaml: test_set.{key}: synthesize.llms:")
    for name, task in wanted.tasks.items():
        choose(tasks, name, "params.yaml: synthesize.tasks:")
        choose(list(wanted.llms), wanted.model_of(task), f"params.yaml: synthesize.tasks.{name}.llm")
        if task.judge_llm is not None:
            choose(list(wanted.llms), task.judge_llm, f"params.yaml: synthesize.tasks.{name}.judge_llm")
        choose(list(settings.validation.tables), task.table, f"params.yaml: synthesize.tasks.{name}.table")
        before = wanted.before(name)
        if task.samples > 1 and before is not None and wanted.tasks[before].table == task.table:
            raise InputError(
                f"params.yaml: synthesize.tasks.{name}.samples: it has one answer to each of '{before}', in one row: "
                f"remove the key, or raise synthesize.tasks.{before}.samples"
            )
    for table in settings.validation.tables:
        choose(sorted(SYNTHESISED), table, "params.yaml: validate.tables:")
