"""What earlier versions called settings and modules: one table for messages, `cliptune upgrade` and docs/upgrade.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

KEYS = {
    "world": "dataset",
    "encoders": "compare_encoders",
    "prepare.benchmarks": "prepare.heldout_testsets_dir",
    "prepare.leaks": "prepare.on_test_leak",
    "prepare.keep_out": "prepare.exclude_test_by",
    "base.scratch.naming": "base.scratch.attribute_loss_weight",
    "embed.device": "device",
    "synthesize.captions": "synthesize.max_captions",
    "synthesize.models": "synthesize.llms",
    "synthesize.model": "synthesize.default_llm",
    "synthesize.replay": "synthesize.cached_answers",
    "synthesize.tasks.*.captions": "synthesize.tasks.*.max_captions",
    "synthesize.tasks.*.live": "synthesize.tasks.*.always_ask_first",
    "synthesize.tasks.*.model": "synthesize.tasks.*.llm",
    "synthesize.tasks.*.words": "synthesize.tasks.*.caption_length",
    "validate.check_facts": "validate.check_scene_facts",
    "validate.judged": "validate.apply_judge",
    "validate.tables.*.judged": "validate.tables.*.apply_judge",
    "train.held_out": "train.validation_images",
    "train.keep": "train.keep_checkpoints",
    "train.export": "train.select_checkpoint",
    "train.state": "train.checkpoint_dir",
    "train.device": "device",
    "methods.*.reads": "methods.*.train_data",
    "mixes.*.first": "mixes.*.a",
    "mixes.*.second": "mixes.*.b",
    "mixes.*.shares": "mixes.*.weights",
    "evaluate.ks": "evaluate.top_k",
    "promote.primary": "promote.metric",
    "promote.clean": "promote.require_clean_git",
    "promote.validation": "promote.require_valid_tables",
    "promote.benchmarks": "promote.require_benchmarks",
    "promote.card.worlds": "promote.card.datasets",
}
"""Old key -> new key; `*` is a name that the user chose."""

REMOVED = {
    "promote.margin": "`promote.min_gain` is the least gain, and the interval of the difference per query decides",
    "promote.webhook": "MLflow's server has webhooks",
    "promote.least_wins": "blind votes were removed; `cliptune rank` compares encoders",
    "promote.min_vote_win_rate": "blind votes were removed; `cliptune rank` compares encoders",
    "validate.database": "the rules run without a database",
    "validate.near_duplicate": "nothing compares captions with each other",
    "prepare.scale": "`python -m components.data.prepare --shard 0/4` makes a part anywhere",
    "embed.scale": "`python -m components.encoders.embed --shard 0/4` makes a part anywhere",
    "synthesize.scale": "`python -m components.captions.synthesize --task NAME --shard 0/4` does a part anywhere",
    "methods.*.lora_rank": "all matrices of the text side train",
    "methods.*.lora_alpha": "all matrices of the text side train",
    "methods.*.last_blocks": "all blocks train; `retention` or a lower `lr` limits changes",
    "methods.*.ema": "`weight_ensemble` averages with the base's weights",
    "methods.*.contrastive_loss": "the loss is sigmoid if the encoder has a logit bias, else softmax",
}
"""Old key -> what replaces it."""

VALUES = {
    "world.name": {"embedded": "synthetic"},
    "dataset.name": {"embedded": "synthetic"},
    "prepare.source": {"embedded": "synthetic"},
    "synthesize.llms.*.engine": {"embedded": "local"},
    "methods.*.method": {"coco_ft": "caption_ft", "half_truths": "cs_clip", "adapted_lm": "lm_text_tower"},
}
"""Key -> old value -> new value."""

MODULES = {
    "components.methods.contract.optimisation": "components.training.methods.contract.method",
    "components.methods": "components.training.methods",
    "components.benchmarks.embedded": "components.evaluation.benchmarks.project",
    "components.benchmarks.scoring.encoding": "components.evaluation.scoring",
    "components.benchmarks.scoring": "components.evaluation.scoring",
    "components.benchmarks": "components.evaluation.benchmarks",
    "components.evaluation.results": "components.evaluation.scoring.results",
    "components.captions.language_models": "components.encoders.language_models",
    "components.test_sets.written": "components.core.tables.written_queries",
    "components.test_sets.pictures": "components.data.test_sets.files",
    "components.test_sets": "components.data.test_sets",
    "components.data.test_sets.pictures": "components.data.test_sets.files",
    "components.validation.rules.checks": "components.captions.validation.rules",
    "components.validation": "components.captions.validation",
    "components.captions.prompting.inputs.benchmark_readers": "components.captions.prompting.readers",
    "components.captions.prompting.inputs": "components.captions.prompting",
    "components.captions.prompting.disarm": "components.captions.prompting.request",
    "components.data.world.description": "components.data.world",
    "components.tracking": "components.core.tracking",
    "components.core.compute.hardware": "components.core.compute.devices",
    "components.core.pictures.shards.listing": "components.core.pictures.shard_files",
    "components.core.pictures.shards.reader": "components.core.pictures.shard_reader",
    "components.core.tables.record_files": "components.core.tables.formats",
    "components.core.tables.text_column": "components.core.tables.arrays",
}
"""Old module or package -> the new one, for files of the user's own; of several, the first that fits."""

