"""The command `cliptune init`: inspects a folder of captioned images, and writes a profile that trains on it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from components.cli.commands.caption import server_options, write_captions
from components.cli.own_data.written_profile import (
    METHODS,
    WRITTEN_BENCHMARKS,
    OwnData,
    base_block,
    content_of,
    fitting_batch,
    profile_text,
    server_block,
)
from components.cli.tables import AsJson, print_json, print_rows, say, shown_size, shown_time
from components.core.system.errors import InputError, prefixed_errors
from components.core.system.project import from_root, in_project, require_project
from components.training.recipe import recipe

if TYPE_CHECKING:
    from components.cli.own_data.survey import Survey

_BASE = "ViT-B-32-quickgelu:openai"


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
        str | None, typer.Option(help=f"Methods to train, of {', '.join(METHODS)}; by default paraclip.")
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
    from components.core.system.profiles import settings_with
    from components.core.tables.files import atomic_file
    from components.data.sources import find_source

    require_project()
    place = from_root(folder)
    chosen = name or place.resolve().name
    path = _profile_path(chosen, dry_run)
    _check_llm(llm, model, captions)
    if extends is not None and (base or methods):
        raise InputError("--base and --methods do not go with --extends: set them in the profile that is written")
    start, trained = base_block(base or _BASE) if extends is None else {}, _methods(methods or "paraclip")
    if index is not None and _copy_index(index, place, text, dry_run):
        return
    given = (("text", text), ("item", item), ("image", image))
    fields = {key: value for key, value in given if value is not None}
    if captions is not None:
        write_captions(place, llm, model, place, dry_run=dry_run)
        if dry_run:
            return
    with prefixed_errors(f"over profile '{extends}'") if extends else nullcontext():
        seed = settings_with(extends).dataset.seed
    contents = survey(place, fields, seed)
    if as_json:
        print_json(_facts(contents))
    else:
        _show(place, contents)
    if dry_run:
        return
    share = {} if contents.unusable_share is None else {"max_unusable_share": contents.unusable_share}
    named: dict[str, Any] = fields | share
    title = (
        f"{sum(contents.described.images.values()):,} captioned images of {place.name}, by source {contents.source}."
    )
    watches = find_source(contents.source).watched
    watched = None if watches is None else watches(place)
    if extends is None:
        prepare = {"source": contents.source, "folder": str(place), **named}
        data = OwnData(
            chosen, prepare, contents.counts, watched, bool(contents.described.paraphrases), start, (llm, model),
            trained, contents.languages, contents.caption_words,
        )  # fmt: skip
        written = _own_profile(title, data)
    else:
        content = _extending(extends, chosen, place, contents, named, (llm, model))
        written = _extended_profile(title, extends, content, watched)
    with atomic_file(path) as temporary:
        temporary.write_text(written, encoding="utf-8")
    if not as_json:
        if extends is None and not llm:
            say(
                f"no model is set to write captions: put its URL and name into {path}, synthesize.llms, or give --llm "
                "and --model; no stage after `embed` can run before"
            )
        _show_costs(chosen)
        say(f"wrote {path}; next: cliptune profile apply {chosen} && cliptune plan --cost")


def _profile_path(name: str, dry_run: bool) -> Path:
    """The file of a new profile; raises InputError if its name is not valid or, without `dry_run`, taken."""
    from components.core.system.discovery import FOLDER_NAME
    from components.core.system.profiles import PROFILES

    if not FOLDER_NAME.fullmatch(name):
        raise InputError(f"'{name}' is not a profile name: give --name with letters, digits, '_', '-' and '.'")
    path = PROFILES / f"{name}.yaml"
    if path.exists() and not dry_run:
        raise InputError(f"{path} exists: give another --name, or delete it")
    return path


def _copy_index(url: str, folder: Path, text: str | None, dry_run: bool) -> bool:
    """Copy the vectors and texts of a database, or show its content; returns whether that is all."""
    from components.data.vector_databases.copying import copy, look

    if dry_run:
        first = look(url, text)
        say(f"{first.rows:,} vectors of {first.dim} numbers; fields of the first: {', '.join(first.fields)}")
        for line in (*(f"caption: {caption}" for caption in first.captions), *first.notes):
            say(line)
        return True
    say(f"copied {copy(url, folder, text):,} vectors into {folder}")
    return False


def _own_profile(title: str, data: OwnData) -> str:
    """A profile of one page; raises InputError if params.yaml would not be valid with it."""
    from components.core.system.checking import check_settings
    from components.core.system.profiles import settings_with

    content = content_of(data)
    with prefixed_errors("the profile"):
        check_settings(settings_with(None, content))
    return profile_text(title, content)


def _extended_profile(title: str, over: str, content: dict[str, Any], watched: Path | None) -> str:
    """A profile with `content` over another one; raises as `_own_profile`."""
    from components.core.system.checking import check_settings
    from components.core.system.profiles import settings_with

    if watched is not None:
        content["depends"] = {"prepare": str(watched)}
    with prefixed_errors(f"over profile '{over}'"):
        check_settings(settings_with(over, content))
    return profile_text(title, {"over": over, **content})


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
    return [choose(list(METHODS), name, "--methods:") for name in dict.fromkeys(names)]


def _show(folder: Path, contents: Survey) -> None:
    from components.cli.own_data.survey import problems

    described, counts = contents.described, contents.counts
    drawn = [split for split in ("val", "test") if split not in described.images]
    note = f"images of {' and '.join(drawn)} are drawn from those of train" if drawn else "splits as published"
    say(f"{folder}: source '{contents.source}', recognised by {contents.file}; {note}")
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


def _show_costs(name: str) -> None:
    """Expected time and disk of every stage of the new profile, by the default rates of `cliptune plan --cost`."""
    from components.cli.costing.cost import Costing
    from components.cli.costing.rates import load_rates
    from components.core.system.profiles import settings_with
    from components.core.tables.training_columns import holders_of
    from components.training.methods.registry import find_entry

    settings = settings_with(name)
    trained = [find_entry(settings.methods, entry) for entry in settings.compare_encoders if entry in settings.methods]
    read = {table for entry in trained for table in holders_of(entry.method.needs(entry.hyper))}
    stages = ["prepare", "base", "embed"]
    stages += ["test_set"] if settings.test_set.llm is not None else []
    stages += [f"synthesize@{name}" for name, task in settings.synthesize.tasks.items() if task.table in read]
    stages += [f"validate@{table}" for table in settings.validation.tables if table in read]
    stages += [f"train@{entry.name}" for entry in trained]
    stages += [f"evaluate@{encoder}" for encoder in settings.compare_encoders]
    rates = load_rates()
    costs = Costing(settings, rates).of([*stages, "compare"])
    rows = []
    for cost in costs:
        time = "?" if cost.seconds is None else shown_time(cost.seconds)
        rows.append((cost.stage, cost.work, time, shown_size(cost.disk)))
    print_rows(("stage", "work", "time", "disk"), rows, numbers=("time", "disk"))
    known = sum(cost.seconds or 0.0 for cost in costs)
    questions = sum(cost.questions for cost in costs if cost.seconds is None)
    more = f", and the time of {questions:,} questions to the endpoint" if questions else ""
    disk = shown_size(sum(cost.disk for cost in costs))
    say(f"in all about {shown_time(known)}{more}, {disk}, at the rates of {rates.machine}")
    unknown = [cost.stage for cost in costs if cost.seconds is None and not cost.questions]
    if unknown:
        say(f"without {', '.join(unknown)}, whose rates are unknown: `cliptune plan --cost` names them")


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


def _extending(
    over: str, name: str, folder: Path, contents: Survey, fields: dict[str, Any], llm: tuple[str, str]
) -> dict[str, Any]:
    """The blocks of params.yaml that change profile `over`; only folder and model if it is of the same source."""
    from components.core.system.profiles import settings_with

    settings = settings_with(over)
    server = server_block(llm)
    writer = server if llm[0] else {}
    if settings.prepare.source == contents.source:
        content: dict[str, Any] = {"prepare": {"folder": str(folder), **fields}}
        return content | ({"synthesize": writer} if writer else {})
    described, counts = contents.described.images, contents.counts.model_dump()
    images = described.get("train", 0) - sum(counts[split] for split in ("val", "test") if not described.get(split))
    captions = images if settings.synthesize.tasks["paraphrase_1"].one_per_image else contents.counts.train
    content = {
        "dataset": {"name": name},
        "prepare": {"source": contents.source, "folder": str(folder), **fields, "counts": counts},
        "synthesize": {**writer, "max_captions": captions},
        "compare_encoders": ["base", "paraclip"],
        "study": {"seeds": [], "encoders": [], "mixes": [], "claims": []},
        # The profile's card and facts are of other pictures, and its guards name benchmarks that are not scored here.
        "promote": {
            "card": {"datasets": [name], "data": "", "licences": [], "weaknesses": []},
            "guards": dict.fromkeys(settings.promote.guards) | {"retrieval/t2i_recall_at_5": 0.01},
            "require_benchmarks": ["paraphrased_retrieval", "retrieval"],
        },
        "validate": {"check_scene_facts": False},
    }
    if contents.described.paraphrases:
        content["evaluate"] = {"benchmarks": ["paraphrased_retrieval", "ranking_stability", "retrieval"]}
    else:
        # A model writes the paraphrases of test captions. The small models of a profile cannot: without --llm the
        # server has empty places, and no stage that needs it runs before they are filled.
        content["synthesize"]["llms"] = server["llms"]
        content["test_set"] = {"llm": server["default_llm"]}
        content["evaluate"] = {"benchmarks": list(WRITTEN_BENCHMARKS)}
    # As if only the least share of the paraphrases were accepted.
    content["methods"] = {"paraclip": asdict(recipe(int(settings.validation.min_accepted_share * captions)))}
    fit = settings.base.fit
    if fit is not None and (size := fitting_batch(images, fit.batch_size)) < fit.batch_size:
        content["base"] = {"fit": {"batch_size": size}}
    return content
