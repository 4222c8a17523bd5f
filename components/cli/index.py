"""The commands `cliptune index ...`: build an image index, add to it, check it and measure encoders on it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.cli.tables import AsJson, Device, encoder_names, print_json, print_table, say, shown_size, table_of
from components.core.system.project import from_root, in_project

if TYPE_CHECKING:
    from components.benchmarks.scoring.encoding.context import EncoderUnderTest
    from components.index.building import Added
    from components.index.checking import IndexReport
    from components.index.facts import Facts
    from components.index.sources.source import Opened

# Other packages are imported inside the commands: `cliptune --help` must not wait for torch.

index = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Image indexes. All vectors are of one image tower; every encoder trained with that tower can search them, so "
    "a new text encoder needs no new index.",
)

_DATA = "data"
_Folder = Annotated[Path, typer.Argument(help="Folder of the index.")]
_From = Annotated[
    str,
    typer.Option(
        "--from",
        help="This project's data folder (pairs and embeddings), a folder of pictures, webdataset shards (a folder, "
        "data/{000..099}.tar, s3://...), vectors as .npy or Parquet (clip-retrieval's layout), or another index.",
    ),
]
_SourceName = Annotated[
    str | None,
    typer.Option("--source", help="Type of --from if it is ambiguous: project, folder, shards, embeddings or index."),
]
_EncoderName = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        help="Encoder: a folder, a run id, text-encoder@champion or open_clip's name:tag. It embeds pictures, is "
        "recorded as the encoder of given vectors, and embeds the queries that tune approximate kinds.",
    ),
]
_Queries = Annotated[
    Path | None,
    typer.Option("--queries", help="Text queries for tuning and measuring, one on each line; by default captions."),
]
_DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the images that would be indexed; embed and write nothing.")
]


@index.command()
@in_project
def build(
    folder: _Folder,
    origin: _From = _DATA,
    source: _SourceName = None,
    encoder: _EncoderName = None,
    kind: Annotated[
        str,
        typer.Option(help="exact, ivf_pq (approximate), or auto: exact up to a million images."),
    ] = "auto",
    queries: _Queries = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing index.")] = False,
    device: Device = "auto",
    dry_run: _DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Build an image index; the pictures are not copied.

    Examples: cliptune index build index

    cliptune index build index --kind ivf_pq --encoder paraclip --queries queries.txt

    cliptune index build index --from ~/photographs --encoder ViT-B-32-quickgelu:openai

    cliptune index build index --from 's3://bucket/{00000..00099}.tar' --encoder text-encoder@champion --dry-run
    """
    from components.index.building import build as write
    from components.index.building import check_output
    from components.index.facts import choose_kind

    place = from_root(folder)
    check_output(place, replace=replace)
    choose_kind(kind, 0)
    texts, under_test = _texts(queries), _encoder(encoder, device)
    opened = _opened(origin, source, under_test)
    if dry_run:
        _print_plan(origin, opened, kind)
        return
    _show(folder, write(place, opened, kind, under_test, texts, replace=replace), as_json)


