"""Settings of earlier versions: params.yaml or a profile that has one is refused with its new name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.core.system.errors import InputError

KEYS = {
    "world": "dataset",
    "prepare.benchmarks": "prepare.heldout_testsets_dir",
    "prepare.leaks": "prepare.on_test_leak",
    "prepare.keep_out": "prepare.exclude_test_by",
    "base.scratch.naming": "base.scratch.attribute_loss_weight",
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
    "embed.device": "device",
    "methods.*.reads": "methods.*.train_data",
    "mixes.*.first": "mixes.*.a",
    "mixes.*.second": "mixes.*.b",
    "mixes.*.shares": "mixes.*.weights",
    "encoders": "compare_encoders",
    "evaluate.ks": "evaluate.top_k",
    "promote.primary": "promote.metric",
    "promote.margin.least": "promote.margin.min_gain",
    "promote.clean": "promote.require_clean_git",
    "promote.validation": "promote.require_valid_tables",
    "promote.benchmarks": "promote.require_benchmarks",
    "promote.least_wins": "promote.min_vote_win_rate",
    "promote.card.worlds": "promote.card.datasets",
}
"""Old key -> new key; `*` is a name that the user chose."""

VALUES = {
    "prepare.source": {"embedded": "synthetic"},
    "synthesize.llms.*.engine": {"embedded": "local"},
    "promote.margin.rule": {"least": "min_gain"},
    "methods.*.method": {"coco_ft": "caption_ft", "half_truths": "cs_clip", "adapted_lm": "lm_text_tower"},
}
"""Key -> old value -> new value."""


def refuse_renamed(raw: Mapping[str, Any], file: str) -> None:
    """Refuse keys and values of an earlier version in the content of `file`.

    Raises:
        InputError: there is one; the message has its new name.
    """
    for old, new in KEYS.items():
        for names, _ in _found(raw, old.split(".")):
            raise InputError(f"{file}: '{_named(old, names)}' is now '{_named(new, names)}': rename it")
    for key, values in VALUES.items():
        for names, value in _found(raw, key.split(".")):
            if isinstance(value, str) and value in values:
                raise InputError(f"{file}: {_named(key, names)} '{value}' is now '{values[value]}': rename it")


def _found(block: Any, path: list[str], names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The values at a path, each with the names that stand for its `*`."""
    if not path:
        yield names, block
    elif isinstance(block, Mapping):
        for key in list(block) if path[0] == "*" else [path[0]]:
            if key in block:
                yield from _found(block[key], path[1:], (*names, str(key)) if path[0] == "*" else names)


def _named(path: str, names: tuple[str, ...]) -> str:
    left = list(names)
    return ".".join(left.pop(0) if part == "*" and left else part for part in path.split("."))
