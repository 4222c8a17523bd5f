"""The commands `cliptune plan`, `report` and `doctor`: the state of the pipeline, its results, the installation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.cli.tables import PIPE_WIDTH, AsJson, print_json, print_rows, say, shown_time
from components.core.system.errors import InputError
from components.core.system.project import in_project

if TYPE_CHECKING:
    from components.cli.commands.planning import Planned
    from components.cli.costing.cost import Cost

_STATES = {"runs": "yellow", "runs after others": "yellow", "up to date": "green"}
_STATUSES = {"ok": "green", "warn": "yellow", "fail": "red", "not used": "dim"}
_COSTS = ("stage", "work", "tokens in + out", "time")
_PRICES = {"price": "price", "batch_price": "in a batch"}


@in_project
def plan(
    targets: Annotated[
        list[str] | None, typer.Argument(help="Stages of dvc.yaml, or groups such as `train`; by default `compare`.")
    ] = None,
    cost: Annotated[
        bool, typer.Option("--cost", help="Also estimate questions, tokens and time of these stages.")
    ] = False,
    rates: Annotated[
        str | None,
        typer.Option(
            help="With --cost: `h200`, or a file with rates of your machine "
            "(keys of components/cli/costing/machines/two_cores.yaml); default: `two_cores`."
        ),
    ] = None,
    prices: Annotated[
        tuple[float, float] | None,
        typer.Option(
            help="With --cost: price of a million input and of a million output tokens; by default the model's."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check params.yaml, and show which stages `dvc repro compare` would run and why.

    With --cost, prompts without a stored answer are counted, and counts are divided by a machine's rates.
    The exit code is 1 if a setting is wrong, input data is missing, or an LLM endpoint of these stages does not answer.

    Examples: cliptune plan; cliptune plan train@paraclip; cliptune plan train --json; cliptune plan --cost;
    cliptune plan --cost --rates h200; cliptune plan --cost --rates cluster.yaml --prices 0.15 0.6
    """
    from components.cli.commands.planning import plan as plan_stages
    from components.cli.commands.planning import problems, unwatched

    if not cost and (rates or prices):
        raise InputError("--rates and --prices need --cost: add it")
    stages = plan_stages(targets or ["compare"])
    faults = problems(stages)
    costs = _costs(stages, rates, prices) if cost else None
    if as_json:
        print_json([asdict(row) for row in costs or stages])
    elif costs is not None:
        print_costs(costs)
    else:
        _print_stages(stages)
    for notice in unwatched(stages):
        say(notice, err=True)
    for line in faults:
        say(f"problem: {line.detail}: {line.fix}", err=True)
    if faults:
        raise SystemExit(1)


@in_project
def report(
    every: Annotated[bool, typer.Option("--all", help="Print all metrics instead of the key metrics.")] = False,
    groups: Annotated[bool, typer.Option("--groups", help="Print all metrics, and those by group of queries.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the results table of the last comparison.

    Examples: cliptune report; cliptune report --all; cliptune report --groups; cliptune report --json
    """
    from components.core.settings import load_settings
    from components.evaluation.benchmarks.project import find_benchmark
    from components.evaluation.report.comparison import long_table, read_csv, show
    from components.evaluation.scoring.benchmark import key_metrics
    from components.evaluation.scoring.results import DEFAULT
    from components.registry.reviews import read_reviewed

    settings = load_settings()
    comparison = read_csv(DEFAULT.csv)
    if as_json:
        print_json(long_table(comparison))
        return
    key = key_metrics(map(find_benchmark, settings.evaluate.benchmarks), list(comparison.cells))
    show(comparison, settings.promote.metric, key, every, groups)
    if reviewed := read_reviewed(settings.synthesize.store):
        say(f"{reviewed}: `cliptune review`")
    say(f"report: {DEFAULT.reports / 'comparison.html'}")


@in_project
def doctor(as_json: AsJson = False) -> None:
    """Check servers, stores, GPU and data; the exit code is 1 if a check fails.

    Examples: cliptune doctor; cliptune doctor --json
    """
    from components.cli.doctor import CHECKS
    from components.cli.doctor.check import examine, read_installation

    lines = examine(read_installation(Path()), CHECKS)
    if as_json:
        print_json([asdict(line) for line in lines])
    else:
        rows = ((line.check, (line.status, _STATUSES[line.status]), line.detail, line.fix) for line in lines)
        print_rows(("", "state", "detail", "fix"), rows, widest=PIPE_WIDTH)
        counts = {status: sum(line.status == status for line in lines) for status in _STATUSES}
        say(", ".join(f"{count} {status}" for status, count in counts.items() if count))
    if any(line.status == "fail" for line in lines):
        raise SystemExit(1)


def _print_stages(stages: list[Planned]) -> None:
    rows = ((stage.stage, (stage.state, _STATES[stage.state]), _first_changes(stage.why)) for stage in stages)
    print_rows(("stage", "state", "because of"), rows, widest=PIPE_WIDTH)
    runs = sum(stage.state != "up to date" for stage in stages)
    say(f"{runs} of {len(stages)} stages would run")


def _first_changes(why: str) -> str:
    changes = why.split(", ")
    rest = len(changes) - 3
    return why if rest <= 0 else f"{', '.join(changes[:3])} and {rest} more"


def _costs(stages: list[Planned], rates: str | None, prices: tuple[float, float] | None) -> Sequence[Cost]:
    from components.cli.costing.cost import TWO_CORES, Costing, load_rates
    from components.core.settings import load_settings

    machine = load_rates(rates or TWO_CORES)
    say(f"rates of {machine.machine}" + ("" if rates else "; of another machine: --rates"), err=True)
    costing = Costing(load_settings(), machine, prices)
    return costing.of([stage.stage for stage in stages if stage.state != "up to date"])


def print_costs(costs: Sequence[Cost]) -> None:
    """Print a table of the costs of stages, their total, and notes on estimates."""
    if not costs:
        say("no stage would run")
        return
    prices = [name for name in _PRICES if any(getattr(cost, name) is not None for cost in costs)]
    rows = []
    for cost in costs:
        time = "?" if cost.seconds is None else shown_time(cost.seconds)
        row = [cost.stage, cost.work, _tokens(cost.questions, cost.tokens_in, cost.tokens_out), time]
        rows.append([*row, *(_price(getattr(cost, name)) for name in prices)])
    columns = (*_COSTS, *(_PRICES[name] for name in prices))
    print_rows(columns, [*rows, _total(costs, prices)], numbers=("time", *_PRICES.values()))
    for note in dict.fromkeys(note for cost in costs for note in cost.notes):
        stages = ", ".join(cost.stage for cost in costs if note in cost.notes)
        say(f"{stages}: {note}", err=True)


def _total(costs: Sequence[Cost], prices: Sequence[str]) -> list[str]:
    is_partial = any(cost.seconds is None for cost in costs)
    time = shown_time(sum(cost.seconds or 0.0 for cost in costs))
    sums = (sum(getattr(cost, name) for cost in costs) for name in ("questions", "tokens_in", "tokens_out"))
    row = [f"{len(costs)} stages", "", _tokens(*sums), f"over {time}" if is_partial else time]
    return row + [_price(sum(getattr(cost, name) or 0.0 for cost in costs)) for name in prices]


def _price(price: float | None) -> str:
    return "" if price is None else f"{price:.2f}"


def _tokens(questions: int, tokens_in: int, tokens_out: int) -> str:
    return f"{tokens_in / 1000:,.0f}k + {tokens_out / 1000:,.0f}k" if questions else ""
