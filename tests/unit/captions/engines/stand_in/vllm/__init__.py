"""Stands in for vLLM where a test is about the processes around it: it answers with what it was asked and how.

Texts that hold "refuse", "die", "dead engine" or "wait" do what they say.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from vllm.exceptions import VLLMServerError


@dataclass
class SamplingParams:
    """As vLLM's, as far as it is used."""

    temperature: float
    top_p: float
    max_tokens: int
    seed: int | None = None


class LLM:
    """As vLLM's, as far as it is used; leaves its process ids, one of them a child's, in the model's folder."""

    def __init__(self, **arguments: Any) -> None:
        print("noise")
        os.write(1, b'[{"answer": "not the protocol"}]\n')
        os.system("echo noise of a child")
        self.arguments = arguments
        if arguments.get("broken"):
            raise ValueError("these settings do not go together")
        child = subprocess.Popen(["sleep", "600"])
        with (Path(arguments["model"]) / "pids").open("a") as stream:
            stream.write(f"{os.getpid()} {child.pid}\n")

    def chat(self, messages: list[Any], params: list[SamplingParams], use_tqdm: bool, **options: Any) -> list[Any]:
        """Answer chats."""
        return self._answer("chat", messages, params, options)

    def generate(self, prompts: list[str], params: list[SamplingParams], use_tqdm: bool) -> list[Any]:
        """Continue texts."""
        return self._answer("generate", prompts, params, {})

    def _answer(
        self, method: str, asked: list[Any], params: list[SamplingParams], options: dict[str, Any]
    ) -> list[Any]:
        for one in asked:
            text = json.dumps(one)
            if "refuse" in text:
                raise ValueError(f"this is\ntoo long: {text}" if "each" in text else "nobody may ask this")
            if "dead engine" in text:
                raise VLLMServerError("the engine is dead")
            if "die" in text:
                os._exit(7)
            if "wait" in text:
                time.sleep(600)
        shown = {
            "method": method,
            "pid": os.getpid(),
            "devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "threads": os.environ.get("OMP_NUM_THREADS"),
            "arguments": self.arguments,
            "options": options,
        }
        answers = [
            json.dumps({**shown, "asked": one, "sampling": vars(drawn)})
            for one, drawn in zip(asked, params, strict=True)
        ]
        said = []
        for one, answer, drawn in zip(asked, answers, params, strict=True):
            # Of a long question the first of four parts is said for every thirty tokens.
            told = json.dumps(one)
            cut = "long" in told and drawn.max_tokens < 120
            text = "" if "nothing" in told else answer[: len(answer) // 4] if cut else answer
            reason = "length" if cut else "stop"
            said.append(SimpleNamespace(text=f" {text}\0\n", finish_reason=reason))
        return [SimpleNamespace(outputs=[one]) for one in said]
