"""The profile that `cliptune init` writes: one page over the committed params.yaml, or over another profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.cli.own_data.counting import allowed_loss
from components.core.system.checking import check_settings
from components.core.system.errors import InputError, prefixed_errors, printable
from components.core.system.profiles import settings_with
from components.core.text.languages import ENGLISH
from components.training.recipe import recipe

if TYPE_CHECKING:
    from components.cli.own_data.survey import Survey

LlmPlace = tuple[str, str]
"""URL and model of an OpenAI-compatible server; empty texts where they are not known yet."""
_WRITTEN_BENCHMARKS = ("paraphrased_retrieval", "ranking_stability", "retrieval", "negations", "swaps")
"""Benchmarks of a dataset whose test queries a model writes."""
_LLM, _RECALL = "llm", "retrieval/t2i_recall_at_5"
_STEPS = 4
"""Minimum number of steps of an epoch: a small folder has none with the batch size of its profile."""
_ACCEPTED = 0.3
_ANSWER = {"temperature": 1.0, "top_p": 0.1, "max_tokens": 77}
_SEMCLIP_TASKS = {
    "paraphrase_semclip": ("semclip_paraphrases", "data/pairs/train.parquet"),
    "judge_paraphrase": ("semclip_paraphrases", "data/captions/semclip_paraphrases/paraphrase_semclip.parquet"),
    "negate_semclip": ("negations", "data/pairs/train.parquet"),
    "judge_negation": ("negations", "data/captions/negations/negate_semclip.parquet"),
}


def base_block(text: str) -> dict[str, Any]:
    """Block `base` of `NAME:TAG` or `NAME:FILE` of open_clip, `hf-hub:ORG/NAME` or `local-dir:FOLDER`."""
    if text.startswith(("hf-hub:", "local-dir:")):
        return {"source": "open_clip", "model": text, "pretrained": None, "scratch": None}
    model, _, tag = text.partition(":")
    if tag and (Path(tag).suffix in (".safetensors", ".bin", ".pt") or Path(tag).is_dir()):
        return {"source": "file", "model": model, "file": tag, "pretrained": None, "scratch": None}
    from components.training.base.published import published_weights

    if not tag:
        raise InputError(f"--base '{text}' names no weights: write NAME:TAG, see `cliptune encoders {model}`")
    published_weights(model, tag)
    return {"source": "open_clip", "model": model, "pretrained": tag, "scratch": None}


def own_profile(contents: Survey, name: str, base: dict[str, Any], llm: LlmPlace, methods: Sequence[str]) -> str:
    """The text of a profile that is complete over the committed params.yaml.

    Args:
        base: block `base`.
        methods: those to train.
    """
    counts, semclip, languages = contents.counts, "semclip" in methods, list(contents.languages)
    content: dict[str, Any] = {
        "dataset": {"name": name},
        "prepare": {**contents.prepare, "counts": counts.model_dump()},
        "base": base,
        "synthesize": {
            **_server(llm),
            "max_captions": counts.train,
            "cached_answers": None,
            "tasks": _tasks(contents, semclip),
        },
        "validate": {
            "check_scene_facts": False, "min_accepted_share": _ACCEPTED,
            "language": languages[0] if len(languages) == 1 else languages,
        },
        "train": {"precision": "auto", "keep_index": True},
        "methods": _methods(methods, counts.train),
        "compare_encoders": ["base", *methods],
        "promote": {**_gate(name), "guards": {_RECALL: allowed_loss(counts.test) / 100, "zero_shot/top1": None}},
        **_queries(contents),
    }  # fmt: skip
    if semclip:
        content["validate"]["tables"] = {
            "semclip_paraphrases": {"folder": "data/validated/semclip"},
            "negations": {"folder": "data/validated/semclip"},
        }
    return _checked_text(contents, None, content)


def extending_profile(contents: Survey, name: str, llm: LlmPlace, over: str) -> str:
    """The text of a profile over profile `over`; of the same source only folder and model change."""
    settings, writer = settings_with(over), _server(llm) if llm[0] else {}
    if settings.prepare.source == contents.source:
        changed = {key: value for key, value in contents.prepare.items() if key != "source"}
        return _checked_text(contents, over, {"prepare": changed} | ({"synthesize": writer} if writer else {}))
    described, counts = contents.described.images, contents.counts.model_dump()
    images = described.get("train", 0) - sum(counts[split] for split in ("val", "test") if not described.get(split))
    captions = images if settings.synthesize.tasks["paraphrase_1"].one_per_image else contents.counts.train
    guards: dict[str, float | None] = dict.fromkeys(settings.promote.guards)
    content = {
        "dataset": {"name": name},
        "prepare": {**contents.prepare, "counts": counts},
        "synthesize": {**writer, "max_captions": captions},
        "compare_encoders": ["base", "paraclip"],
        "study": {"seeds": [], "encoders": [], "mixes": [], "claims": []},
        # The profile's card and facts are of other pictures, and its guards name benchmarks that are not scored here.
        "promote": {**_gate(name), "guards": guards | {_RECALL: allowed_loss(counts["test"]) / 100}},
        "validate": {"check_scene_facts": False},
        # As if only the least share of the paraphrases were accepted.
        "methods": {"paraclip": asdict(recipe(int(settings.validation.min_accepted_share * captions)))},
        **_queries(contents),
    }
    if not contents.described.paraphrases:
        # The small models of a profile cannot write test queries. Without --llm the server has empty places, and no
        # stage that needs it runs before they are filled.
        content["synthesize"]["llms"] = _server(llm)["llms"]
    fit = settings.base.fit
    if fit is not None and (size := _fitting_batch(images, fit.batch_size)) < fit.batch_size:
        content["base"] = {"fit": {"batch_size": size}}
    return _checked_text(contents, over, content)


def _checked_text(contents: Survey, over: str | None, content: dict[str, Any]) -> str:
    """The text of a profile; raises InputError if params.yaml would not be valid with it."""
    if contents.watched is not None:
        content["depends"] = {"prepare": str(contents.watched)}
    with prefixed_errors("the profile" if over is None else f"over profile '{over}'"):
        check_settings(settings_with(over, content))
    images = sum(contents.described.images.values())
    title = f"{images:,} captioned images of {contents.folder.name}, by source {contents.source}."
    return profile_text(title, content if over is None else {"over": over, **content})


def _server(llm: LlmPlace) -> dict[str, Any]:
    """Keys of block `synthesize` for a server."""
    return {"llms": {_LLM: {"engine": "server", "urls": [llm[0]], "model": llm[1]}}, "default_llm": _LLM}


def _gate(name: str) -> dict[str, Any]:
    """Keys of block `promote` for a new dataset."""
    return {
        "require_benchmarks": ["paraphrased_retrieval", "retrieval"],
        "card": {"datasets": [name], "data": "", "licences": [], "weaknesses": []},
    }


def _queries(contents: Survey) -> dict[str, Any]:
    """The blocks that score people's paraphrases of test captions, or those that the model writes."""
    if contents.described.paraphrases:
        return {"evaluate": {"benchmarks": ["paraphrased_retrieval", "ranking_stability", "retrieval"]}}
    return {"test_set": {"llm": _LLM}, "evaluate": {"benchmarks": list(_WRITTEN_BENCHMARKS)}}


