"""The command `cliptune encoders`: the weights that open_clip publishes, as bases."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from components.cli.tables import AsJson, print_json, print_rows
from components.core.system.errors import run_command


def encoders(
    pattern: Annotated[str, typer.Argument(help="Only names or tags with these letters.")] = "",
    as_json: AsJson = False,
) -> None:
    """List the weights that open_clip publishes, whether they can be a base, and how they read pictures and texts.

    Nothing is loaded or fetched. A base is set by base.source: open_clip, base.model and base.pretrained.

    Examples: cliptune encoders; cliptune encoders siglip2; cliptune encoders --json
    """

    def command() -> None:
        from open_clip import list_pretrained

        from components.training.base.published import facts_of

        wanted = [pair for pair in list_pretrained() if pattern.lower() in ":".join(pair).lower()]
        rows = [facts_of(*pair) for pair in wanted]
        if as_json:
            print_json(rows)
            return
        accepted = sum(row["accepted"] for row in rows)
        columns = ("name", "tag", "pixels", "resize", "tokenizer", "context", "trims", "loss", "reason of a refusal")
        cells = ((row["name"], row["tag"], *_cells(row), row["reason"]) for row in rows)
        print_rows(columns, cells, f"{accepted} of {len(rows)} weights can be a base", numbers=("pixels", "context"))

    run_command(command)


def _cells(row: dict[str, Any]) -> list[str]:
    if not row["accepted"]:
        return [""] * 6
    preparation = row["preparation"]
    resize = f"{preparation['resize_mode']}, {preparation['interpolation']}"
    trims = "yes" if row["trims_texts"] else "no"
    return [str(preparation["size"]), resize, row["tokenizer"], str(row["context_length"]), trims, row["loss"]]
