"""The commands `cliptune index ...`: build an image index, add to it, check it and measure encoders on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from components.cli.tables import AsJson, print_json, print_table, shown_size, table_of
from components.core.project import from_root, run_in_project

if TYPE_CHECKING:
    from components.benchmarks.encoding.context import EncoderUnderTest
    from components.index.building import Added
    from components.index.checking import IndexReport
    from components.index.facts import Facts
    from components.index.sources.source import Opened

# Everything else is imported inside the commands: `cliptune --help` must not wait for torch.

index = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Image indexes. One image tower made the vectors; every encoder trained with that tower searches them as they "
    "are, so a new text side needs no new index.",
)

_DATA = "data"
_Folder = Annotated[Path, typer.Argument(help="The index's folder.")]
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
    typer.Option("--source", help="project, folder, shards, embeddings or index; where --from may be two."),
]
_EncoderName = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        help="A folder, a run id, text-encoder@champion or open_clip's name:tag: embeds pictures, is named as the one "
        "that made bare vectors, and embeds the queries that approximate kinds are tuned on.",
    ),
]
_Queries = Annotated[
    Path | None,
    typer.Option("--queries", help="Text queries to tune and measure with, one on each line; captions if not given."),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be indexed; embed and write nothing.")]


@index.command()
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
    replace: Annotated[bool, typer.Option("--replace", help="Take the place of an index that is there.")] = False,
    dry_run: _DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Build an image index; pictures stay where they are.

    Examples: cliptune index build index

    cliptune index build index --kind ivf_pq --encoder paraclip --queries queries.txt

    cliptune index build index --from ~/photographs --encoder ViT-B-32-quickgelu:openai

    cliptune index build index --from 's3://bucket/{00000..00099}.tar' --encoder text-encoder@champion --dry-run
    """

    def command() -> None:
        from components.index.building import build as write
        from components.index.building import check_output
        from components.index.facts import choose_kind

        place = from_root(folder)
        check_output(place, replace=replace)
        choose_kind(kind, 0)
        texts, under_test = _texts(queries), _encoder(encoder)
        opened = _opened(origin, source, under_test)
        if dry_run:
            _tell(origin, opened, kind)
            return
        _show(folder, write(place, opened, kind, under_test, texts, replace=replace), as_json)

    run_in_project(command)


