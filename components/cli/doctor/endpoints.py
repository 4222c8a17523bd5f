"""Check of the endpoints of language models by one short question each, before hours are spent."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, cast

from components.captions.generating.engines import make_engine
from components.captions.prompting.request import PICTURE, Request, Sampling
from components.captions.prompting.tasks import find_task
from components.cli.doctor.check import CheckFunction, CheckResult, Installation, fail, not_used, ok
from components.core.settings import Settings

if TYPE_CHECKING:
    from components.captions.generating.engines.server import ServerEngine

TIMEOUT_S = 15.0
"""Time limit of a question."""
_CAPTION = "a photograph of two dogs that run over a wide green lawn behind a red ball on a sunny afternoon"


def check_language_models(installation: Installation) -> CheckResult:
    """The HTTP endpoints of all language models of params.yaml answer; the first fault is the result."""
    checks = endpoint_checks(installation.settings, _stages_of(installation.settings))
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(lambda check: check(installation), checks.values()))
    faults = [result for result in results if result.status == "fail"]
    if not results:
        return not_used("no stage uses a server")
    return faults[0] if faults else ok("; ".join(result.detail for result in results))


def endpoint_checks(settings: Settings, stages: Iterable[str]) -> dict[str, CheckFunction]:
    """Model -> its check, for each model with engine `server` that one of the stages uses."""
    requests = dict[str, Request]()
    for name, request in (pair for stage in stages for pair in _requests(settings, stage)):
        requests[name] = max(requests.get(name, request), request, key=_length)
    llms = settings.synthesize.llms
    servers = [name for name in requests if llms.get(name, {}).get("engine") == "server"]
    return {name: partial(_check, name, requests[name]) for name in servers}


def _stages_of(settings: Settings) -> list[str]:
    return [*(f"students@{name}" for name in settings.students), "test_set",
            *(f"synthesize@{task}" for task in settings.synthesize.tasks)]  # fmt: skip


def _requests(settings: Settings, stage: str) -> list[tuple[str, Request]]:
    """The models that a stage uses, each with its longest kind of question."""
    group, _, name = stage.partition("@")
    block = settings.synthesize
    if group == "synthesize" and name in block.tasks:
        task = block.tasks[name]
        asked = (block.model_of(task), task.judge_llm)
        return [(model, _request(settings, name)) for model in asked if model is not None]
    if group == "students" and name in settings.students:
        student = settings.students[name]
        teacher = student.teacher if isinstance(student.teacher, str) else ""
        return [(teacher, _request(settings, task)) for task in student.tasks]
    if group == "test_set" and settings.test_set.llm:
        sampling = Sampling(0.0, 1.0, settings.test_set.max_tokens)
        models = {settings.test_set.llm, settings.test_set.judge_llm or settings.test_set.llm}
        return [(model, Request(group, (("user", _CAPTION),), "", sampling, 0)) for model in sorted(models)]
    return []


def _request(settings: Settings, name: str) -> Request:
    """A question of a prompt task about a made-up caption, without pictures."""
    task, options = find_task(name), settings.synthesize.tasks.get(name)
    messages = task.render(dict.fromkeys(task.inputs, _CAPTION), options.prompt if options else "own")
    chat = tuple((message["role"], message["content"].replace(PICTURE, "")) for message in messages)
    return Request(name, chat, "", Sampling(0.0, 1.0, options.max_tokens if options else 40), 0)


def _length(request: Request) -> int:
    """Letters of the question; servers refuse one that is longer than their context."""
    return sum(len(text) for _, text in request.chat)


def _check(name: str, request: Request, installation: Installation) -> CheckResult:
    synthesize = installation.settings.synthesize
    for part, example in (("urls", "the URL of an endpoint: [https://host/v1]"), ("model", "a model of the endpoint")):
        if not synthesize.llms[name].get(part):
            fix = f"set it in params.yaml to {example}; nothing that needs captions runs before"
            return fail(f"synthesize.llms.{name}.{part} is not set", fix)
    engine = cast("ServerEngine", make_engine(synthesize, name))
    options = engine.options.model_copy(update={"timeout_s": TIMEOUT_S, "give_up_s": TIMEOUT_S, "attempts": 1})
    reply, *_ = chain.from_iterable(replace(engine, options=options).answer([request]))
    if reply.failure is not None:
        fix = f"correct synthesize.llms.{name} or synthesize.tasks.{request.task} in params.yaml"
        return fail(f"{name}: {options.url} does not answer a question of {request.task} ({reply.failure})", fix)
    return ok(f"{name}: {options.url} serves {options.model}")
