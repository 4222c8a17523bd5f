"""The commands `cliptune init` and `caption`: a profile for a folder of captioned images, and captions for others."""

from __future__ import annotations

import re
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from components.cli.tables import AsJson, print_json, print_rows, say
from components.core.system.errors import InputError, prefixed_errors
from components.core.system.project import from_root, in_project, require_project

if TYPE_CHECKING:
    from components.captions.generating.client import ServerOptions
    from components.cli.own_data.survey import Survey

_BASE = "ViT-B-32-quickgelu:openai"
_METHODS = ("paraclip", "semclip")
"""Methods that fit any captioned pictures: paraphrases, and paraphrases with negations."""


@in_project
def import_folder(
    folder: Annotated[Path, typer.Argument(help="Folder with the images and the file of their captions.")],
    name: Annotated[
        str | None, typer.Option(help="Name of the profile and of the dataset; by default the folder's name.")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            help="The encoder to start from: NAME:TAG as `cliptune encoders` lists, NAME:FILE, or hf-hub:ORG/NAME; "
            f"by default {_BASE}."
        ),
    ] = None,
    llm: Annotated[
        str, typer.Option(help="URL of the OpenAI-compatible server that writes captions, such as https://host/v1.")
    ] = "",
    model: Annotated[str, typer.Option(help="With --llm: name of the model on the server.")] = "",
    methods: Annotated[
        str | None, typer.Option(help=f"Methods to train, of {', '.join(_METHODS)}; by default paraclip.")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            help="Fields that make the caption, such as `title,brand,color`, or a template: `{title}[ by {brand}]`."
        ),
    ] = None,
    item: Annotated[
        str | None, typer.Option(help="Field with the product of a picture, where a product has several pictures.")
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(help="Field with the picture or its file; by default `image` or one of its usual names."),
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(
            help="URL of the database with your vectors and texts, which are copied into the folder: qdrant://, "
            "postgresql:// or lance://."
        ),
    ] = None,
    captions: Annotated[
        str | None, typer.Option(help="`model`: the model, which must see pictures, writes captions first.")
    ] = None,
    extends: Annotated[
        str | None, typer.Option(help="Profile to extend; one of the same source keeps all but its folder.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the contents of the folder; write nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Inspect a folder of captioned images, print its contents, and write a profile that trains on them.

    Examples: cliptune init data/shop --dry-run;
    cliptune init data/shop --base ViT-B-32-quickgelu:openai --llm https://host/v1 --model gpt-4o-mini;
    cliptune init data/photographs --captions model --llm https://host/v1 --model gpt-4o-mini;
    cliptune init data/shop --text "title,brand,color" --item sku --methods paraclip,semclip;
    cliptune init ~/flickr8k --name photographs --extends flickr8k;
    cliptune init data/shop --index qdrant://127.0.0.1:6333/images --base ViT-B-32-quickgelu:openai;
    cliptune init data/shop --index "postgresql://reader@host/shop?table=images" --text "title,brand" --dry-run
    """
    from components.cli.own_data.survey import survey
    from components.cli.own_data.written_profile import base_block, extending_profile, own_profile
    from components.core.system.profiles import settings_with
    from components.core.tables.files import atomic_file

    require_project()
    place = from_root(folder)
    chosen = name or place.resolve().name
    path = _profile_path(chosen, dry_run)
    _check_llm(llm, model, captions)
    if extends is not None and (base or methods):
        raise InputError("--base and --methods do not go with --extends: set them in the profile that is written")
    start, trained = base_block(base or _BASE) if extends is None else {}, _methods(methods or "paraclip")
    if index is not None:
        _copy_index(index, place, text, dry_run)
    if captions is not None:
        write_captions(place, llm, model, place, dry_run=dry_run)
    if dry_run and (index or captions):
        return
    given = {"text": text, "item": item, "image": image}
    with prefixed_errors(f"over profile '{extends}'") if extends else nullcontext():
        seed = settings_with(extends).dataset.seed
    contents = survey(place, {key: value for key, value in given.items() if value is not None}, seed)
    if as_json:
        print_json(_facts(contents))
    else:
        _show(contents)
    if dry_run:
        return
    if extends is None:
        written = own_profile(contents, chosen, start, (llm, model), trained)
    else:
        written = extending_profile(contents, chosen, (llm, model), extends)
    with atomic_file(path) as temporary:
        temporary.write_text(written, encoding="utf-8")
    if not as_json:
        if extends is None and not llm:
            say(
                f"no model is set to write captions: put its URL and name into {path}, synthesize.llms, or give --llm "
                "and --model; no stage after `embed` can run before"
            )
        say(f"wrote {path}; next: cliptune profile apply {chosen} && cliptune plan --cost")


def _profile_path(name: str, dry_run: bool) -> Path:
    """The file of a new profile; raises InputError if its name is not valid or, without `dry_run`, taken."""
    from components.core.system.discovery import FOLDER_NAME
    from components.core.system.profiles import PROFILES, profile_files

    if not FOLDER_NAME.fullmatch(name):
        raise InputError(f"'{name}' is not a profile name: give --name with letters, digits, '_', '-' and '.'")
    path = profile_files().get(name, PROFILES / f"{name}.yaml")
    if path.exists() and not dry_run:
        raise InputError(f"{path} exists: give another --name, or delete it")
    return path


def _copy_index(url: str, folder: Path, text: str | None, dry_run: bool) -> None:
    """Copy the vectors and texts of a database, or show its content."""
    from components.data.vector_databases.copying import copy, look

    if not dry_run:
        say(f"copied {copy(url, folder, text):,} vectors into {folder}")
        return
    first = look(url, text)
    say(f"{first.rows:,} vectors of {first.dim} numbers; fields of the first: {', '.join(first.fields)}")
    for line in (*(f"caption: {caption}" for caption in first.captions), *first.notes):
        say(line)


def _check_llm(llm: str, model: str, captions: str | None) -> None:
    if bool(llm) != bool(model):
        raise InputError("--llm and --model belong together: give the URL of the server and the name of its model")
    if llm:
        server_options(llm, model)
    if captions not in (None, "model"):
        raise InputError(f"--captions '{captions}' is unknown: the one choice is `model`, which writes them")
    if captions and not llm:
        raise InputError("--captions model needs a vision-language model: give --llm and --model")


def _methods(given: str) -> list[str]:
    from components.core.system.discovery import choose

    names = [name.strip() for name in given.split(",") if name.strip()]
    return [choose(list(_METHODS), name, "--methods:") for name in dict.fromkeys(names)]


def _show(contents: Survey) -> None:
    from components.cli.own_data.survey import problems

    described, counts = contents.described, contents.counts
    drawn = [split for split in ("val", "test") if split not in described.images]
    note = f"images of {' and '.join(drawn)} are drawn from those of train" if drawn else "splits as published"
    say(f"{contents.folder}: source '{contents.source}', recognised by {contents.file}; {note}")
    columns = ("images", "captions", "prepare.counts")
    rows = []
    for split in ("train", "val", "test"):
        cells = described.images.get(split, 0), described.captions.get(split, 0), getattr(counts, split)
        rows.append((split, *(f"{cell:,}" for cell in cells)))
    print_rows(("split", *columns), rows, numbers=columns)
    for fact in contents.facts:
        say(fact)
    for problem in problems(contents):
        say(f"problem: {' '.join(problem.split())}")


def _facts(contents: Survey) -> dict[str, Any]:
    from components.cli.own_data.survey import problems

    described = contents.described
    return {
        "source": contents.source,
        "file": contents.file,
        "published_splits": set(described.images) != {"train"},
        "images": dict(described.images),
        "captions": dict(described.captions),
        "paraphrases": described.paraphrases,
        "counts": contents.counts.model_dump(),
        "facts": list(contents.facts),
        "problems": list(problems(contents)),
        "prepare_seconds": round(contents.seconds, 1),
        "prepare_bytes": contents.bytes,
    }


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
