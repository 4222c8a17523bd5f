"""The commands `cliptune answers ...`: inspect, export, import and prune the generation store, and compare writers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.cli.tables import AsJson, Yes, as_json_text, confirm, new_file, print_json, print_rows, say
from components.core.system.errors import InputError
from components.core.system.project import from_root, in_project

if TYPE_CHECKING:
    from components.captions.generating.store import GenerationStore, StoreStats
    from components.core.settings import Settings

# Other packages are imported inside the commands: `cliptune --help` must not wait for SQLAlchemy and Arrow.

store = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The store of all answers of language models.")

StoreUrl = Annotated[
    str | None, typer.Option("--store", help="SQLAlchemy URL of the store; by default synthesize.store.")
]
_WRITERS = Path("reports/writers")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


@store.command()
@in_project
def stats(
    url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Count answers by task and model, and failures by reason.

    Examples: cliptune answers stats; cliptune answers stats --json; cliptune answers stats --store postgresql://me@host/cliptune
    """
    with closing(_open(url)) as opened:
        found = opened.stats()
    if as_json:
        print_json(asdict(found))
    else:
        _print_stats(found)


@store.command("export")
@in_project
def export_file(
    path: Annotated[Path, typer.Argument(help="A new Parquet file.")],
    url: StoreUrl = None,
) -> None:
    """Write all answers to one Parquet file, sorted by task and key; another store can import it.

    Example: cliptune answers export generations.parquet
    """
    place = new_file(path)
    with closing(_open(url)) as opened:
        rows = opened.export_parquet(place)
    say(f"wrote {rows:,} answers to {path}")


@store.command("import")
@in_project
def import_files(
    paths: Annotated[
        list[Path], typer.Argument(help="Parquet files that `cliptune answers export` wrote, or files of a batch.")
    ],
    url: StoreUrl = None,
    batch: Annotated[
        bool, typer.Option("--batch", help="The files are a batch's results: its output files and its error files.")
    ] = False,
    profile: Annotated[
        str | None, typer.Option(help="With --batch: the profile that wrote the requests, if params.yaml did not.")
    ] = None,
) -> None:
    """Merge exports, or the results of a batch, into the store; existing answers stay unchanged.

    Examples: cliptune answers import generations.parquet; cliptune answers import night/*.parquet;
    cliptune answers import --batch output.jsonl errors.jsonl
    """
    files = [from_root(path) for path in paths]
    if missing := [path for path in files if not path.is_file()]:
        kind = "a batch's output or error file" if batch else "a file that `cliptune answers export` wrote"
        raise InputError(f"{missing[0]} is missing: name {kind}")
    if not batch and (lines := [path for path in files if path.suffix == ".jsonl"]):
        raise InputError(f"{lines[0]} is not an export of a store: add --batch if it holds a batch's results")
    with closing(_open(url, must_exist=False)) as opened:
        if batch:
            from components.captions.generating.batches import import_results
            from components.core.settings import load_settings
            from components.core.system.profiles import settings_with

            say(import_results(opened, settings_with(profile) if profile else load_settings(), files))
            return
        for path in files:
            say(f"{path}: {opened.import_parquet(path):,} new answers")


