"""The commands `cliptune index ...`: build an image index, search it, add pictures to it and remove them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from components.cli.tables import AsJson, Device, Yes, confirm, encoder_names, print_json, print_rows, say, shown_size
from components.core.system.project import from_root, in_project

if TYPE_CHECKING:
    from components.encoders.under_test import EncoderUnderTest
    from components.serving.index.building import Added, Opened

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
        help="Encoder: a folder, a run id, text-encoder@champion or open_clip's name:tag. It embeds pictures, or is "
        "recorded as the encoder of given vectors.",
    ),
]
_Text = Annotated[
    str | None,
    typer.Option(help="Fields that make the caption, such as `title,brand`, or a template, as for `cliptune init`."),
]
_Item = Annotated[str | None, typer.Option(help="Field with the product of a picture, which becomes column `item`.")]
_Image = Annotated[str | None, typer.Option(help="Field with the picture's file; by default one of its usual names.")]
_DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the images that would be indexed; embed and write nothing.")
]
_FEW = 5
"""Number of pictures left out that are named."""


@index.command()
@in_project
def build(
    folder: _Folder,
    origin: _From = _DATA,
    source: _SourceName = None,
    encoder: _EncoderName = None,
    text: _Text = None,
    item: _Item = None,
    image: _Image = None,
    kind: Annotated[
        str, typer.Option(help="exact, lance (LanceDB, approximate), or auto: exact up to a million images.")
    ] = "auto",
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing index.")] = False,
    device: Device = "auto",
    dry_run: _DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Build an image index; the pictures are not copied.

    Examples: cliptune index build index

    cliptune index build index --from ~/photographs --encoder ViT-B-32-quickgelu:openai

    cliptune index build index --from data/shop --text "title, brand" --item sku --encoder base

    cliptune index build index --kind lance --from 's3://bucket/{00000..00099}.tar' --encoder base --dry-run
    """
    from components.serving.index.building import build as write
    from components.serving.index.building import check_output
    from components.serving.index.image_index import choose_kind

    place = from_root(folder)
    check_output(place, replace=replace)
    choose_kind(kind, 0)
    opened = _opened(origin, source, encoder, device, {"text": text, "item": item, "image": image})
    if dry_run:
        _print_plan(origin, opened, choose_kind(kind, opened.total))
        return
    _show(folder, write(place, opened, kind, replace=replace), as_json)


