"""The commands `cliptune explore` and `cliptune votes`: what encoders find, side by side, and what people say of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.cli.new_file import new_file
from components.cli.tables import AsJson, print_json, print_table, table_of
from components.core.errors import InputError
from components.core.project import from_root, run_in_project

if TYPE_CHECKING:
    from components.benchmarks.encoding.context import EncoderUnderTest
    from components.explorer.explored import Explored
    from components.index.image_index import ImageIndex

_HOST, PORT = "127.0.0.1", 8321
_BOTH = ["base", "text-encoder@champion"]
_CACHE = Path("state/explore")


def explore(
    encoder: Annotated[
        list[str] | None,
        typer.Option(help="As for `cliptune evaluate`, two or more; the first is what the others are compared with."),
    ] = None,
    images: Annotated[
        str,
        typer.Option(help="An index, or what `cliptune index build --from` takes; by default this project's data."),
    ] = "data",
    host: Annotated[str, typer.Option(help="Where to listen; others than this machine then see all pictures.")] = _HOST,
    port: Annotated[int, typer.Option(help="0 for any free one.", min=0, max=65535)] = PORT,
    export: Annotated[
        Path | None, typer.Option(help="Instead: a new file for a page of the queries given, without a server.")
    ] = None,
    query: Annotated[list[str] | None, typer.Option(help="For --export: a query, or `query|paraphrase`.")] = None,
    queries: Annotated[
        Path | None, typer.Option(help="For --export: a file with a query on each line, its paraphrase behind a tab.")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="For --export: pictures for each query.", min=1, max=100)] = 10,
) -> None:
    """Open a page on which two encoders answer the same query side by side.

    It shows which pictures are shared, gained and lost, AO@k and JS@k as you type, the queries of an evaluation that
    changed most, how stable a wish is in other words, and blind votes.

    Examples: cliptune explore

    cliptune explore --encoder base --encoder models/paraclip --images ~/photographs

    cliptune explore --export page.html --query "a kid on a sofa|a child on a couch"
    """

    def command() -> None:
        names, asked = encoder or _BOTH, _queries(query, queries)
        page = None if export is None else new_file(export)
        if page is not None and not asked:
            raise InputError("--export needs queries: give --query or --queries")
        explored = _explored(names, images)
        if page is None:
            _serve(explored, host, port)
            return
        from components.core.files import atomic_file
        from components.explorer.server import snapshot

        with atomic_file(page) as temporary:
            temporary.write_text(snapshot(explored, asked, k), "utf-8")
        typer.echo(f"wrote {export}: {len(asked)} queries")

    run_in_project(command)


def votes(
    export: Annotated[
        Path | None,
        typer.Option(
            help="A new file for the queries with a marked picture, as source `folder` reads them. The pictures are "
            "in the file's folder or in prepare.folder."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how often each encoder won in blind votes, with the interval of its share.

    Examples: cliptune votes; cliptune votes --export ~/photographs/captions.tsv
    """
    run_in_project(lambda: _votes(export, as_json))


def _explored(names: list[str], images: str) -> Explored:
    from components.core.settings import load_settings
    from components.explorer.comparing import Explorer
    from components.explorer.explored import Explored
    from components.registry.encoder_lookup import find_encoder
    from components.registry.encoder_names import check_name, name_from_root

    settings = load_settings()
    places = [name_from_root(name) for name in names]
    for name in places:
        check_name(name)
    encoders = [find_encoder(name) for name in places]
    if len({one.name for one in encoders}) < len(encoders):
        raise InputError("--encoder names one encoder twice: give two that differ")
    index = _index(images, encoders[0])
    for one in encoders:
        index.accept(one)
    return Explored(Explorer(index, encoders), settings, settings.synthesize.store)


def _index(images: str, encoder: EncoderUnderTest) -> ImageIndex:
    """The index that `images` is, or one of the pictures there, kept in `state/explore` until these change."""
    from components.core.shards.listing import is_remote
    from components.explorer.own_index import own_index
    from components.index.facts import FACTS
    from components.index.image_index import ImageIndex

    place = images if is_remote(images) or images == "data" else str(from_root(Path(images)))
    if (Path(place) / FACTS).is_file():
        return ImageIndex.open(Path(place))
    return own_index(place, encoder, _CACHE)


def _queries(given: list[str] | None, file: Path | None) -> list[tuple[str, str]]:
    lines = [line.replace("|", "\t", 1) for line in given or []]
    if file is not None:
        try:
            lines += from_root(file).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--queries {file} cannot be read ({error})") from None
    parts = [line.partition("\t") for line in lines if line.strip()]
    return [(query.strip(), paraphrase.strip()) for query, _, paraphrase in parts]


def _serve(explored: Explored, host: str, port: int) -> None:
    import uvicorn

    from components.explorer.server import make_app
    from components.serving.address import bind

    here = host in ("127.0.0.1", "localhost", "::1")
    with bind(host, port) as listening:
        # Whoever reads the address may ask at once.
        listening.listen()
        shown = f"[{host}]" if ":" in host else host
        typer.echo(f"http://{shown}:{listening.getsockname()[1]}/ until Ctrl-C")
        app = make_app(explored) if here else make_app(explored, ["*"])
        uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off")).run([listening])


def _votes(export: Path | None, as_json: bool) -> None:
    from components.core.settings import load_settings
    from components.explorer.voted import standings, write_captions
    from components.registry.votes import Votes

    place = None if export is None else new_file(export)
    settings = load_settings()
    store = Votes(settings.synthesize.store)
    try:
        found = store.all()
    finally:
        store.close()
    if place is not None:
        written, left_out = write_captions(found, place, settings.prepare.folder)
        typer.echo(f"wrote {export}: {written} queries with the picture that was meant")
        if left_out:
            typer.echo(f"left out: {left_out} queries whose picture is not a file there, such as a picture in a shard")
        return
    table = standings(found)
    if as_json:
        print_json([one.model_dump() for one in table])
        return
    if not table:
        typer.echo("no votes yet: run `cliptune explore`, view Vote")
        return
    numbers = ("won", "lost", "ties", "share of wins")
    view = table_of(("encoder", "against", *numbers), f"{len(found)} blind votes", numbers=numbers)
    for one in table:
        share = f"{one.wins.share:.0%} [{one.wins.low:.0%}, {one.wins.high:.0%}]"
        view.add_row(one.encoder, one.against, str(one.wins.won), str(one.wins.lost), str(one.wins.ties), share)
    print_table(view)
