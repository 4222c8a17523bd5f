"""Spreads stages `prepare` and `embed` over workers on many machines, where params.yaml has a `scale` for them."""

from __future__ import annotations

from prefect.logging import get_run_logger

from components.core.settings import PARAMS, load_settings
from components.core.stage_graph import outdated, read_graph
from flows.runners import make_runner
from flows.shards import over_shards

_COMMANDS = {"prepare": "components.data.prepare", "embed": "components.encoders.embed"}


def make_parts(stage: str) -> None:
    """Have workers make all parts of `prepare` or `embed`, if it has a `scale`; the stage then puts them together.

    Raises:
        CommandError: shards failed; the message has the first one's last lines.
        InputError: params.yaml is wrong, or the runner's package is missing.
    """
    if stage not in _COMMANDS or not PARAMS.is_file():
        return
    settings = load_settings()
    block = settings.prepare if stage == "prepare" else settings.embed
    # What the stage reads may have been made again just as it was.
    if block.scale is None or stage not in outdated(read_graph(), [stage]):
        return
    if block.scale.address is not None and not block.state.is_absolute():
        text = "%s.state is %s in each host's own checkout: name a folder that all of them share"
        get_run_logger().warning(text, stage, block.state)
    with make_runner(block.scale, stage) as started:
        over_shards(started, stage, [_COMMANDS[stage]], block.scale.shards)