def _fitting_batch(rows: int, most: int) -> int:
    """The largest power of two, at most `most`, of which an epoch of `rows` has at least four steps."""
    # A contrastive batch has two rows or more.
    return min(most, max(2, 1 << max(0, (rows // _STEPS).bit_length() - 1)))


def _tasks(contents: Survey, semclip: bool) -> dict[str, Any]:
    common = {"caption_length": list(contents.caption_words), **_ANSWER}
    # MiniLM, which compares meanings, reads English.
    judge = {} if set(contents.languages) <= {ENGLISH} else {"judge_llm": _LLM}
    tasks: dict[str, Any] = {
        "paraphrase_1": {"samples": 1, "always_ask_first": 0, **common, **judge},
        "paraphrase_2": {"samples": 1, **_ANSWER, **judge},
    }
    for name, (table, read) in _SEMCLIP_TASKS.items() if semclip else ():
        judges = name.startswith("judge")
        options = {"temperature": 0.0, "top_p": 1.0, "max_tokens": 8} if judges else common
        tasks[name] = {"table": table, "input": read, **options}
    return tasks


def _methods(names: Sequence[str], captions: int) -> dict[str, Any]:
    """The recipe for the rows that are sure: those of the least share that `validate` must accept."""
    found = asdict(recipe(int(_ACCEPTED * captions)))
    return {name: {"method": name, "train_data": f"data/validated/{name}", **found} for name in names}


_ORDER = ("over", "dataset", "prepare", "depends", "base", "synthesize", "test_set", "validate", "train", "methods",
          "compare_encoders", "evaluate", "promote", "study")  # fmt: skip
_COMMENTS = {
    "base": "The encoder to start from: `cliptune encoders` lists all others.",
    "synthesize": "The model that writes the captions. Its key comes from the environment variable OPENAI_API_KEY.",
    "test_set": "Paraphrases, negations and swaps of test captions, by the model; `cliptune review` opens a sample.",
    "train": "`keep_index` refuses methods that train the image tower: the vectors of your index stay valid.",
    "methods": "Values by the number of accepted rows (docs/sampling.md); `cliptune tune` tries others.",
    "promote": "Metrics that a new champion must gain and must not lose; the card states your licences and weaknesses.",
}


def profile_text(title: str, content: Mapping[str, Any]) -> str:
    """The profile's text: each block with its comment."""
    import yaml

    class Plain(yaml.SafeDumper):
        """Writes equal blocks twice, not by reference."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    parts = [f"# {printable(title)}\n# Written by `cliptune init`.\n"]
    for key in sorted(content, key=_ORDER.index):
        # A mapping of texts alone would be written in braces.
        flow = False if isinstance(content[key], str) else None
        block = {key: content[key]}
        body = yaml.dump(block, Dumper=Plain, sort_keys=False, default_flow_style=flow, width=118, allow_unicode=True)
        parts.append(f"# {_COMMENTS[key]}\n{body}" if key in _COMMENTS else body)
    return "".join(parts)