@store.command()
@in_project
def prune(
    url: StoreUrl = None,
    task: Annotated[str | None, typer.Option(help="Answers of this prompt task.")] = None,
    model: Annotated[str | None, typer.Option(help="Answers of this model, with its name in `stats`.")] = None,
    older_than: Annotated[
        str | None, typer.Option(help="Older than hours, days or weeks (12h, 30d, 4w) or than a date (2025-01-31).")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Records of failures instead of answers.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the number of matching answers; delete nothing.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Delete the answers that match all filters; a later run generates them again.

    A later run does not import `synthesize.cached_answers` again, which would restore them; `cliptune answers import`
    does.

    Examples: cliptune answers prune --task rewrite --dry-run; cliptune answers prune --model old-model --older-than
    30d; cliptune answers prune --failed
    """
    from components.captions.generating.store import Choice

    choice = Choice(task, model, _moment(older_than) if older_than is not None else None, failed)
    choice.check()
    with closing(_open(url)) as opened:
        unit = "failures" if failed else "answers"
        matching = opened.prune(choice, dry_run=True)
        for group in matching:
            say(f"{group.task}, {group.model}: {group.rows:,} {unit}")
        total = sum(group.rows for group in matching)
        if total and not dry_run:
            confirm(f"delete {total:,} {unit}?", yes)
            total = sum(group.rows for group in opened.prune(choice))
    say(f"{'would remove' if dry_run else 'removed'} {total:,} {unit}")


@store.command()
@in_project
def compare(
    writers: Annotated[list[str], typer.Argument(help="Two or more models, keys of synthesize.llms.")],
    task: Annotated[
        list[str] | None,
        typer.Option(help="A task that reads captions; by default paraphrase_1 and negate_semclip. Several times."),
    ] = None,
    captions: Annotated[int, typer.Option(min=1, help="Number of training captions.")] = 200,
    judge: Annotated[
        str | None, typer.Option(help="A key of synthesize.llms: this model judges whether meanings are the same.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the page and the values.")] = _WRITERS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the questions; ask nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare writers of captions on the same training captions, before one of them writes all.

    Answers are examined by the rules of `validate`, but for the facts of drawn scenes. They stay in the store, where
    stage `synthesize` finds them. A page shows twenty captions with each writer's answer.

    Examples: cliptune answers compare student llm --dry-run; cliptune answers compare student llm --captions 500
    --judge large; cliptune answers compare student llm --task rewrite --out reports/rewrites
    """
    from components.captions.writers import chosen_tasks, compare_writers
    from components.cli import writers_table as report
    from components.core.system.checking import load_checked
    from components.evaluation.report.formats import to_html, write_text
    from components.evaluation.scoring.terminal import print_results

    settings = load_checked(entries=())
    tasks = chosen_tasks(settings, task or [], judge)
    if dry_run:
        _print_plan(settings, writers, tasks, captions)
        return
    found = compare_writers(settings, writers, tasks, captions, judge)
    table, place = report.table_of(found), from_root(out, _WRITERS)
    values = {"values": report.values_of(table), "answers": found}
    write_text(place / "writers.html", to_html([table, report.side_by_side(found)], "Writers of captions"))
    write_text(place / "writers.json", as_json_text(values))
    if as_json:
        print_json(values)
        return
    print_results(table)
    say(f"page: {place / 'writers.html'}; values and all answers: {place / 'writers.json'}")


def _print_plan(settings: Settings, writers: Sequence[str], tasks: Sequence[str], captions: int) -> None:
    from components.captions.writers import engines_of, questions_to
    from components.cli.costing.questions import KnownAnswers

    known, rows = KnownAnswers(settings), []
    for writer, asked in questions_to(settings, engines_of(settings, writers), tasks, captions).items():
        questions = [one for each in asked.values() for one in each]
        answered = known.among(questions)
        rows.append((writer, *(f"{number:,}" for number in (len(questions), answered, len(questions) - answered))))
    columns = ("questions", "answered", "to ask")
    print_rows(("writer", *columns), rows, ", ".join(tasks), numbers=columns)
    say("a judge has at most two questions about each answer; `cliptune plan --cost` has the price of all captions")


def _open(url: str | None, must_exist: bool = True) -> GenerationStore:
    from components.captions.generating.store import GenerationStore
    from components.core.settings import load_settings

    return GenerationStore(url or load_settings().synthesize.store, must_exist=must_exist)


def _moment(text: str) -> datetime:
    number, unit, now = text[:-1], text[-1:], datetime.now(UTC)
    try:
        moment = now - int(number) * _UNITS[unit] if unit in _UNITS else datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise InputError(f"--older-than {text} is not an age: give for example 12h, 30d, 4w or 2025-01-31") from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    if moment >= now:
        raise InputError(
            f"--older-than {text} is not in the past, so it means every answer: give for example 12h or 30d"
        )
    return moment


def _print_stats(found: StoreStats) -> None:
    answers = [
        (group.task, group.model, group.oldest[:16], group.newest[:16], f"{group.rows:,}") for group in found.answers
    ]
    if answers:
        print_rows(("task", "model", "oldest", "newest", "rows"), answers, "answers", numbers=("rows",))
    failures = [(fault.task, fault.reason, f"{fault.rows:,}", f"{fault.attempts:,}") for fault in found.failures]
    if failures:
        print_rows(("task", "reason", "rows", "attempts"), failures, "failures", numbers=("rows", "attempts"))
    say(f"{found.rows:,} answers, {found.bytes / 1e6:,.1f} MB; store: {found.store}")
