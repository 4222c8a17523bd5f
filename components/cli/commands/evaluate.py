"""The commands `cliptune evaluate`, `rank`, `table` and `encoders`: scores of encoders, and open_clip's weights."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from components.cli.tables import AsJson, Device, encoder_names, new_file, print_json, print_rows, say
from components.core.system.errors import InputError, reported
from components.core.system.project import from_root, in_project

if TYPE_CHECKING:
    from components.evaluation.benchmarks.published import PublishedBenchmark
    from components.evaluation.scoring.published import BenchmarkRun

_DATA, _RESULTS, _RANKING = Path("data/benchmarks"), Path("reports/published"), Path("reports/ranking.html")

# Other packages are imported inside the commands: `cliptune --help` must not wait for torch.


@in_project
def evaluate(
    encoder: Annotated[
        list[str] | None,
        typer.Option(
            help="Encoder: a folder (models/paraclip), a run id, text-encoder@champion, open_clip's name:tag or "
            "name:file, or the folder of a sentence encoder. May be given several times."
        ),
    ] = None,
    benchmark: Annotated[
        list[str] | None,
        typer.Option(help="A benchmark, family such as sts, or collection. May be given several times."),
    ] = None,
    data_dir: Annotated[Path, typer.Option(help="Root folder of the benchmarks' data sets.")] = _DATA,
    results: Annotated[Path, typer.Option(help="Folder of the results.")] = _RESULTS,
    benchmark_option: Annotated[
        list[str] | None, typer.Option(help="Option of a benchmark, such as judge=llm; see --list.")
    ] = None,
    allow_partial: Annotated[
        bool,
        typer.Option("--allow-partial", help="Accept data that differs from the published data; results are marked."),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Recompute existing results.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the benchmarks that would be scored and the missing data.")
    ] = False,
    precision: Annotated[
        Literal["fp32", "bf16", "int8"],
        typer.Option(
            help="Number format: bf16 of both towers, int8 of the text tower; results are stored as <encoder>-bf16."
        ),
    ] = "fp32",
    device: Device = "auto",
    list_all: Annotated[bool, typer.Option("--list", help="List benchmarks, families and collections.")] = False,
    as_json: AsJson = False,
) -> None:
    """Score encoders on published benchmarks; existing results are reused.

    Examples: cliptune evaluate --list

    cliptune evaluate --encoder paraclip --encoder base --benchmark coco_p --data-dir /data/benchmarks

    cliptune evaluate --encoder base --benchmark sts --json

    cliptune evaluate --encoder ViT-B-32-quickgelu:openai --benchmark paraclip --data-dir /data/benchmarks --dry-run

    cliptune evaluate --encoder base --benchmark coco_p --data-dir /data/benchmarks --precision bf16
    """
    if list_all:
        _list(as_json)
        return
    if not encoder or not benchmark:
        raise InputError("give --encoder and --benchmark; --list shows all benchmarks")
    names = encoder_names(encoder)
    options = _options(benchmark_option or [])
    chosen = _chosen(benchmark)
    from components.evaluation.scoring.published import Plan, run_all
    from components.registry.encoder_lookup import find_encoder

    places = from_root(data_dir, _DATA), from_root(results, _RESULTS)
    plan = Plan(*places, overwrite, allow_partial, options=options, dry_run=dry_run)
    outcomes: dict[str, list[BenchmarkRun]] = {}
    for name in names:
        outcomes[name] = run_all(find_encoder(name, precision=precision, device=device), chosen, plan)
    if as_json:
        print_json({name: [_as_json(outcome) for outcome in done] for name, done in outcomes.items()})
    else:
        for name, done in outcomes.items():
            _show(name, done)
    if any(outcome.state == "failed" for done in outcomes.values() for outcome in done):
        raise SystemExit(1)


@in_project
def rank(
    encoders: Annotated[list[str], typer.Argument(help="Two encoders or more, named as in `cliptune evaluate`.")],
    benchmark: Annotated[
        list[str] | None,
        typer.Option(help="A benchmark of evaluate.benchmarks; by default all usual ones that have a table."),
    ] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Rank encoders on the test pictures of params.yaml, with groups that are not distinguishable.

    Requires the stage `prepare`, and `test_set` where a model writes the queries; nothing is trained. Encoders that
    share a letter do not differ significantly: paired permutation tests of all pairs, corrected by Holm, at 5%.

    Examples: cliptune rank base paraclip leaf

    cliptune rank ViT-B-32-quickgelu:openai ViT-B-16-SigLIP2:webli hf-hub:org/name --benchmark paraphrased_retrieval
    """
    if len(encoders) < 2:
        raise InputError("give at least two encoders")
    names = encoder_names(encoders)
    from components.core.system.checking import load_checked
    from components.evaluation.report.formats import to_html, write_text
    from components.evaluation.report.published.tables import ranking_tables
    from components.evaluation.scoring import ranking
    from components.evaluation.scoring.terminal import print_results
    from components.registry.encoder_lookup import find_encoder

    settings = load_checked(entries=())
    chosen = ranking.chosen_benchmarks(benchmark or [])
    scored = ranking.score_encoders((find_encoder(name, device=device) for name in names), chosen, settings)
    rankings = ranking.rank(scored, chosen, settings.evaluate.seed)
    tables = ranking_tables(rankings)
    write_text(from_root(_RANKING), to_html(tables, "Ranking of encoders"))
    if as_json:
        print_json([asdict(one) for one in rankings])
        return
    print_results(*tables)
    say(f"page: {_RANKING}; values per query: reports/rank")


