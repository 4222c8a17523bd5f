"""The commands `cliptune clean`, which removes chosen kinds of written files, and `upgrade`, which renews old names."""

from __future__ import annotations

import difflib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.cli.tables import PIPE_WIDTH, Yes, confirm, print_rows, say, shown_size
from components.core.system.errors import InputError
from components.core.system.project import in_project, require_project

if TYPE_CHECKING:
    from dvc.stage import Stage  # type: ignore[import-untyped]


class Kind(StrEnum):
    """What `clean` can remove."""

    OUTPUTS = "outputs"
    CACHE = "cache"
    WORK = "work"
    ANSWERS = "answers"
    RUNS = "runs"
    DECISIONS = "decisions"
    REVIEWS = "reviews"


_CONTENT: Mapping[Kind, str] = {
    Kind.OUTPUTS: "outputs of dvc.yaml; `dvc repro` restores them from the cache, or runs the stages again",
    Kind.CACHE: "DVC's copies of outputs, also of earlier settings",
    Kind.WORK: "checkpoints, indexes and logs in state/",
    Kind.ANSWERS: "answers of language models, in synthesize.store and moved aside; asking again costs time or money",
    Kind.RUNS: "MLflow's runs, registered versions and aliases; then there is no champion",
    Kind.DECISIONS: "records of promotions",
    Kind.REVIEWS: "people's reviews of test queries",
}
_NAMED = 4
"""Paths of a kind that the table names."""


@in_project
def clean(
    kinds: Annotated[
        list[Kind] | None, typer.Argument(help="Kinds of files to remove; without one, sizes are listed.")
    ] = None,
    yes: Yes = False,
) -> None:
    """List the sizes of files that stages and commands wrote, or remove kinds of them after a question.

    Your own files, such as pictures below data/ and models below models/, and edited settings kept in state/, are never
    removed.

    Examples: cliptune clean; cliptune clean outputs cache; cliptune clean work --yes
    """
    require_project()
    stages = _stages()
    places = {kind: paths for kind, paths in _places(stages).items() if kind in (kinds or Kind)}
    sizes = {kind: sum(map(_size, paths)) for kind, paths in places.items()}
    rows = []
    for kind, paths in places.items():
        more = ["..."] if len(paths) > _NAMED else []
        named = ", ".join([*map(str, paths[:_NAMED]), *more])
        rows.append((kind.value, shown_size(sizes[kind]), _CONTENT[kind], named))
    print_rows(("kind", "size", "content", "paths"), rows, numbers=("size",), widest=2 * PIPE_WIDTH)
    if not kinds:
        say("remove some: `cliptune clean KIND ...`")
        return
    total = shown_size(sum(sizes.values()))
    confirm(f"remove {total} ({', '.join(places)})?", yes)
    if Kind.OUTPUTS in places:
        _remove_outputs(stages)
    if Kind.ANSWERS in places:
        from components.core.settings import load_settings
        from components.registry.reviews import Reviews

        # Reviews that an earlier version kept among the answers are copied.
        Reviews(load_settings().synthesize.store).close()
    for path in [path for paths in places.values() for path in paths]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    say(f"removed {total}")


def _stages() -> list[Stage]:
    """The stages of the project's dvc.yaml; those of other files, and data that `dvc add` watches, are the user's."""
    from dvc.exceptions import DvcException  # type: ignore[import-untyped]
    from dvc.repo import Repo  # type: ignore[import-untyped]

    try:
        repo = Repo(".")
        return [stage for stage in repo.index.stages if stage.cmd and Path(stage.path) == Path("dvc.yaml").resolve()]
    except DvcException as error:
        raise InputError(f"dvc.yaml cannot be read ({error}): correct it, or restore .dvc") from None


def _remove_outputs(stages: Sequence[Stage]) -> None:
    from dvc.lock import LockError  # type: ignore[import-untyped]

    try:
        for stage in stages:
            with stage.repo.lock:
                stage.remove_outs(force=True)
    except LockError:
        raise InputError("dvc or a stage is at work on the outputs: wait until it ends") from None


def _places(stages: Iterable[Stage]) -> dict[Kind, list[Path]]:
    """The existing files and folders of each kind."""
    from components.core.settings import load_settings
    from components.core.tracking import STORE
    from components.core.tracking.offline_spool import FOLDER
    from components.registry.decision import RECORDS
    from components.registry.reviews import FILE, sqlite_file

    state, here = Path("state"), Path.cwd()
    answers = sqlite_file(load_settings().synthesize.store) or state / "generations.db"
    stored, reviews = [_database(path) for path in (answers, answers.with_name(FILE))]
    # `make captions` moves stores there.
    stored += state.glob("generations-[0-9]*")
    # votes.db holds the votes of an earlier version, which nothing else has.
    kept = ("generations", answers.name, FILE, "votes.db", FOLDER.name, "params")
    found: dict[Kind, Iterable[Path]] = {
        Kind.OUTPUTS: [Path(out.fs_path).relative_to(here) for stage in stages for out in stage.outs],
        Kind.CACHE: [Path(".dvc/cache")],
        Kind.WORK: [path for path in state.glob("*") if not path.name.startswith(kept)],
        Kind.ANSWERS: stored,
        Kind.RUNS: [FOLDER, *(path for path in STORE.glob("*") if path.name != ".gitkeep")],
        Kind.DECISIONS: [RECORDS],
        Kind.REVIEWS: reviews,
    }
    return {kind: sorted(path for path in paths if path.exists() or path.is_symlink()) for kind, paths in found.items()}


def _database(file: Path) -> list[Path]:
    """An SQLite database and the files that SQLite keeps beside it."""
    return [file.with_name(f"{file.name}{ending}") for ending in ("", "-wal", "-shm")]


def _size(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    below = path.rglob("*") if path.is_dir() and not path.is_symlink() else [path]
    return sum(file.lstat().st_size for file in below if file.is_symlink() or file.is_file())


@in_project
def upgrade(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the changes; write nothing.")] = False,
) -> None:
    """Rewrite params.yaml, the profiles, and methods and benchmarks of your own that have names of earlier versions.

    Comments stay. docs/upgrade.md has all old names.

    Examples: cliptune upgrade --dry-run; cliptune upgrade
    """
    from components.cli.edited_params import write
    from components.core.settings import PARAMS
    from components.core.system.profiles import PROFILES
    from components.core.system.renamed import moved_files, upgraded, upgraded_code

    require_project()
    changed = 0
    moved = dict(moved_files())
    for path in [PARAMS, *sorted(PROFILES.glob("*.yaml")), *moved]:
        text = path.read_text("utf-8")
        new, said = (upgraded_code if path.suffix == ".py" else upgraded)(text)
        target = moved.get(path, path)
        if new == text and target == path:
            continue
        changed += 1
        say(f"{path}: {'; '.join([*said, *([f'its folder is now {target.parent}'] if target != path else [])])}")
        if dry_run:
            before, after = (part.splitlines(keepends=True) for part in (text, new))
            say("".join(difflib.unified_diff(before, after, str(path), str(target), n=0)), nl=False)
            continue
        if target != path and target.exists():
            say(f"{target} exists and stays: move {path} yourself", err=True)
            continue
        write(new, target)
        if target != path:
            Path(path).unlink()
    say("no file has names of earlier versions" if not changed else "next: `cliptune plan`")