_OWN = ("components.methods", "components.benchmarks.embedded", "components.benchmarks.project")
"""Packages with files of the user's own that have another folder now."""
_MODULE = re.compile(r"\bcomponents(?:\.\w+)+")


class Change(NamedTuple):
    """One change of a text: the characters from `start` to `end` become `new`; `said` says so in words.

    Without words it is a key for the top of the file.
    """

    start: int
    end: int
    new: str
    said: str


def new_module(name: str) -> str:
    """The new name of a module; the same where it did not change."""
    for old, new in MODULES.items():
        if name == old or name.startswith(f"{old}."):
            return new + name[len(old) :]
    return name


def hint(key: str) -> str:
    """What became of an old key of params.yaml; empty for other keys."""
    for old, new in KEYS.items():
        if names := _names(old, key.split(".")):
            return f"it is now '{_named(new, names[1:])}', which `cliptune upgrade` writes"
    return next((f"it is gone: {why}" for old, why in REMOVED.items() if _names(old, key.split("."))), "")


def upgraded(text: str) -> tuple[str, list[str]]:
    """A text of params.yaml or of a profile with the names of this version, and its changes in words.

    Comments and layout stay. A key of a block that moves to the top of the file is written above all others.
    """
    root = yaml.compose(text, yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode) or not root.value:
        return text, []
    changes = list(_changes(root, [], text))
    first = root.value[0][0].start_mark.index
    tops = {
        change.new.partition(":")[0]: change._replace(start=first, end=first) for change in changes if not change.said
    }
    for change in sorted([*tops.values(), *(change for change in changes if change.said)], reverse=True):
        text = text[: change.start] + change.new + text[change.end :]
    return text, [change.said for change in changes if change.said]


def upgraded_code(text: str) -> tuple[str, list[str]]:
    """A Python file of the user's own with the modules of this version, and its changes in words."""
    old = {name for name in _MODULE.findall(text) if new_module(name) != name}
    said = [f"module {name} is now {new_module(name)}" for name in sorted(old)]
    return _MODULE.sub(lambda found: new_module(found[0]), text), said


def moved_files(root: Path = Path()) -> Iterator[tuple[Path, Path]]:
    """Each file of the user's own in a folder that this version does not read, and its new place."""
    for package in _OWN:
        folder, target = (Path(*name.split(".")) for name in (package, new_module(package)))
        for file in sorted((root / folder).glob("[!_]*.py")):
            yield folder / file.name, target / file.name


def _changes(block: yaml.MappingNode, path: list[str], text: str) -> Iterator[Change]:
    removed = [key.value for key, _ in block.value if _leaves([*path, key.value])]
    for number, (key, value) in enumerate(block.value):
        place = [*path, str(key.value)]
        dotted = ".".join(place)
        if place[-1] in removed:
            empty = "{}" if len(removed) == len(block.value) and key.value == removed[0] and path else ""
            yield _without(block, number, text, empty, f"{dotted}: {hint(dotted).partition(',')[0]}")
            if (new := KEYS.get(dotted)) and not re.search(rf"^{new}:", text, re.MULTILINE):
                yield Change(0, 0, f"{new}: {value.value}\n", "")
            continue
        if names := next((found for old in KEYS if (found := _names(old, place))), None):
            new = KEYS[names[0]].rpartition(".")[2]
            yield Change(key.start_mark.index, key.end_mark.index, new, f"{dotted}: now {new}")
        values = next((known for old, known in VALUES.items() if _names(old, place)), {})
        if isinstance(value, yaml.MappingNode):
            yield from _changes(value, place, text)
        elif isinstance(value, yaml.ScalarNode) and value.value in values:
            new = values[value.value]
            yield Change(value.start_mark.index, value.end_mark.index, new, f"{dotted}: {value.value} is now {new}")


def _leaves(place: list[str]) -> bool:
    """Whether a key is gone from its block."""
    key = ".".join(place)
    return any(_names(old, place) for old in REMOVED) or ("." in key and "." not in KEYS.get(key, "."))


def _without(block: yaml.MappingNode, number: int, text: str, empty: str, said: str) -> Change:
    """The removal of a key, with its line or its comma; `empty` stands for a block without other keys."""
    key, value = block.value[number]
    start, end = key.start_mark.index, _end(value)
    if not block.flow_style:
        line = text.find("\n", end) + 1 or len(text)
        return Change(start if empty else start - key.start_mark.column, line, empty and f"{empty}\n", said)
    if number + 1 < len(block.value):
        end = block.value[number + 1][0].start_mark.index
    elif number:
        start = _end(block.value[number - 1][1])
    return Change(start, end, "", said)


def _end(value: yaml.Node) -> int:
    """Where a value ends; the mark of a block is behind the comments that follow it."""
    if isinstance(value, yaml.CollectionNode) and not value.flow_style and value.value:
        last = value.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(value.end_mark.index)


def _names(old: str, place: list[str]) -> list[str]:
    """`old` and the names that stand for its `*`, if the keys of `place` are those of `old`; else empty."""
    parts = old.split(".")
    if len(parts) != len(place) or any(part not in ("*", given) for part, given in zip(parts, place, strict=True)):
        return []
    return [old, *(given for part, given in zip(parts, place, strict=True) if part == "*")]


def _named(key: str, names: list[str]) -> str:
    left = iter(names)
    return ".".join(next(left) if part == "*" else part for part in key.split("."))
