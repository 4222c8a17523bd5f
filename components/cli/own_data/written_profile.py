"""The profile that `cliptune init` writes: one page that is complete over the committed params.yaml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from components.core.settings import Counts
from components.core.system.errors import InputError, printable
from components.core.text.languages import ENGLISH
from components.training.recipe import recipe

METHODS = ("paraclip", "semclip")
"""Methods that fit any captioned pictures: paraphrases, and paraphrases with negations."""
WRITTEN_BENCHMARKS = ("paraphrased_retrieval", "ranking_stability", "retrieval", "negations", "swaps")
"""Benchmarks of a dataset whose test queries a model writes."""
_LLM = "llm"
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


@dataclass(frozen=True)
class OwnData:
    """The data that a profile is written for.

    Attributes:
        prepare: source, folder, text and item of block `prepare`.
        watched: the file of captions, or the folder of several, if DVC can watch it.
        paraphrases: whether people wrote paraphrases.
        llm: URL and model of an OpenAI-compatible server; empty texts where they are not known yet.
        caption_words: words of captions that are rewritten, at least and at most.
    """

    name: str
    prepare: Mapping[str, Any]
    counts: Counts
    watched: Path | None
    paraphrases: bool
    base: Mapping[str, Any]
    llm: tuple[str, str]
    methods: Sequence[str]
    languages: tuple[str, ...]
    caption_words: tuple[int, int]


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


def server_block(llm: tuple[str, str]) -> dict[str, Any]:
    """Keys of block `synthesize` for the server and the model in `llm`."""
    return {"llms": {_LLM: {"engine": "server", "urls": [llm[0]], "model": llm[1]}}, "default_llm": _LLM}


def content_of(data: OwnData) -> dict[str, Any]:
    """The blocks of params.yaml that the data changes."""
    semclip = "semclip" in data.methods
    content: dict[str, Any] = {
        "dataset": {"name": data.name},
        "prepare": {**data.prepare, "counts": data.counts.model_dump()},
        "base": dict(data.base),
        "synthesize": {
            **server_block(data.llm),
            "max_captions": data.counts.train,
            "cached_answers": None,
            "tasks": _tasks(data, semclip),
        },
        "validate": {"check_scene_facts": False, "min_accepted_share": _ACCEPTED, "language": _language(data)},
        "train": {"precision": "auto", "keep_index": True},
        "methods": _methods(data),
        "compare_encoders": ["base", *data.methods],
        "evaluate": {"benchmarks": list(WRITTEN_BENCHMARKS)},
        "promote": {
            "require_benchmarks": ["paraphrased_retrieval", "retrieval"],
            "guards": {"retrieval/t2i_recall_at_5": 0.01, "zero_shot/top1": None},
            "card": {"datasets": [data.name], "data": "", "licences": [], "weaknesses": []},
        },
    }
    if semclip:
        content["validate"]["tables"] = {
            "semclip_paraphrases": {"folder": "data/validated/semclip"},
            "negations": {"folder": "data/validated/semclip"},
        }
    if data.watched is not None:
        # DVC watches files of captions, but not shards or pictures, which take long to read.
        content["depends"] = {"prepare": str(data.watched)}
    if data.paraphrases:
        content["evaluate"]["benchmarks"] = ["paraphrased_retrieval", "ranking_stability", "retrieval"]
    else:
        content["test_set"] = {"llm": _LLM}
    return content


def fitting_batch(rows: int, most: int) -> int:
    """The largest power of two, at most `most`, of which an epoch of `rows` has at least four steps."""
    # A contrastive batch has two rows or more.
    return min(most, max(2, 1 << max(0, (rows // _STEPS).bit_length() - 1)))


def _language(data: OwnData) -> str | list[str]:
    return data.languages[0] if len(data.languages) == 1 else list(data.languages)


def _tasks(data: OwnData, semclip: bool) -> dict[str, Any]:
    common = {"caption_length": list(data.caption_words), **_ANSWER}
    # MiniLM, which compares meanings, reads English.
    judge = {} if set(data.languages) <= {ENGLISH} else {"judge_llm": _LLM}
    tasks: dict[str, Any] = {
        "paraphrase_1": {"samples": 1, "always_ask_first": 0, **common, **judge},
        "paraphrase_2": {"samples": 1, **_ANSWER, **judge},
    }
    for name, (table, read) in _SEMCLIP_TASKS.items() if semclip else ():
        judges = name.startswith("judge")
        options = {"temperature": 0.0, "top_p": 1.0, "max_tokens": 8} if judges else common
        tasks[name] = {"table": table, "input": read, **options}
    return tasks


def _methods(data: OwnData) -> dict[str, Any]:
    """The recipe for the rows that are sure: those of the least share that `validate` must accept."""
    found = asdict(recipe(int(_ACCEPTED * data.counts.train)))
    folders = {"paraclip": "data/validated/paraclip", "semclip": "data/validated/semclip"}
    return {name: {"method": name, "train_data": folders[name], **found} for name in data.methods}


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