@in_project
def table(
    collection: Annotated[
        str | None,
        typer.Option(help="Tables of a paper with its published figures: paraclip, pc-clip, adapting, semclip."),
    ] = None,
    form: Annotated[
        Literal["csv", "markdown", "html"], typer.Option("--format", help="Format of the table.")
    ] = "markdown",
    results: Annotated[Path, typer.Option(help="Folder of the results.")] = _RESULTS,
    output: Annotated[Path | None, typer.Option(help="A new file; by default the terminal.")] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Baseline: compare every encoder with this one on the same queries.")
    ] = None,
    groups: Annotated[bool, typer.Option("--groups", help="Also print values by group of queries.")] = False,
) -> None:
    """Build a table of the results on published benchmarks.

    Examples: cliptune table

    cliptune table --baseline base

    cliptune table --collection paraclip --format html --output paraclip.html
    """
    from components.evaluation.report import formats
    from components.evaluation.report.published import tables
    from components.evaluation.report.published.paper_tables import find_collection
    from components.evaluation.scoring.results import all_published

    place = from_root(results, _RESULTS)
    written = None if output is None else new_file(output)
    reports = all_published(place)
    if collection is not None:
        text = formats.FORMATS[form](tables.paper_tables(find_collection(collection), reports))
    elif not reports:
        raise InputError(f"{place} has no results: run `cliptune evaluate` first")
    elif baseline is not None:
        text = formats.FORMATS[form](tables.paired_tables(reports, baseline, place, groups=groups))
    else:
        text = formats.FORMATS[form](tables.metric_tables(reports, groups=groups))
    if written is None:
        say(text, nl=False)
        return
    formats.write_text(written, text)
    say(f"wrote {output}")


@reported
def encoders(
    pattern: Annotated[str, typer.Argument(help="Only names or tags with these letters.")] = "", as_json: AsJson = False
) -> None:
    """List the weights that open_clip publishes, whether they can be a base, and how they read pictures and texts.

    Nothing is loaded or fetched. A base is set by base.source: open_clip, base.model and base.pretrained.

    Examples: cliptune encoders; cliptune encoders siglip2; cliptune encoders --json
    """
    from open_clip import list_pretrained

    from components.training.base.published import facts_of

    wanted = [pair for pair in list_pretrained() if pattern.lower() in ":".join(pair).lower()]
    rows = [facts_of(*pair) for pair in wanted]
    if as_json:
        print_json(rows)
        return
    accepted = sum(row["accepted"] for row in rows)
    columns = ("name", "tag", "pixels", "resize", "tokenizer", "context", "trims", "loss", "reason of a refusal")
    cells = ((row["name"], row["tag"], *_base_cells(row), row["reason"]) for row in rows)
    print_rows(columns, cells, f"{accepted} of {len(rows)} weights can be a base", numbers=("pixels", "context"))


