"""The commands `cliptune profile ...`, `cliptune tune` and `cliptune mix tune`, which change params.yaml."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from components.cli.tables import PIPE_WIDTH, AsJson, print_json, print_rows, say
from components.core.system.errors import InputError
from components.core.system.project import in_project, require_project

if TYPE_CHECKING:
    pass

profile = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Overlays of params.yaml in infra/profiles/.")
_Name = Annotated[str, typer.Argument(help="A file of infra/profiles/, without .yaml.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change; write nothing.")]
_Diff = Annotated[bool, typer.Option("--diff", help="Print every changed line.")]
_SHOWN = "On the half of the validation pictures that chose nothing, times 100"


@profile.command("list")
@in_project
def list_profiles(as_json: AsJson = False) -> None:
    """List the profiles with their purpose.

    Example: cliptune profile list
    """
    from components.cli.edited_params import base_profile, description
    from components.core.system.profiles import profile_names

    require_project()
    descriptions = {name: description(name) for name in profile_names()}
    if as_json:
        print_json(descriptions)
        return
    rows = ((name, base_profile(name), text) for name, text in descriptions.items())
    print_rows(("profile", "over", "purpose"), rows, widest=PIPE_WIDTH)


@profile.command("show")
@in_project
def show_profile(name: _Name) -> None:
    """Print the file of a profile: its purpose, and the keys that it sets.

    Example: cliptune profile show toy
    """
    from components.core.system.profiles import profile_text

    require_project()
    say(profile_text(name), nl=False)


@profile.command("apply")
@in_project
def apply_profile(
    name: _Name,
    over: Annotated[
        bool, typer.Option("--over", help="Lay the profile over the present params.yaml, and keep its language models.")
    ] = False,
    values: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Another value for a key of params.yaml.")
    ] = None,
    dry_run: _DryRun = False,
    diff: _Diff = False,
) -> None:
    """Write params.yaml: the committed one with a profile merged into it, in place of the last applied profile.

    Comments stay, except above replaced values; a result with unknown keys is refused. Edits that no commit and no
    profile has are kept in a copy in state/.

    Examples: cliptune profile apply toy; cliptune profile apply toy --dry-run --diff;
    cliptune profile apply methods --over; cliptune profile apply claims --set "study.seeds=[1]";
    cliptune profile reset (to undo)
    """
    from components.cli import edited_params
    from components.core.settings import PARAMS, load_settings

    require_project()
    with TemporaryDirectory() as temporary:
        start, committed = PARAMS, Path(temporary, PARAMS.name)
        committed.write_text(edited_params.start_text(), encoding="utf-8")
        if over:
            models = [load_settings(path).synthesize for path in (PARAMS, committed)]
            differ = (models[0].llms, models[0].default_llm) != (models[1].llms, models[1].default_llm)
        else:
            start, differ = committed, False
        more = edited_params.assigned(values or ())
        try:
            text = edited_params.overlaid(name, start, more=more, keep_models=differ)
        except InputError as error:
            raise InputError(str(error).replace(str(committed), f"the committed {PARAMS}")) from None
        notices = list(edited_params.notices(name, text, start, more=more))
    for notice in notices:
        say(notice, err=True)
    if text == PARAMS.read_text("utf-8"):
        say(f"params.yaml does not change: it already has the values of profile '{name}'")
        return
    _print_changes(text, diff)
    if not dry_run:
        _print_copy(edited_params.replace(text, applied=True, over=over))
        say(f"params.yaml now holds profile '{name}'; `cliptune profile reset` undoes it")
        say("next: `cliptune plan` shows the stages that `dvc repro compare` would run")


def _print_changes(text: str, diff: bool) -> None:
    from components.cli import edited_params

    if diff:
        say(edited_params.difference(text), nl=False)
    changed = ", ".join(f"{block} {count}" for block, count in edited_params.changed_keys(text).items())
    say(f"values that change, by block: {changed or 'none, only comments'}")


def _print_copy(copy: Path | None) -> None:
    if copy:
        say(f"your edits of params.yaml are not in it; the edited file is kept as {copy}", err=True)


@profile.command("reset")
@in_project
def reset_profiles(dry_run: _DryRun = False, diff: _Diff = False) -> None:
    """Restore the committed params.yaml, or without a commit the one from before the first applied profile.

    Edits that no commit and no profile has are kept in a copy in state/.

    Examples: cliptune profile reset --dry-run --diff; cliptune profile reset
    """
    from components.cli import edited_params
    from components.core.settings import PARAMS

    require_project()
    text = edited_params.start_text()
    if text == PARAMS.read_text("utf-8"):
        say("params.yaml holds no profile: it is unchanged")
        return
    _print_changes(text, diff)
    if not dry_run:
        _print_copy(edited_params.replace(text, applied=False))
        say("params.yaml is as before the first profile")


@in_project
def tune(
    method: Annotated[str, typer.Option(help="The entry of `methods` to tune.")] = "paraclip",
    trials: Annotated[int, typer.Option(min=1, help="Number of trials, including those of a stopped search.")] = 12,
    store: Annotated[str, typer.Option(help="SQLAlchemy URL of Optuna's storage.")] = "",
    write: Annotated[bool, typer.Option("--write", help="Write the best values into params.yaml.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan; train nothing.")] = False,
) -> None:
    """Search the learning rate, the epochs and the share of the base's weights of a method, on the validation split.

    Each trial is a training run in MLflow below one parent; half of them are stopped early. The best one gains most on
    promote.metric and breaks no guard on one half of the validation pictures. Its gain is that on the other half, and
    --write follows if its whole interval is above 0. A stopped search resumes.

    Examples: cliptune tune --dry-run; cliptune tune --method semclip --trials 20 --write
    """
    from components.core.system.checking import load_checked
    from components.evaluation.scoring.validation import ValidationScores
    from components.training.tuning.entry import planned
    from components.training.tuning.entry import tune as run
    from components.training.tuning.trials import STORE, gate_metrics

    require_project()
    settings = load_checked(entries=[method])
    if dry_run:
        say(planned(settings, method, trials))
        return
    metrics = gate_metrics(settings)
    found = run(settings, method, trials, ValidationScores.of(settings, metrics), store or STORE)
    columns = ("base", "best trial")
    rows = [(name, *(f"{100 * abs(values[name]):.1f}" for values in (found.base, found.scores))) for name in metrics]
    print_rows(("metric", *columns), rows, _SHOWN, columns)
    say(f"{found.trials} trials, {found.stopped} of them stopped early; gain {found.gain}")
    if found.broken:
        say(f"every trial broke a guard ({', '.join(found.broken)}): nothing to write")
    elif found.gain.low <= 0:
        about = f"; if it is the truth, about {2 * found.gain.wanted:,} validation queries show it"
        say(f"no gain is shown{about if found.gain.wanted else ''}: nothing to write; docs/flat_or_refused.md")
    elif write:
        _write_blocks({"methods": {method: found.values}}, method)
    else:
        values = ", ".join(f"{key}: {value}" for key, value in found.values.items())
        say(f"for params.yaml (or use --write): methods: {{{method}: {{{values}}}}}")


mix = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Mixes of the weights of two encoders.")


@mix.command("tune")
@in_project
def tune_mix(
    members: Annotated[list[str], typer.Option("--from", help="An encoder to mix; give two or more.")],
    name: Annotated[str, typer.Option(help="Name of the mix that --write adds to params.yaml.")] = "all_needs",
    metrics: Annotated[
        list[str] | None, typer.Option("--metric", help="A metric that the mix must serve; the gate's if not given.")
    ] = None,
    trials: Annotated[
        int, typer.Option(min=1, help="Number of mixes to try, including those of a stopped search.")
    ] = 60,
    store: Annotated[str, typer.Option(help="SQLAlchemy URL of Optuna's storage.")] = "",
    write: Annotated[bool, typer.Option("--write", help="Write the best mix into params.yaml.")] = False,
) -> None:
    """Search the mix of encoders' weights that serves all metrics best, on the validation split.

    The score of a mix is its largest shortfall from the best encoder of a metric. One half of the pictures chooses, and
    the values are those of the other half. Each mix is an MLflow run below one parent.

    Examples: cliptune mix tune --from paraclip --from semclip --from laclip_ft;
    cliptune mix tune --from paraclip --from semclip --trials 200 --write
    """
    from components.core.system.checking import load_checked
    from components.evaluation.scoring.validation import ValidationScores
    from components.training.tuning.mixes import search
    from components.training.tuning.trials import STORE, gate_metrics

    require_project()
    settings = load_checked()
    _check_mix(name, members)
    scores = ValidationScores.of(settings, metrics or gate_metrics(settings))
    outcome = search(settings, members, trials, scores, store or STORE)
    rows = []
    for metric, value in outcome.scores.items():
        best, encoder = outcome.best[metric]
        rows.append((metric, f"{100 * value:.1f}", f"{100 * best:.1f}", encoder))
    print_rows(("metrics", "mix", "best", "encoder"), rows, _SHOWN, ("mix", "best"))
    say(f"{outcome.trials} mixes; largest shortfall of the chosen one {100 * outcome.shortfall:.1f}")
    if write:
        encoders = [*dict.fromkeys([*settings.compare_encoders, name])]
        _write_blocks({"mixes": {name: outcome.mix.model_dump(mode="json")}, "compare_encoders": encoders}, name)
    else:
        mix, weights = outcome.mix, ", ".join(map(str, outcome.mix.weights))
        say(f"for params.yaml, with {name} in compare_encoders (or use --write):")
        say(f"mixes:\n  {name}: {{a: {mix.a}, b: {mix.b}, weights: [{weights}]}}")


def _check_mix(name: str, members: list[str]) -> None:
    """Refuse a search whose mix would not be valid in params.yaml."""
    from components.core.system.checking import check_names
    from components.core.system.profiles import settings_with

    if len(members) < 2 or len(set(members)) < len(members):
        raise InputError("give two or more encoders to mix, each once: --from paraclip --from semclip")
    for first, second in pairwise(members):
        check_names(settings_with(None, {"mixes": {name: {"a": first, "b": second, "weights": [0.5, 0.5]}}}))


def _write_blocks(blocks: dict[str, Any], name: str) -> None:
    from components.cli import edited_params

    text = edited_params.laid_over([blocks], name)
    say(edited_params.difference(text), nl=False)
    edited_params.write(text)
    say(f"params.yaml now has {name}; `dvc repro compare` makes it and scores it on the test split")
