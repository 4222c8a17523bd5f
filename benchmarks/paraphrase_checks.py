"""How many bad paraphrases of real captions does each check of validation let through, and how many good ones stop?

Reads the answers that a student wrote to Flickr8k's captions and a reader labelled, see
`benchmarks.paraphrase_labels`, and puts them to the checks of their tables with the limits of a profile. Photographs
have no facts as the scenes of the synthetic dataset have, so the check of facts is off. With a server, its
model judges each answer in both directions: does the answer mean the same as its source, and the source the same as
the answer? The last line is one JSON object.

    python -m benchmarks.paraphrase_checks [--llm http://127.0.0.1:8000/v1 --model name]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.paraphrase_labels import LABELS, TASKS, Labelled, read_captions, read_labels
from components.captions.generating.judging import MeaningJudge
from components.captions.generating.store import GenerationStore
from components.captions.validation.rules.measuring.probes import find_probes
from components.captions.validation.rules.table import Rule, add_columns, measured, row_rules
from components.captions.validation.rules.tables import find_table
from components.cli.commands.caption import server_options
from components.core.settings import Settings
from components.core.system.errors import run_command
from components.core.system.profiles import settings_with

_CONTEXT = 77
"""CLIP's, in tokens."""
_TRIED: dict[str, tuple[float, ...]] = {
    "similarity": (0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8),
    "few_new_words": (1, 2, 3, 4),
}
"""Smallest values allowed that are tried for a check, by its reason."""

Stopped = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Score:
    """The effect of a check, or of several together, on the labelled answers.

    Attributes:
        bad_let_through: bad answers that it lets through.
        good_stopped: good answers that it stops.
    """

    bad_let_through: int
    good_stopped: int

    @classmethod
    def of(cls, stopped: Stopped, is_good: Stopped) -> Score:
        """The score of a check that stops these answers."""
        return cls(int((~stopped & ~is_good).sum()), int((stopped & is_good).sum()))


def measure(labelled: Sequence[Labelled], settings: Settings) -> dict[str, tuple[pd.Series[Any], Rule | None]]:
    """The value of each check for the answers, and its rule; a check that leaves an answer alone has no value of it.

    Answers to several tasks share a check by its reason; `few_new_words` is of second paraphrases alone.
    """
    probes = find_probes(settings, Path("data/evaluation"))
    found: dict[str, list[pd.Series[Any]]] = {}
    rules: dict[str, Rule | None] = {}
    for task, name in TASKS.items():
        table, limits = find_table(name), settings.validation.limits(name)
        (answer,) = (answer for answer in table.answers if answer.task == task)
        rows = {place: one for place, one in enumerate(labelled) if one.task == task}
        given = {"caption": [one.caption for one in rows.values()]}
        given |= {
            answer.source: [one.source for one in rows.values()],
            answer.column: [o.answer for o in rows.values()],
        }
        frame = pd.DataFrame(given, index=list(rows), dtype=object).assign(row=list(rows), facts=None)
        alone = type(table)(table.table, (answer,), table.about)
        columns = add_columns(frame, alone, limits, probes, np.array([], np.int64))
        known = {rule.column: rule for rule in row_rules(alone, limits, _CONTEXT)}
        for check in (check for check in answer.checks if check.applies(limits) and check.reason != "fault"):
            column = measured(check.column, answer)
            found.setdefault(check.reason, []).append(columns[column])
            rules[check.reason] = known.get(column)
    return {
        reason: (pd.concat(values).reindex(range(len(labelled))), rules[reason]) for reason, values in found.items()
    }


def stopped_by(values: pd.Series[Any], rule: Rule | None) -> Stopped:
    """Which answers a rule stops; one without a value is kept."""
    if rule is None:
        return np.zeros(len(values), np.bool_)
    if rule.names_faults:
        return values.notna().to_numpy(np.bool_)
    numbers = values.to_numpy(np.float64)
    low = np.zeros(len(values), np.bool_) if rule.low is None else numbers < rule.low
    return low | (np.zeros(len(values), np.bool_) if rule.high is None else numbers > rule.high)