def _options(entries: list[str]) -> dict[str, Any]:
    from components.registry.encoder_names import name_from_root

    options: dict[str, Any] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise InputError(f"--benchmark-option '{entry}' is not name=value, such as judge=llm")
        file = from_root(Path(value))
        options[name] = str(file) if file.is_file() else name_from_root(value)
    return options


def _chosen(names: list[str]) -> list[PublishedBenchmark]:
    from components.core.system.discovery import choose
    from components.evaluation.benchmarks.published import published_benchmarks

    benchmarks, together = published_benchmarks(), _together()
    chosen: dict[str, PublishedBenchmark] = {}
    for name in names:
        choose([*benchmarks, *together], name, "--benchmark")
        chosen |= {member: benchmarks[member] for member in together.get(name, [name])}
    return list(chosen.values())


def _together() -> dict[str, list[str]]:
    """Families and collections, each with its benchmarks."""
    from components.evaluation.benchmarks.published import published_families
    from components.evaluation.report.published.paper_tables import collection_names, find_collection

    return published_families() | {name: find_collection(name).benchmarks for name in collection_names()}


def _list(as_json: bool) -> None:
    from components.evaluation.benchmarks.published import published_benchmarks

    benchmarks = published_benchmarks()
    if as_json:
        facts = ("name", "version", "folder", "text_only", "protocol", "citation")
        listed = [
            {key: getattr(benchmark, key) for key in facts} | {"options": dict(benchmark.options)}
            for benchmark in benchmarks.values()
        ]
        print_json({"benchmarks": listed, "together": _together()})
        return
    rows = []
    for name, benchmark in benchmarks.items():
        sees = "no" if benchmark.text_only else "yes"
        options = "; ".join(f"{key}: {meaning}" for key, meaning in benchmark.options.items())
        rows.append((name, str(benchmark.version), benchmark.folder, sees, benchmark.protocol, options))
    print_rows(("benchmark", "version", "folder", "shows images", "protocol", "options"), rows)
    for name, members in _together().items():
        say(f"{name}: {', '.join(members)}")


def _as_json(outcome: BenchmarkRun) -> dict[str, Any]:
    report = None if outcome.report is None else outcome.report.model_dump(mode="json")
    return {"benchmark": outcome.benchmark, "state": outcome.state, "fault": outcome.fault, "report": report}


def _show(encoder: str, outcomes: list[BenchmarkRun]) -> None:
    from components.evaluation.scoring.results import results_of
    from components.evaluation.scoring.terminal import print_results

    say(encoder)
    for outcome in outcomes:
        if outcome.report is None:
            say(f"{outcome.benchmark}: {outcome.state}. {outcome.fault}".rstrip(". "))
            continue
        report = outcome.report
        marks = (("partial data", report.partial), (report.precision, report.precision != "fp32"))
        title = ", ".join([outcome.benchmark, outcome.state, *(mark for mark, holds in marks if holds)])
        shown = results_of(report, title)
        print_results(shown)
        if rest := len(report.metrics) - len(shown.rows):
            say(f"  {rest} more metrics: cliptune table --groups")
        for note in report.partial:
            say(f"  not as published: {note}")
        for group in report.left_out:
            say(f"  left out: {group}")


def _base_cells(row: dict[str, Any]) -> list[str]:
    if not row["accepted"]:
        return [""] * 6
    preparation = row["preparation"]
    resize = f"{preparation['resize_mode']}, {preparation['interpolation']}"
    trims = "yes" if row["trims_texts"] else "no"
    return [str(preparation["size"]), resize, row["tokenizer"], str(row["context_length"]), trims, row["loss"]]