@index.command()
def append(
    folder: _Folder,
    origin: _From = _DATA,
    source: _SourceName = None,
    encoder: _EncoderName = None,
    queries: _Queries = None,
    dry_run: _DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Add images that the index has not; stopped or failed, it leaves the index as it was.

    Examples: cliptune index append index

    cliptune index append index --from ~/new-photographs --encoder paraclip
    """

    def command() -> None:
        from components.index.building import append as add
        from components.index.building import check_source
        from components.index.facts import read_facts

        place = from_root(folder)
        facts = read_facts(place)
        texts, under_test = _texts(queries), _encoder(encoder)
        opened = _opened(origin, source, under_test)
        check_source(place, facts, opened)
        if dry_run:
            _tell(origin, opened, facts.kind)
            return
        _show(folder, add(place, opened, under_test, texts), as_json)

    run_in_project(command)


@index.command()
def check(
    folder: _Folder,
    encoder: Annotated[
        str | None, typer.Option("--encoder", help="Also measure this encoder's recall and keep it in the index.")
    ] = None,
    queries: _Queries = None,
    every: Annotated[bool, typer.Option("--all", help="Look at every picture instead of 200.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look at an index's files, vectors and pictures; the exit code is 1 if anything is wrong.

    Examples: cliptune index check index

    cliptune index check index --all

    cliptune index check index --encoder text-encoder@champion --queries queries.txt
    """

    def command() -> None:
        from components.index.building import remeasure
        from components.index.checking import check as look

        place = from_root(folder)
        texts, under_test = _texts(queries), _encoder(encoder)
        if under_test is not None:
            from components.index.facts import read_facts
            from components.index.image_index import accept_tower

            accept_tower(read_facts(place), place, under_test)
            remeasure(place, under_test, texts)
        found = look(place, every=every)
        if as_json:
            print_json(_checked(found))
        else:
            _show_checked(folder, found)
        if found.problems:
            raise SystemExit(1)

    run_in_project(command)


def _texts(queries: Path | None) -> list[str] | None:
    from components.index.tuning import read_queries

    return None if queries is None else read_queries(from_root(queries))


def _encoder(name: str | None) -> EncoderUnderTest | None:
    if name is None:
        return None
    from components.registry.encoder_names import check_name, name_from_root

    known = name_from_root(name)
    check_name(known)
    from components.registry.encoder_lookup import find_encoder

    return find_encoder(known)


def _opened(origin: str, source: str | None, encoder: EncoderUnderTest | None) -> Opened:
    from components.core.shards.listing import is_remote
    from components.index.sources import find_source, source_of

    given = origin if is_remote(origin) or origin == _DATA else str(from_root(Path(origin)))
    return find_source(source or source_of(given)).open(given, encoder)


def _tell(origin: str, opened: Opened, kind: str) -> None:
    """Print what would be indexed."""
    from components.index.approximate_search import bytes_per_vector
    from components.index.facts import EXACT, choose_kind

    if opened.total is None:
        typer.echo(f"{origin}: as many images as the shards hold, vectors of {opened.dim} numbers; nothing was done")
        return
    chosen = choose_kind(kind, opened.total)
    each = 4 * opened.dim + (0 if chosen == EXACT else bytes_per_vector(opened.dim))
    typer.echo(
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
        typer.echo(f"left out: {reason}")
    if len(added.unusable) > _FEW:
        typer.echo(f"left out: {len(added.unusable) - _FEW:,} more")
    typer.echo(
        f"{folder}: {added.rows:,} images added, {added.repeated:,} rows of images it has already, "
        f"{len(added.unusable):,} left out; {facts.rows:,} images in all, kind {facts.kind}, image tower "
        f"{facts.image_tower_sha256[:12]}"
    )
    _show_recalls(facts)
    from components.index.facts import AUTO, EXACT, choose_kind

    fitting = choose_kind(AUTO, facts.rows)
    if facts.kind == EXACT and fitting != EXACT:
        typer.echo(
            f"exact search takes long on so many images: cliptune index build <new folder> --from {folder} "
            f"--kind {fitting} --encoder {facts.encoder}"
        )


_FEW = 5
"""Pictures that were left out and are named."""


def _show_recalls(facts: Facts) -> None:
    from rich.markup import escape

    from components.index.tuning import TARGET

    if not facts.recalls:
        return
    numbers = ("recall@10", "effort", "queries")
    table = table_of(("encoder", "kind", *numbers), "text queries against exact search", numbers=numbers)
    for one in facts.recalls:
        table.add_row(escape(one.encoder), one.kind, f"{one.recall_at_10:.3f}", str(one.effort), f"{one.queries:,}")
    print_table(table)
    if min(one.recall_at_10 for one in facts.recalls) < TARGET:
        typer.echo(f"recall@10 is below {TARGET}: build it with --kind exact")


def _show_checked(folder: Path, found: IndexReport) -> None:
    from rich.markup import escape

    if found.facts is not None:
        facts = found.facts
        typer.echo(
            f"{folder}: {facts.rows:,} images in {len(facts.segments)} segments, kind {facts.kind}, image tower "
            f"{facts.image_tower_sha256[:12]} (of '{facts.encoder}'); {found.pictures:,} pictures looked at, "
            f"{found.without:,} known by their vector alone"
        )
        _show_recalls(facts)
    if not found.problems:
        typer.echo("nothing is wrong")
        return
    table = table_of(("where", "what", "fix"), f"{len(found.problems)} problems")
    for one in found.problems:
        table.add_row(escape(one.where), escape(one.what), escape(one.fix))
    print_table(table)


def _checked(found: IndexReport) -> dict[str, Any]:
    from dataclasses import asdict

    facts = None if found.facts is None else found.facts.model_dump(mode="json")
    problems: Sequence[dict[str, str]] = [asdict(problem) for problem in found.problems]
    return {"problems": problems, "pictures": found.pictures, "without": found.without, "index": facts}
