"""The command `cliptune upgrade`, which renews old names."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated

import typer

from components.cli.tables import say
from components.core.system.project import in_project, require_project


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
