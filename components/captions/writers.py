"""Compares writers of captions, keys of `synthesize.llms`, by their answers about the same captions.

Their questions are those of stage `synthesize`, so that it finds the answers in the store.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, islice

from components.captions.generating.asking import MeaningJudge, ask, outcomes
from components.captions.generating.engines import Engine, make_engine
from components.captions.generating.questions import first_questions, import_replay
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import Request
from components.captions.prompting.tasks import find_task
from components.captions.students.lessons import UNPARSABLE, Examiner
from components.captions.synthesize import priced
from components.core.settings import Settings
from components.core.system.discovery import choose
from components.core.system.errors import InputError
from components.core.system.progress import track
from components.core.tables.records import PAIRS

USUAL = ("paraphrase_1", "negate_semclip")
"""Tasks that are compared where params.yaml has them."""


@dataclass(frozen=True)
class Written:
    """A writer's answer about a caption.

    Attributes:
        text: None without a usable answer.
        reasons: those of the rules that reject it; without a text `unparsable`, or `failed: ...`.
        similarity: to the caption; None if it is not measured.
        same: whether the judge says that both mean the same; None without a judge.
    """

    image: str
    caption: str
    text: str | None
    reasons: tuple[str, ...]
    similarity: float | None
    same: bool | None = None

    @property
    def rules(self) -> set[str]:
        """The names of the rules, without their findings."""
        return {reason.partition(":")[0] for reason in self.reasons}


Answers = Mapping[str, Mapping[str, Sequence[Written]]]
"""Task -> writer -> answers, in the order of the captions, which is the same for all writers of a task."""


def chosen_tasks(settings: Settings, given: Sequence[str], judge: str | None = None) -> list[str]:
    """The tasks to compare: those given, or the usual ones; each must read the captions themselves."""
    block = settings.synthesize
    for name in given:
        choose(list(block.tasks), name, "params.yaml: synthesize.tasks:")
        if find_task(name).inputs != ("caption",) or block.before(name) is not None:
            raise InputError(
                f"task '{name}' does not read captions alone, so each writer would get other questions: leave it out"
            )
    if judge is not None:
        choose(list(block.llms), judge, "--judge: synthesize.llms:")
    found = list(dict.fromkeys(given)) or [name for name in USUAL if name in block.tasks]
    if not found:
        raise InputError(f"params.yaml: synthesize.tasks has none of {', '.join(USUAL)}: give --task")
    if judge is not None and not any(find_task(name).keeps_meaning for name in found):
        raise InputError(f"answers to {', '.join(found)} do not mean the same as their captions: leave out --judge")
    return found


def engines_of(settings: Settings, writers: Sequence[str]) -> dict[str, Engine]:
    """The engine of each writer, unloaded; two or more, which must be different models."""
    if len(writers) < 2:
        raise InputError("give two writers or more, keys of synthesize.llms in params.yaml")
    engines, models = dict[str, Engine](), dict[str, str]()
    for name in writers:
        choose(list(settings.synthesize.llms), name, "params.yaml: synthesize.llms:")
        if name in engines:
            raise InputError(f"writer '{name}' is given twice: give each once")
        engines[name] = engine = make_engine(settings.synthesize, name)
        if (other := models.setdefault(engine.model, name)) != name:
            raise InputError(f"'{other}' and '{name}' are one model, {engine.model}: the store has one answer of both")
    return engines


def questions_to(
    settings: Settings, engines: Mapping[str, Engine], tasks: Sequence[str], captions: int
) -> dict[str, dict[str, list[Request]]]:
    """Writer -> task -> one question about each of the first captions that every writer can answer, at most so many."""
    block, found = settings.synthesize, dict[str, dict[str, list[Request]]]()
    for name in tasks:
        most = max(captions, block.tasks[name].max_captions or block.max_captions)
        of = {writer: first_questions(settings, name, engine, most) for writer, engine in engines.items()}
        sources = (request.source for request in next(iter(of.values())).read())
        able = (source for source in sources if all(each.answerable(each.about(source, 0)) for each in of.values()))
        chosen = list(islice(able, captions))
        if not chosen:
            raise InputError(
                f"{block.tasks[name].input} has no caption that task '{name}' accepts and every writer can answer: see "
                "its caption_length, and the captions of an engine 'table'"
            )
        for writer, questions in of.items():
            found.setdefault(writer, {})[name] = [questions.about(source, 0) for source in chosen]
    return found


def compare_writers(
    settings: Settings, writers: Sequence[str], tasks: Sequence[str], captions: int, judge: str | None = None
) -> Answers:
    """Ask each writer through the generation store, then the judge about usable answers, and examine all of them."""
    asked, examiner = questions_to(settings, engines_of(settings, writers), tasks, captions), Examiner(settings)
    meaning = None if judge is None else MeaningJudge(settings, judge)
    with closing(GenerationStore(settings.synthesize.store)) as store:
        import_replay(store, settings)
        for writer in writers:
            # Dropped with its model once it has answered.
            engine, requests = make_engine(settings.synthesize, writer), list(chain(*asked[writer].values()))
            counts = priced(ask(store, engine, requests, writer, len(requests)), settings, writer)
            cost = f", cost {counts.cost:.2f}" if counts.cost else ""
            print(f"{writer}: {counts.generated:,} new answers, {counts.replayed:,} stored{cost}", file=sys.stderr)
        pairs = [(task, writer) for task in tasks for writer in writers]
        found: dict[str, dict[str, list[Written]]] = {task: {} for task in tasks}
        for task, writer in track(pairs, "rules", len(pairs), "writer"):
            found[task][writer] = _examined(settings, store, examiner, asked[writer][task])
        if meaning is None:
            return found
        return {task: _judged(settings, store, meaning, task, of) for task, of in found.items()}


def _examined(
    settings: Settings, store: GenerationStore, examiner: Examiner, asked: Sequence[Request]
) -> list[Written]:
    task, found, images = find_task(asked[0].task), list(outcomes(store, asked)), dict[str, str]()
    wanted = {request.source.id for request in asked}
    for block in PAIRS.blocks(settings.synthesize.tasks[task.name].input, ["id", "image_id"]):
        images |= {row["id"]: row["image_id"] for row in block.to_pylist() if row["id"] in wanted}
        if len(images) == len(wanted):
            break
    texts = [None if answer is None else task.parse(answer) for _, answer, _ in found]
    examined = examiner.examine(task, [(one.source.inputs, text) for one, text in zip(asked, texts, strict=True)])
    rows = []
    for (request, _, failure), text, one in zip(found, texts, examined, strict=True):
        lacks = UNPARSABLE if failure is None else f"failed: {failure}"
        reasons, source = one.reasons if text is not None else (lacks,), request.source
        rows.append(Written(images[source.id], source.inputs["caption"], text, reasons, one.similarity))
    return rows


def _judged(
    settings: Settings, store: GenerationStore, judge: MeaningJudge, task: str, of: Mapping[str, Sequence[Written]]
) -> dict[str, list[Written]]:
    """The answers with the judge's verdicts, of a task whose answers mean the same as its captions."""
    if not find_task(task).keeps_meaning:
        return {writer: list(rows) for writer, rows in of.items()}
    pairs = [(one.caption, one.text) for rows in of.values() for one in rows if one.text is not None]
    counts = judge.ask(store, lambda: pairs, task, len(pairs))
    counts.check_failed("judge", settings.synthesize.max_failed_share, "synthesize.max_failed_share")
    same = {pair for pair, fault in zip(pairs, judge.faults(store, pairs), strict=True) if fault is None}
    return {writer: [replace(one, same=(one.caption, one.text) in same) for one in rows] for writer, rows in of.items()}
