"""Stage `synthesize`: have a language model answer one task's question about every row, each question once."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from components.captions.generating.asking import (
    MeaningJudge,
    SynthesisCounts,
    ask,
    outcomes,
    revisions,
    usable_pairs,
    write_answers,
)
from components.captions.generating.batches import write_requests
from components.captions.generating.engines import Engine, engine_of
from components.captions.generating.questions import Questions, import_replay, questions_of
from components.captions.generating.store import GenerationStore
from components.core.settings import Settings
from components.core.system.checking import load_checked
from components.core.system.errors import InputError
from components.core.system.profiles import settings_with
from components.core.system.project import from_root, in_project, start
from components.core.tables.work_shard import Shard
from components.core.tracking import tracked_run

OUTPUT = Path("data/captions")


def run(
    settings: Settings, name: str, output: Path = OUTPUT, *, fresh: bool = False, shard: Shard | None = None
) -> SynthesisCounts:
    """Write `<table>/<task>.parquet` with one row per question, and return the counts.

    With a `shard` only its questions are answered and stored; a later run without a shard writes the table.
    """
    engine = engine_of(settings.synthesize, name)
    questions = questions_of(settings, name, engine)
    who, judge_llm = settings.synthesize.model_of(questions.options), questions.options.judge_llm
    judge = None if judge_llm is None else MeaningJudge(settings, judge_llm)
    with closing(GenerationStore(settings.synthesize.store)) as store:
        if not fresh:
            import_replay(store, settings)
        counts = priced(_ask(store, engine, questions, shard), settings, who)
        print(f"{name}: {counts.generated:,} new answers by '{who}', {counts.replayed:,} from the store")
        faults = None
        if judge is not None:
            judged = judge.ask(store, lambda: usable_pairs(store, questions, shard), name, counts.total)
            print(f"{name}: {judged.generated:,} new verdicts by '{judge.llm}', {judged.replayed:,} from the store")
            counts += priced(judged, settings, judge.llm)
            faults = partial(judge.faults, store)
        if shard is None:
            counts.rejected = write_answers(output / settings.synthesize.answers(name), store, questions, faults)
    counts.skipped = sum(questions.skipped.values())
    print(f"{name}{f' shard {shard}' if shard else ''}: {counts}")
    if shard is None:
        counts.check_failed(name, settings.synthesize.max_failed_share, "synthesize.max_failed_share")
    return counts


def run_tracked(settings: Settings, name: str, *, fresh: bool = False) -> None:
    """`run` as an MLflow run, with the counts as metrics; an error ends it as failed."""
    task = settings.synthesize.tasks[name]
    params = task.model_dump(mode="json") | {"model": settings.synthesize.model_of(task)}
    with tracked_run("synthesize", name, settings, params, {}) as tracked:
        begun = time.monotonic()
        counts = run(settings, name, fresh=fresh)
        tracked.log_metrics({metric: value for metric, value in vars(counts).items() if metric != "cost" or value})
        tracked.log_speed(counts.replayed + counts.generated, begun)
        tracked.log_output(OUTPUT / settings.synthesize.answers(name))


def priced(counts: SynthesisCounts, settings: Settings, llm: str) -> SynthesisCounts:
    """The counts with the cost of the new answers, if the model's `prices` are known."""
    if (prices := settings.synthesize.llms[llm].get("prices")) is not None:
        counts.cost = (counts.tokens_in * prices[0] + counts.tokens_out * prices[1]) / 1e6
    return counts


def _ask(store: GenerationStore, engine: Engine, questions: Questions, shard: Shard | None) -> SynthesisCounts:
    title, most = questions.task.name, questions.most // (shard.of if shard else 1)
    counts = ask(store, engine, questions.read(shard), title, most)
    if questions.task.judges is not None:
        counts += ask(store, engine, revisions(store, questions, shard), f"{title}: revisions", None)
    return counts


@in_project
def main(
    task: Annotated[str | None, typer.Option(help="A key of synthesize.tasks; all of them when not given.")] = None,
    fresh: Annotated[bool, typer.Option(help="Do not import synthesize.cached_answers first.")] = False,
    shard: Annotated[
        str | None, typer.Option(help="Only this share of the rows, such as 0/4; answers go only to the store.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the unanswered questions; generate nothing.")
    ] = False,
    batch_out: Annotated[
        Path | None,
        typer.Option(help="With --task: write its unanswered questions to this new file for a batch API; ask nothing."),
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Profile to apply over params.yaml, without writing it.")] = None,
    export: Annotated[Path | None, typer.Option(help="Write the whole store to this Parquet file afterwards.")] = None,
) -> None:
    """Ask a language model a task's question about every row of its input table.

    Examples: python -m components.captions.synthesize --task paraphrase_1; ... --task paraphrase_1 --shard 0/4;
    ... --task paraphrase_1 --dry-run; ... --task paraphrase_1 --batch-out requests.jsonl
    """
    settings = load_checked() if profile is None else settings_with(profile)
    chosen = Shard.parse(shard) if shard is not None else None
    if batch_out is not None and task is None:
        raise InputError("--batch-out writes the questions of one task: add --task, a key of synthesize.tasks")
    for name in [task] if task is not None else settings.synthesize.tasks:
        if dry_run:
            print(_plan(settings, name))
        elif batch_out is not None:
            with closing(GenerationStore(settings.synthesize.store)) as store:
                if not fresh:
                    import_replay(store, settings)
                print(write_requests(from_root(batch_out), store, settings, name, chosen))
        elif chosen is not None or name not in settings.synthesize.tasks:
            run(settings, name, fresh=fresh, shard=chosen)
        else:
            run_tracked(settings, name, fresh=fresh)
    if export is not None:
        with closing(GenerationStore(settings.synthesize.store)) as store:
            print(f"wrote {store.export_parquet(from_root(export))} generations to {export}")


def _plan(settings: Settings, name: str) -> str:
    questions = questions_of(settings, name, engine_of(settings.synthesize, name))
    total = stored = 0
    with closing(GenerationStore(settings.synthesize.store)) as store:
        for _, answer, _ in outcomes(store, questions.read()):
            total += 1
            stored += answer is not None
    judge = questions.options.judge_llm
    return (
        f"{name}: {total} questions to {questions.model}, {stored} of them answered, at most {total - stored} to ask"
        + ("" if judge is None else f"; at most {2 * total} verdicts by '{judge}'")
    )


if __name__ == "__main__":
    start(main)