def judged(labelled: Sequence[Labelled], settings: Settings, url: str, model: str) -> Stopped:
    """The answers of which a model does not say "yes" in both directions."""
    server = {"engine": "server", **server_options(url, model).model_dump(mode="json", exclude_unset=True)}
    synthesize = settings.synthesize.model_copy(update={"llms": {"judge": server}})
    judge = MeaningJudge(settings.model_copy(update={"synthesize": synthesize}), "judge")
    pairs = [(one.source, one.answer) for one in labelled]
    with TemporaryDirectory() as folder, closing(GenerationStore(f"sqlite:///{folder}/store.db")) as store:
        judge.ask(store, lambda: pairs, "paraphrases", len(pairs))
        return np.array([reason is not None for reason in judge.faults(store, pairs)])


def run(
    labelled: Sequence[Labelled], settings: Settings, judge: Callable[..., Stopped] | None = None
) -> dict[str, Any]:
    """Scores of every check alone, of all together, and of other limits; counts of labels and of reasons."""
    is_good = np.array([one.label == "good" for one in labelled])
    columns = measure(labelled, settings)
    stops = {reason: stopped_by(values, rule) for reason, (values, rule) in columns.items()}
    every = np.logical_or.reduce(list(stops.values()))
    said = {} if judge is None else {"judge": judge(labelled, settings)}
    said |= {"all, and judge": every | said["judge"]} if said else {}
    tried = {
        f"{reason} >= {low:g}": stopped_by(columns[reason][0], Rule("", "", low))
        for reason, lows in _TRIED.items()
        for low in lows
    }
    checks = {reason: Score.of(stopped, is_good) for reason, stopped in stops.items()}
    return {
        "answers": len(labelled),
        "good": int(is_good.sum()),
        "bad": int((~is_good).sum()),
        "wrong": pd.Series([one.reason for one in labelled if one.reason]).value_counts().to_dict(),
        "by_task": {
            task: {"good": int((is_good & own).sum()), "bad": int((~is_good & own).sum())}
            for task in TASKS
            for own in [np.array([one.task == task for one in labelled])]
        },
        "checks": {reason: vars(score) for reason, score in checks.items()},
        "judge": {name: vars(Score.of(stopped, is_good)) for name, stopped in said.items()},
        "together": vars(Score.of(every, is_good)),
        "tried": {name: vars(Score.of(stopped, is_good)) for name, stopped in tried.items()},
        "tried_with_all": {name: vars(Score.of(stopped | every, is_good)) for name, stopped in tried.items()},
    }


def show(found: dict[str, Any]) -> None:
    """Print the scores as a table."""
    title = f"{found['answers']} answers, {found['good']} good and {found['bad']} bad"
    view = Table("check", f"bad let through, of {found['bad']}", f"good stopped, of {found['good']}", title=title)
    rows = found["checks"] | {"all together": found["together"]} | found["judge"] | found["tried"]
    rows |= {f"all, and {name}": score for name, score in found["tried_with_all"].items()}
    for name, score in rows.items():
        view.add_row(name, str(score["bad_let_through"]), str(score["good_stopped"]))
    Console().print(view)


def main(
    labels: Annotated[Path, typer.Option(help="The labelled answers.")] = LABELS,
    profile: Annotated[str, typer.Option(help="Its `validate` has the limits.")] = "flickr8k",
    llm: Annotated[str | None, typer.Option(help="URL of an OpenAI-compatible server whose model judges too.")] = None,
    model: Annotated[str, typer.Option(help="With --llm: the name of the model.")] = "",
) -> None:
    """Score the checks of validation on labelled paraphrases.

    Example: python -m benchmarks.paraphrase_checks --llm http://127.0.0.1:8000/v1 --model qwen
    """

    def command() -> None:
        judge = None if llm is None else partial(judged, url=llm, model=model)
        found = run(read_labels(read_captions(), labels), settings_with(profile), judge)
        show(found)
        print(json.dumps(found))

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
