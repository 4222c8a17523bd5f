"""The command `cliptune drift`: compares a log of queries with the texts that the encoder was trained on."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from components.cli.tables import AsJson, Device, encoder_names, print_json, print_rows, say
from components.core.system.errors import InputError
from components.core.system.project import from_root, in_project


@in_project
def drift(
    log: Annotated[
        Path, typer.Argument(help="One query on each line, or column `query` of a TSV, CSV, JSONL or Parquet file.")
    ],
    encoder: Annotated[str, typer.Option(help="Named as in `cliptune evaluate`.")] = "text-encoder@champion",
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Compare a log of queries with the texts that the encoder was trained and tested on.

    A query is unlike them if it is further from its nearest one than 95% of these are from theirs. If more than 10%
    surely are, new captions and test queries are due, and a new champion with them.

    Examples: cliptune drift last_month.txt; cliptune drift data/shop/queries.tsv --encoder models/paraclip --json
    """
    (name,) = encoder_names([encoder])
    from components.encoders.adapter.encoder import Encoder
    from components.evaluation.scoring.drift import drift as run
    from components.evaluation.scoring.drift import known_texts, read_log
    from components.registry.encoder_lookup import find_encoder

    queries, known = read_log(from_root(log)), known_texts()
    loaded = find_encoder(name, device=device).encoder
    if not isinstance(loaded, Encoder):
        raise InputError(f"--encoder '{encoder}' is not an image-text encoder")
    found = run(loaded, queries, known)
    if as_json:
        print_json(asdict(found) | {"is_due": found.is_due})
        return
    rows = ((query, nearest, f"{cosine:.2f}") for query, nearest, cosine in found.most_unlike)
    print_rows(("query", "nearest known text", "cosine"), rows, "Least like the known texts", numbers=("cosine",))
    share, low, high = (f"{value:.0%}" for value in found.unlike)
    say(f"{found.queries:,} distinct queries against {found.known:,} known texts")
    say("one word: {:.0%} of the queries, {:.0%} of the known texts".format(*found.one_word))
    due = "new captions and test queries are due" if found.is_due else "the champion still fits"
    say(f"unlike all known texts: {share} [{low}, {high}], usual is 5%: {due}")
