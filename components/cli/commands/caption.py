"""The command `cliptune caption`: captions for a folder of pictures that has none."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.cli.tables import say
from components.core.system.errors import InputError
from components.core.system.project import from_root, in_project, require_project

if TYPE_CHECKING:
    from components.captions.generating.client import ServerOptions


@in_project
def caption(
    folder: Annotated[Path, typer.Argument(help="Folder with the pictures.")],
    llm: Annotated[str, typer.Option(help="URL of the OpenAI-compatible server, such as https://host/v1.")],
    model: Annotated[str, typer.Option(help="Name of the vision-language model on the server.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the captions; by default that of the pictures.")] = None,
    language: Annotated[str, typer.Option(help="Language of the captions, an ISO 639-1 code.")] = "en",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count pictures and questions; send none.")] = False,
) -> None:
    """Have a vision-language model write captions for a folder of pictures, and check them against the pictures.

    It writes captions.tsv with a caption and two queries per picture, and captions_quarantine.tsv with the rejected
    texts. The pictures are sent to the server. A stopped run resumes.

    Examples: cliptune caption data/shop --llm http://127.0.0.1:8000/v1 --model Qwen/Qwen2.5-VL-7B-Instruct --dry-run;
    cliptune caption data/shop --llm https://host/v1 --model gpt-4o-mini --out data/shop-captions
    """
    require_project()
    write_captions(from_root(folder), llm, model, from_root(out or folder), language, dry_run=dry_run)


def write_captions(
    folder: Path, url: str, model: str, output: Path, language: str = "en", *, dry_run: bool = False
) -> None:
    """Caption the pictures of a folder, or print the number of questions; raises as `caption_folder`."""
    from components.captions.caption_folder import CAPTIONS, QUARANTINE, QUESTIONS, caption_folder, find_pictures
    from components.captions.generating.engines.server import ServerEngine
    from components.captions.generating.store import GenerationStore
    from components.core.settings import load_settings

    if not re.fullmatch("[a-z]{2,3}", language):
        raise InputError(f"--language '{language}' is not an ISO 639-1 code: give one such as de")
    settings = load_settings()
    engine = ServerEngine(server_options(url, model))
    found = find_pictures(folder, settings.prepare.picture_bound)
    for note in found.notes:
        say(f"left out: {note}")
    if dry_run:
        count = len(found.names)
        shown = f"{count:,} picture{'' if count == 1 else 's'}"
        say(f"{folder}: {shown}, at most {QUESTIONS * count:,} questions to {model}; nothing sent")
        return
    with closing(GenerationStore(settings.synthesize.store)) as store:
        result = caption_folder(found, output, engine, store, settings, language)
    say(f"wrote {output / CAPTIONS}: {result}; rejected texts are in {output / QUARANTINE}")
    if result.tokens_in:
        say(f"{result.tokens_in:,} tokens in, {result.tokens_out:,} out")
    if result.base != output:
        say(f"its names are relative to {folder}: move {CAPTIONS} there before `cliptune init {folder}`")


def server_options(url: str, model: str) -> ServerOptions:
    """The settings of a server."""
    from pydantic import ValidationError

    from components.captions.generating.client import ServerOptions
    from components.core.settings import explain_fault

    try:
        return ServerOptions.model_validate({"urls": [url], "model": model}, context="--llm")
    except ValidationError as error:
        raise InputError(f"--llm: {explain_fault(error, ServerOptions)}") from None