@index.command()
@in_project
def append(
    folder: _Folder,
    origin: _From = _DATA,
    source: _SourceName = None,
    encoder: _EncoderName = None,
    queries: _Queries = None,
    device: Device = "auto",
    dry_run: _DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Add images that are not in the index; a failure leaves the index unchanged.

    Examples: cliptune index append index

    cliptune index append index --from ~/new-photographs --encoder paraclip
    """
    from components.index.building import append as add
    from components.index.building import check_source
    from components.index.facts import read_facts

    place = from_root(folder)
    facts = read_facts(place)
    texts, under_test = _texts(queries), _encoder(encoder, device)
    opened = _opened(origin, source, under_test)
    check_source(place, facts, opened)
    if dry_run:
        _print_plan(origin, opened, facts.kind)
        return
    _show(folder, add(place, opened, under_test, texts), as_json)


@index.command()
@in_project
def check(
    folder: _Folder,
    encoder: Annotated[
        str | None,
        typer.Option("--encoder", help="Also measure the recall of this encoder, and store it in the index."),
    ] = None,
    queries: _Queries = None,
    device: Device = "auto",
    every: Annotated[bool, typer.Option("--all", help="Check every picture instead of 200.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check the files, vectors and pictures of an index; the exit code is 1 if a check fails.

    Examples: cliptune index check index

    cliptune index check index --all

    cliptune index check index --encoder text-encoder@champion --queries queries.txt
    """
    from components.index.building import remeasure
    from components.index.checking import check as look

    place = from_root(folder)
    texts, under_test = _texts(queries), _encoder(encoder, device)
    if under_test is not None:
        from components.index.facts import read_facts
        from components.index.image_index import accept_tower

        accept_tower(read_facts(place), place, under_test)
        remeasure(place, under_test, texts)
    checked = look(place, every=every)
    if as_json:
        facts = None if checked.facts is None else checked.facts.model_dump(mode="json")
        problems = [asdict(problem) for problem in checked.problems]
        counts = {"pictures": checked.pictures, "without": checked.without}
        print_json({"problems": problems, **counts, "index": facts})
    else:
        _show_checked(folder, checked)
    if checked.problems:
        raise SystemExit(1)


def _texts(queries: Path | None) -> list[str] | None:
    from components.index.tuning import read_queries

    return None if queries is None else read_queries(from_root(queries))


def _encoder(name: str | None, device: str) -> EncoderUnderTest | None:
    if name is None:
        return None
    (place,) = encoder_names([name])
    from components.registry.encoder_lookup import find_encoder

    return find_encoder(place, device=device)


def _opened(origin: str, source: str | None, encoder: EncoderUnderTest | None) -> Opened:
    from components.core.pictures.shards.listing import is_remote
    from components.index.sources import find_source, source_of

    given = origin if is_remote(origin) or origin == _DATA else str(from_root(Path(origin)))
    return find_source(source or source_of(given)).open(given, encoder)


def _print_plan(origin: str, opened: Opened, kind: str) -> None:
    from components.index.facts import EXACT, choose_kind
    from components.index.search import bytes_per_vector

    for note in opened.notes:
        say(f"left out: {note}")
    if opened.total is None:
        say(f"{origin}: as many images as the shards hold, vectors of {opened.dim} numbers; nothing was done")
        return
    chosen = choose_kind(kind, opened.total)
    each = 4 * opened.dim + (0 if chosen == EXACT else bytes_per_vector(opened.dim))
    say(
        f"{origin}: up to {opened.total:,} images, vectors of {opened.dim} numbers by image tower "
        f"{opened.image_tower_sha256[:12]} (of '{opened.encoder}'); kind {chosen}, about "
        f"{shown_size(each * opened.total)}; nothing was done"
    )


def _show(folder: Path, added: Added, as_json: bool) -> None:
    facts = added.facts
    if as_json:
        counts = {"added": added.rows, "repeated": added.repeated, "unusable": added.unusable}
        print_json(counts | {"index": facts.model_dump(mode="json")})
        return
    for reason in added.unusable[:_FEW]:
        say(f"left out: {reason}")
    if len(added.unusable) > _FEW:
        say(f"left out: {len(added.unusable) - _FEW:,} more")
    say(
        f"{folder}: {added.rows:,} images added, {added.repeated:,} rows of images it has already, "
        f"{len(added.unusable):,} left out; {facts.rows:,} images in all, kind {facts.kind}, image tower "
        f"{facts.image_tower_sha256[:12]}"
    )
    _show_recalls(facts)
    from components.index.facts import AUTO, EXACT, choose_kind

    fitting = choose_kind(AUTO, facts.rows)
    if facts.kind == EXACT and fitting != EXACT:
        say(
            f"exact search takes long on so many images: cliptune index build <new folder> --from {folder} "
            f"--kind {fitting} --encoder {facts.encoder}"
        )


_FEW = 5
"""Number of skipped pictures to print."""


def _show_recalls(facts: Facts) -> None:
    from rich.markup import escape

    from components.index.tuning import TARGET

    if not facts.recalls:
        return
    numbers = ("recall@10", "effort", "queries")
    table = table_of(("encoder", "kind", *numbers), "text queries against exact search", numbers=numbers)
    for recall in facts.recalls:
        cells = (f"{recall.recall_at_10:.3f}", str(recall.effort), f"{recall.queries:,}")
        table.add_row(escape(recall.encoder), recall.kind, *cells)
    print_table(table)
    if min(recall.recall_at_10 for recall in facts.recalls) < TARGET:
        say(f"recall@10 is below {TARGET}: build it with --kind exact")


def _show_checked(folder: Path, checked: IndexReport) -> None:
    from rich.markup import escape

    if checked.facts is not None:
        facts = checked.facts
        say(
            f"{folder}: {facts.rows:,} images in {len(facts.segments)} segments, kind {facts.kind}, image tower "
            f"{facts.image_tower_sha256[:12]} (of '{facts.encoder}'); {checked.pictures:,} pictures checked, "
            f"{checked.without:,} with only a vector"
        )
        _show_recalls(facts)
    if not checked.problems:
        say("no problems")
        return
    table = table_of(("where", "problem", "fix"), f"problems: {len(checked.problems)}")
    for problem in checked.problems:
        table.add_row(escape(problem.where), escape(problem.what), escape(problem.fix))
    print_table(table)
