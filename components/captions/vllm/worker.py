"""One vLLM process of the engine `vllm`, run as a plain file by the Python of vLLM's own environment.

It reads JSON lines: first what to load, then blocks of rows; it writes one line per block, in order.
This is the only module that imports vllm, and it imports nothing else that is not in the standard library.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

GRACE = 5.0
"""Seconds that a worker may take to end by itself once its input has ended."""

Row = dict[str, Any]
"""`messages` or `prompt`, `sampling` (temperature, top_p, max_tokens) and `seed`."""


def main() -> None:
    """Answer blocks until the input ends."""
    commands, replies = take_pipes()
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(commands, inbox), daemon=True).start()
    first = inbox.get()
    if first is None:
        return
    answer = _load(first["arguments"], first["chat"])
    while (rows := inbox.get()) is not None:
        replies.write(json.dumps(answer(rows)) + "\n")
        replies.flush()


def take_pipes() -> tuple[TextIO, TextIO]:
    """Keep stdin and stdout for the protocol alone: whatever vLLM prints goes to stderr, and it has nothing to read."""
    commands, replies = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return commands, replies


def _listen(commands: TextIO, inbox: queue.SimpleQueue[Any]) -> None:
    """Pass lines on; when the parent is gone, end within the grace whatever the main thread is at."""
    for line in commands:
        inbox.put(json.loads(line))
    inbox.put(None)
    time.sleep(GRACE)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def _load(arguments: dict[str, Any], chat_options: dict[str, Any]) -> Callable[[list[Row]], list[Row]]:
    from vllm import LLM, SamplingParams  # type: ignore[import-not-found]
    from vllm.exceptions import VLLMServerError  # type: ignore[import-not-found]
    from vllm.platforms import current_platform  # type: ignore[import-not-found]

    model = LLM(**arguments)
    seeded = not current_platform.is_cpu()

    def sampling(row: Row) -> SamplingParams:
        # vLLM's sampler for CPUs refuses seeds per row.
        return SamplingParams(**row["sampling"], seed=row["seed"] if seeded else None)

    def chat(rows: list[Row]) -> Any:
        messages = [row["messages"] for row in rows]
        return model.chat(messages, [sampling(row) for row in rows], use_tqdm=False, **chat_options)

    def complete(rows: list[Row]) -> Any:
        return model.generate([row["prompt"] for row in rows], [sampling(row) for row in rows], use_tqdm=False)

    def answer(rows: list[Row]) -> list[Row]:
        answers: list[Row] = [{}] * len(rows)
        for kind, ask in (("messages", chat), ("prompt", complete)):
            places = [place for place, row in enumerate(rows) if kind in row]
            found = answer_each(ask, [rows[place] for place in places], VLLMServerError)
            for place, one in zip(places, found, strict=True):
                answers[place] = one
        return answers

    return answer


def answer_each(ask: Callable[[list[Row]], Any], rows: list[Row], fatal: type[Exception]) -> list[Row]:
    """`answer` and whether it was `cut`, or `failure`, of every row.

    vLLM refuses rows all together, so a refused block is halved until one row is left that is at fault.

    Raises:
        fatal: the engine is dead.
    """
    if not rows:
        return []
    try:
        said = [output.outputs[0] for output in ask(rows)]
        return [{"answer": one.text, "cut": one.finish_reason == "length"} for one in said]
    except fatal:
        raise
    except Exception as error:
        if len(rows) == 1:
            line = " ".join(str(error).split()) or type(error).__name__
            return [{"failure": f"vLLM: {line[:200]}"}]
    middle = len(rows) // 2
    return answer_each(ask, rows[:middle], fatal) + answer_each(ask, rows[middle:], fatal)


if __name__ == "__main__":
    main()
