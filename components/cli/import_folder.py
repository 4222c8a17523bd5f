"""The command `cliptune init`: inspects a folder of captioned images, and writes a profile that trains on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from components.cli.tables import AsJson, print_json, print_table, shown_size, shown_time, table_of
from components.core.system.errors import InputError, prefixed_errors
from components.core.system.project import from_root, in_project, require_project

if TYPE_CHECKING:
    from components.cli.survey import Survey
    from components.core.settings import Settings

_OVER = "vit-b-32"
WRITTEN_BENCHMARKS = ["paraphrased_retrieval", "ranking_stability", "retrieval", "negations", "swaps"]
"""Benchmarks of a dataset whose test queries a model writes."""
_STEPS = 4
"""Minimum number of steps of an epoch: a small folder has none with the batch size of its profile."""


@in_project
def import_folder(
    folder: Annotated[Path, typer.Argument(help="Folder with the images and the file of their captions.")],
    name: Annotated[
        str | None, typer.Option(help="Name of the profile and of the dataset; by default the folder's name.")
    ] = None,
    extends: Annotated[
        str | None, typer.Option(help="Profile to extend; one of the same source keeps all but its folder.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the contents of the folder; write nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Inspect a folder of captioned images, print its contents, and write a profile that trains on them.

    Examples: cliptune init data/shop --dry-run; cliptune init ~/flickr30k --name flickr;
    cliptune init ~/flickr8k --name photographs --extends flickr8k
    """
    from components.cli.survey import survey
    from components.core.system.checking import check_settings
    from components.core.system.discovery import FOLDER_NAME
    from components.core.system.profiles import PROFILES, settings_with
    from components.core.tables.files import atomic_file

    require_project()
    place = from_root(folder)
    chosen = name or place.resolve().name
    if not FOLDER_NAME.fullmatch(chosen):
        raise InputError(f"'{chosen}' is not a profile name: give --name with letters, digits, '_', '-' and '.'")
    path = PROFILES / f"{chosen}.yaml"
    if path.exists() and not dry_run:
        raise InputError(f"{path} exists: give another --name, or delete it")
    under = settings_with(extends or _OVER)
    source = under.prepare.source if extends else None
    contents = survey(place)
    if as_json:
        print_json(_facts(contents))
    else:
        _show(place, contents)
    if dry_run:
        return
    content: dict[str, Any] = {"prepare": {"folder": str(place)}}
    if source != contents.source:
        content = _content(chosen, place, contents, under) | _fitting_batches(contents, under)
    # DVC watches files of captions, but not shards or pictures, which take long to read.
    if (place / contents.file).suffix in (".tsv", ".csv", ".txt", ".token", ".json", ".jsonl"):
        content["depends"] = {"prepare": str(place / contents.file)}
    with prefixed_errors(f"over profile '{extends or _OVER}'"):
        check_settings(settings_with(extends or _OVER, content))
    with atomic_file(path) as temporary:
        temporary.write_text(_profile(place, contents, extends or _OVER, content), encoding="utf-8")
    if not as_json:
        typer.echo(f"wrote {path}; next: cliptune profile apply {chosen} && cliptune plan")


def _show(folder: Path, contents: Survey) -> None:
    from components.cli.survey import problems

    described, counts = contents.described, contents.counts
    drawn = [split for split in ("val", "test") if split not in described.images]
    note = f"images of {' and '.join(drawn)} are drawn from those of train" if drawn else "splits as published"
    typer.echo(f"{folder}: source '{contents.source}', recognised by {contents.file}; {note}")
    columns = ("images", "captions", "prepare.counts")
    table = table_of(("split", *columns), numbers=columns)
    for split in ("train", "val", "test"):
        cells = described.images.get(split, 0), described.captions.get(split, 0), getattr(counts, split)
        table.add_row(split, *(f"{cell:,}" for cell in cells))
    print_table(table)
    for problem in problems(contents):
        typer.echo(f"problem: {' '.join(problem.split())}")
    typer.echo(f"prepare: about {shown_time(contents.seconds)}, {shown_size(contents.bytes)} in data/pairs")


def _facts(contents: Survey) -> dict[str, Any]:
    from components.cli.survey import problems

    described = contents.described
    return {
        "source": contents.source,
        "file": contents.file,
        "published_splits": set(described.images) != {"train"},
        "images": dict(described.images),
        "captions": dict(described.captions),
        "paraphrases": described.paraphrases,
        "counts": contents.counts.model_dump(),
        "problems": list(problems(contents)),
        "prepare_seconds": round(contents.seconds, 1),
        "prepare_bytes": contents.bytes,
    }


def _profile(folder: Path, contents: Survey, over: str, content: dict[str, Any]) -> str:
    """The profile's text: `content` over profile `over`, with the contents of the folder as its comment."""
    import yaml

    images = sum(contents.described.images.values())
    comment = f"# {images:,} captioned images of {folder.name}, by source {contents.source}.\n"
    text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=118)
    return f"{comment}# Written by `cliptune init`.\nover: {over}\n{text}"


def _content(name: str, folder: Path, contents: Survey, settings: Settings) -> dict[str, Any]:
    """The facts of the folder as blocks of params.yaml that change `settings`."""
    content: dict[str, Any] = {
        "dataset": {"name": name},
        "prepare": {"source": contents.source, "folder": str(folder), "counts": contents.counts.model_dump()},
        "synthesize": {"max_captions": contents.counts.train},
        "compare_encoders": ["base", "paraclip"],
        "study": {"seeds": [], "encoders": [], "mixes": [], "claims": []},
        "promote": {"card": {"datasets": [name]}},
    }
    if settings.prepare.source != contents.source:
        # The profile's card and facts are of other pictures.
        content["promote"]["card"] |= {"data": "", "licences": [], "weaknesses": []}
        content["validate"] = {"check_scene_facts": False}
    if not contents.described.paraphrases:
        # A model writes the paraphrases of test captions.
        content["test_set"] = {"llm": settings.synthesize.default_llm}
        content["evaluate"] = {"benchmarks": WRITTEN_BENCHMARKS}
    return content


def _fitting_batches(contents: Survey, settings: Settings) -> dict[str, Any]:
    """The batch sizes, in the blocks of params.yaml, that must be smaller than those of `settings` for this folder.

    Paraphrases are counted as if only `validate.min_accepted_share` of them were accepted.
    """
    described, counts = contents.described, contents.counts
    drawn = sum(getattr(counts, split) for split in ("val", "test") if not described.images.get(split))
    images = described.images.get("train", 0) - drawn
    captions = images if settings.synthesize.tasks["paraphrase_1"].one_per_image else counts.train
    content: dict[str, Any] = {}
    fit = settings.base.fit
    if fit is not None and (size := _batch(images)) < fit.batch_size:
        content["base"] = {"fit": {"batch_size": size}}
    size = _batch(int(settings.validation.min_accepted_share * captions))
    if size < settings.methods["paraclip"]["batch_size"]:
        content["methods"] = {"paraclip": {"batch_size": size}}
    return content


def _batch(rows: int) -> int:
    """The largest power of two of which an epoch of `rows` has at least `_STEPS`."""
    # A contrastive batch has two rows or more.
    return max(2, 1 << max(0, (rows // _STEPS).bit_length() - 1))
