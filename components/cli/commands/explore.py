"""The commands `cliptune explore` and `review`: results next to each other, and test queries."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.cli.tables import AsJson, Device, encoder_names, print_json, print_rows, say
from components.core.system.errors import InputError
from components.core.system.project import from_root, in_project

if TYPE_CHECKING:
    from fastapi import FastAPI

    from components.core.settings import Prepare
    from components.encoders.under_test import EncoderUnderTest
    from components.serving.explorer.server import Explored
    from components.serving.index.image_index import ImageIndex

PORT = 8321
_Host = Annotated[
    str,
    typer.Option(
        help="Address to listen on; at other addresses than this machine's, others see all pictures, answer, and "
        "send texts to the language model of synthesize."
    ),
]
_Port = Annotated[int, typer.Option(help="Port; 0 for any free port.", min=0, max=65535)]


@in_project
def explore(
    encoder: Annotated[
        list[str] | None,
        typer.Option(help="Encoders as for `cliptune evaluate`, two or more; the others are compared with the first."),
    ] = None,
    images: Annotated[
        str,
        typer.Option(
            help="An index, or a source as for `cliptune index build --from`; by default this project's data."
        ),
    ] = "data",
    host: _Host = "127.0.0.1",
    port: _Port = PORT,
    device: Device = "auto",
) -> None:
    """Open a page that compares the results of two encoders for a query.

    It shows shared, gained and lost pictures, AO@k and JS@k, and the queries of an evaluation that changed most.

    Examples: cliptune explore

    cliptune explore --encoder base --encoder models/paraclip --images ~/photographs
    """
    from components.serving.explorer.server import make_app

    explored = _explored(encoder or ["base", "text-encoder@champion"], images, device)
    _serve(lambda hosts: make_app(explored, hosts), host, port)


@in_project
def review(
    sample: Annotated[int, typer.Option(help="Number of queries to read, chosen at random.", min=1)] = 100,
    summary: Annotated[bool, typer.Option("--summary", help="Print the shares instead of opening the page.")] = False,
    user: Annotated[str, typer.Option(help="Your name, which is stored with each answer.")] = "",
    host: _Host = "127.0.0.1",
    port: _Port = PORT,
    as_json: AsJson = False,
) -> None:
    """Open a page to check a random sample of the written test queries: y is right, n is wrong, b goes back.

    Each answer is stored at once; after a stop the page resumes at the first unread query. `cliptune report` and the
    model card state the share that is right, and promote.min_reviewed can require it.

    Examples: cliptune review; cliptune review --sample 200 --user Ada; cliptune review --summary
    """
    from components.core.settings import load_settings

    store = load_settings().synthesize.store
    if summary or as_json:
        _print_reviews(store, as_json)
        return
    from getpass import getuser

    from components.serving.explorer.reviewing import Reviewing, review_app

    reviewing = Reviewing(sample, store, user or getuser())
    _serve(lambda hosts: review_app(reviewing, hosts), host, port)


def _print_reviews(store: str, as_json: bool) -> None:
    from components.core.tables.folders import TEST_SET
    from components.core.tables.written_queries import frozen_hash
    from components.registry.reviews import Reviews, reviewed, verdicts

    with closing(Reviews(store)) as reviews:
        shares = reviewed(verdicts(reviews.all(), frozen_hash(TEST_SET)))
    if as_json:
        print_json([share.model_dump() for share in shares])
        return
    if not shares:
        say("no test query was read yet: run `cliptune review`")
        return
    numbers = ("read", "right", "share")
    rows = (
        (row.kind, str(row.read), str(row.right), f"{row.share:.0%} [{row.low:.0%}, {row.high:.0%}]") for row in shares
    )
    print_rows(("kind", *numbers), rows, numbers=numbers)
    say(str(shares[-1]))


def _explored(names: list[str], images: str, device: str) -> Explored:
    from components.captions.generating.questions import ParaphraseWriter
    from components.core.settings import load_settings
    from components.registry.encoder_lookup import find_encoder
    from components.serving.explorer.comparing import Explorer
    from components.serving.explorer.server import Explored

    settings = load_settings()
    encoders = [find_encoder(name, device=device) for name in encoder_names(names)]
    if len({encoder.name for encoder in encoders}) < len(encoders):
        raise InputError("--encoder names one encoder twice: give two that differ")
    index = _index(images, encoders[0], settings.prepare).to(encoders[0].device)
    for encoder in encoders:
        index.accept(encoder)
    return Explored(Explorer(index, encoders), settings, ParaphraseWriter(settings))


def _index(images: str, encoder: EncoderUnderTest, settings: Prepare) -> ImageIndex:
    """The index `images`, or an index of the pictures there, cached in `state/explore` until these change."""
    from components.core.pictures.shard_files import is_remote
    from components.serving.explorer.own_index import own_index
    from components.serving.index.image_index import FACTS, ImageIndex

    place = images if is_remote(images) or images == "data" else str(from_root(Path(images)))
    if (Path(place) / FACTS).is_file():
        return ImageIndex.open(Path(place))
    # Fields that params.yaml names are those of its own folder.
    is_own = settings.folder is not None and settings.folder.absolute() == Path(place).absolute()
    fields = {} if is_own else {"text": None, "item": None, "image": None}
    return own_index(place, encoder, Path("state/explore"), settings.model_copy(update=fields))


def _serve(make: Callable[[list[str] | None], FastAPI], host: str, port: int) -> None:
    import uvicorn

    from components.serving.server.address import bind

    here = host in ("127.0.0.1", "localhost", "::1")
    with bind(host, port) as listening:
        # The server must accept requests as soon as the address is printed.
        listening.listen()
        shown = f"[{host}]" if ":" in host else host
        say(f"http://{shown}:{listening.getsockname()[1]}/ until Ctrl-C")
        app = make(None if here else ["*"])
        uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off")).run([listening])
