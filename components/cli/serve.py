"""The command `cliptune serve`: text embeddings over HTTP."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from components.cli.registry import quiet_mlflow
from components.core.project import run_in_project

_HOST, _PORT = "127.0.0.1", 8080


def serve(
    encoder: Annotated[
        str, typer.Option(help="text-encoder@champion, text-encoder/3, a folder (models/paraclip) or a run id.")
    ] = "text-encoder@champion",
    host: Annotated[str, typer.Option(help="Bind address; non-local addresses need CLIPTUNE_SERVE_TOKEN.")] = _HOST,
    port: Annotated[int, typer.Option(help="Port; 0 for any free port.", min=0, max=65535)] = _PORT,
    poll: Annotated[float, typer.Option(help="Seconds between two checks for a new version.", min=0.1)] = 5,
    any_tower: Annotated[
        bool, typer.Option("--any-tower", help="Also load versions with a different image tower.")
    ] = False,
    batch: Annotated[int, typer.Option(help="Texts that are embedded together.")] = 64,
    texts: Annotated[int, typer.Option(help="Maximum number of texts of a request.")] = 256,
    queue: Annotated[int, typer.Option(help="Maximum number of waiting texts; others get status 429.")] = 1024,
    cache: Annotated[int, typer.Option(help="Texts whose vectors are cached; 0 for no cache.")] = 4096,
) -> None:
    """Serve POST /v1/embeddings like OpenAI's API, with the champion and every later champion.

    Other machines need a token: the environment variable CLIPTUNE_SERVE_TOKEN. See docs/serve.md.

    Examples: cliptune serve; cliptune serve --encoder models/paraclip --port 9000;
    CLIPTUNE_SERVE_TOKEN=$(openssl rand -hex 32) cliptune serve --host 0.0.0.0
    """

    def command() -> None:
        from components.registry.encoder_names import check_name, name_from_root
        from components.serving.address import bind, read_tokens
        from components.serving.messages import ServingLimits

        tokens = read_tokens(host, os.environ)
        limits = ServingLimits(batch=batch, texts=texts, queue=queue, cache=cache)
        name = name_from_root(encoder)
        check_name(name)
        with bind(host, port) as place:
            quiet_mlflow()
            from components.serving.server import serve as run

            run(name, place, tokens, limits, any_tower=any_tower, every=poll)

    run_in_project(command)