@index.command()
@in_project
def append(
    folder: _Folder,
    origin: _From = _DATA,
    source: _SourceName = None,
    encoder: _EncoderName = None,
    text: _Text = None,
    item: _Item = None,
    image: _Image = None,
    device: Device = "auto",
    dry_run: _DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Add images that are not in the index.

    Examples: cliptune index append index

    cliptune index append index --from ~/new-photographs --encoder paraclip
    """
    from components.serving.index.building import append as add
    from components.serving.index.building import check_source
    from components.serving.index.image_index import read_facts

    place = from_root(folder)
    facts = read_facts(place)
    opened = _opened(origin, source, encoder, device, {"text": text, "item": item, "image": image})
    check_source(place, facts, opened)
    if dry_run:
        _print_plan(origin, opened, facts.kind)
        return
    _show(folder, add(place, opened), as_json)


@index.command()
@in_project
def remove(
    folder: _Folder,
    where: Annotated[str, typer.Option(help="Condition in SQL about the columns of the index.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the number of images and the first; remove none.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Remove images from the index; the pictures' files stay.

    Examples: cliptune index remove index --where "name = 'deep/3.jpg'" --dry-run

    cliptune index remove index --where "shop = 'north' AND caption LIKE '%sold out%'" --yes
    """
    from components.serving.index.building import remove as take_out
    from components.serving.index.image_index import ImageIndex

    opened = ImageIndex.open(from_root(folder))
    found = opened.numbers(where)
    for row in opened.rows(found[:_FEW]).to_pylist():
        say(f"{row['name']}  {row['caption'] or ''}")
    if dry_run or not len(found):
        say(f"{folder}: {len(found):,} of {len(opened):,} images fulfil the condition; nothing was done")
        return
    confirm(f"remove {len(found):,} of {len(opened):,} images from {folder}?", yes)
    say(f"{folder}: {take_out(from_root(folder), where):,} images removed")


@index.command()
@in_project
def search(
    folder: _Folder,
    queries: Annotated[list[str], typer.Argument(help="Texts to search for.")],
    encoder: Annotated[
        str, typer.Option("--encoder", help="Encoder of the texts, with the index's image tower.")
    ] = "text-encoder@champion",
    where: Annotated[str | None, typer.Option(help="Condition in SQL about the columns of the index.")] = None,
    k: Annotated[int, typer.Option("-k", help="Number of images for each text.", min=1)] = 10,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Search the index by texts.

    Examples: cliptune index search index "a dog without a leash"

    cliptune index search index "a red mug" "a crimson mug" --where "shop = 'north'" -k 5 --encoder paraclip
    """
    from components.serving.index.image_index import ImageIndex

    opened, under_test = ImageIndex.open(from_root(folder)), _encoder(encoder, device)
    opened.accept(under_test)
    found = opened.to(under_test.device).search(under_test.encoder.embed_texts(queries), k, where)
    results: dict[str, list[dict[str, Any]]] = {}
    for query, scores, numbers in zip(queries, found.scores.tolist(), found.rows, strict=True):
        hits = opened.rows(numbers[numbers >= 0]).to_pylist()
        results[query] = [{"score": round(score, 4), **hit} for score, hit in zip(scores, hits, strict=False)]
    if as_json:
        print_json(results)
        return
    for query, hits in results.items():
        rows = ((f"{hit['score']:.3f}", hit["name"] or "", hit["caption"] or "") for hit in hits)
        print_rows(("score", "name", "caption"), rows, query, numbers=("score",))


def _encoder(name: str, device: str) -> EncoderUnderTest:
    (place,) = encoder_names([name])
    from components.registry.encoder_lookup import find_encoder

    return find_encoder(place, device=device)


def _opened(
    origin: str, source: str | None, encoder: str | None, device: str, fields: Mapping[str, str | None]
) -> Opened:
    from components.core.pictures.shard_files import is_remote
    from components.serving.index.sources import find_source, reading, source_of

    given = origin if is_remote(origin) or origin == _DATA else str(from_root(Path(origin)))
    under_test = None if encoder is None else _encoder(encoder, device)
    return find_source(source or source_of(given)).open(given, under_test, reading(fields))


def _print_plan(origin: str, opened: Opened, kind: str) -> None:
    for note in opened.notes:
        say(f"left out: {note}")
    if opened.total is None:
        say(f"{origin}: as many images as the shards hold, vectors of {opened.dim} numbers; nothing was done")
        return
    say(
        f"{origin}: up to {opened.total:,} images, vectors of {opened.dim} numbers by image tower "
        f"{opened.image_tower_sha256[:12]} (of '{opened.encoder}'); kind {kind}, about "
        f"{shown_size(4 * opened.dim * opened.total)}; nothing was done"
    )


def _show(folder: Path, added: Added, as_json: bool) -> None:
    from components.serving.index.image_index import MOST_EXACT, ImageIndex

    opened = ImageIndex.open(from_root(folder))
    facts, count = opened.facts, len(opened)
    if as_json:
        counts = {"added": added.rows, "repeated": added.repeated, "unusable": added.unusable}
        print_json(counts | {"index": facts.model_dump(mode="json") | {"rows": count}})
        return
    for reason in added.unusable[:_FEW]:
        say(f"left out: {reason}")
    if len(added.unusable) > _FEW:
        say(f"left out: {len(added.unusable) - _FEW:,} more")
    say(
        f"{folder}: {added.rows:,} images added, {added.repeated:,} rows of images it has already, "
        f"{len(added.unusable):,} left out; {count:,} images in all, kind {facts.kind}, image tower "
        f"{facts.image_tower_sha256[:12]}"
    )
    if count > MOST_EXACT and facts.kind == "exact":
        say(f"exact search takes long on so many images: cliptune index build NEW --from {folder} --kind lance")
