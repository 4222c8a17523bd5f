"""Check of the endpoints of language models by one tiny question each, before hours are spent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import httpx2

from components.captions.generating.client import NO_KEY, ServerOptions
from components.captions.generating.engines import make_engine
from components.captions.generating.wire import Parameters, body_of
from components.captions.prompting.request import PICTURE, Request, Sampling
from components.captions.prompting.tasks import find_task
from components.core.settings import Settings
from components.core.system.bounded_http import BoundedClient, OversizedError, redirect_of
from components.doctor.check import CheckFunction, CheckResult, Installation, fail, not_used, ok

if TYPE_CHECKING:
    from components.captions.generating.engines.server import ServerEngine

TIMEOUT_S = 10.0
"""Time limit of a question with an answer of one token."""
_CAPTION = "a photograph of two dogs that run over a wide green lawn behind a red ball on a sunny afternoon"
_CONTEXT = ("max_model_len", "context_length", "context_window")
"""Names of the context length in lists of models: vLLM's, and those of hosted models."""
_LETTERS_A_TOKEN = 4
"""Of English text; for servers that count no tokens."""


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
        known = requests.get(name)
        if known is None or _tokens(request) > _tokens(known):
            requests[name] = request
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


def _tokens(request: Request, prompt: int | None = None) -> int:
    """Tokens of prompt and answer; `prompt` is the server's count."""
    letters = sum(len(text) for _, text in request.chat)
    return (prompt or letters // _LETTERS_A_TOKEN) + request.sampling.max_tokens


@dataclass(frozen=True)
class _Endpoint:
    """A model with engine `server`, a question for it, and the models that its server lists, if it lists any."""

    name: str
    options: ServerOptions
    request: Request
    secret: str
    listed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def fault(self, detail: str, fix: str, key: str = "") -> CheckResult:
        """A failure; `fix` is about a key of the model in params.yaml if `key` names one."""
        named = f"{fix} synthesize.llms.{self.name}.{key} in params.yaml" if key else fix
        return fail(f"{self.name}: {self.options.url} {detail}", named)


def _check(name: str, request: Request, installation: Installation) -> CheckResult:
    synthesize = installation.settings.synthesize
    for part, example in (("urls", "the URL of an endpoint: [https://host/v1]"), ("model", "a model of the endpoint")):
        if not synthesize.llms[name].get(part):
            fix = f"set it in params.yaml to {example}; nothing that needs captions runs before"
            return fail(f"synthesize.llms.{name}.{part} is not set", fix)
    options = cast("ServerEngine", make_engine(synthesize, name)).options
    endpoint = _Endpoint(name, options, request, installation.environment.get(options.api_key_env, "").strip())
    headers = {"Authorization": f"Bearer {endpoint.secret or NO_KEY}"}
    try:
        with BoundedClient(options.url, timeout=TIMEOUT_S, headers=headers) as client:
            endpoint = replace(endpoint, listed=_listed(client.get(f"{options.url}/models")))
            response = _asked(client, endpoint)
    except httpx2.TimeoutException:
        fix = "use a faster server, wait until it is idle, or correct"
        return endpoint.fault(f"has not answered within {TIMEOUT_S:g} s", fix, "urls")
    except OversizedError as error:
        return endpoint.fault(f"does not answer as an OpenAI-compatible server ({error})", "correct", "urls")
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
        # An error about a character that no key has quotes the key.
        quotes = isinstance(error, (UnicodeError, httpx2.LocalProtocolError))
        reason = (not quotes and str(error)) or type(error).__name__
        return endpoint.fault(f"does not answer ({reason})", "start the server, or correct", "urls")
    if (target := redirect_of(response)) is not None:
        return endpoint.fault(f"redirects to {target}, which cliptune does not follow", "correct", "urls")
    return _of_answer(endpoint, response) if response.status_code == 200 else _of_refusal(endpoint, response)


def _asked(client: BoundedClient, endpoint: _Endpoint) -> httpx2.Response:
    """The response to the question, once more for each parameter that the server refuses.

    The answer has one token. Servers that know `max_completion_tokens` count a model's thoughts, which may not be cut.
    """
    options = endpoint.options
    parameters = Parameters(options.extra, options.seeds)
    while True:
        path, body = body_of(endpoint.request, options.model, parameters)
        short = {"max_tokens": 1} if "max_tokens" in body else {}
        response = client.post(options.url + path, json=body | short)
        if response.status_code not in (400, 422) or not parameters.learn(body, response.text):
            return response


def _of_refusal(endpoint: _Endpoint, response: httpx2.Response) -> CheckResult:
    """The fault of an endpoint that answers with an error."""
    code, task, variable = response.status_code, endpoint.request.task, endpoint.options.api_key_env
    if code in (401, 403):
        state = "refuses the key in" if endpoint.secret else "requires a key, which is missing in"
        fix = f"set {variable} to the endpoint's key"
        return endpoint.fault(f"{state} the environment variable {variable} (HTTP {code})", fix)
    if endpoint.listed and endpoint.options.model not in endpoint.listed:
        return _of_model(endpoint)
    message = " ".join(response.text.split())[:200]
    said = message.replace(endpoint.secret, "***") if endpoint.secret else message
    detail = f"answers HTTP {code} to a question of {task} ({said})"
    if code == 400:
        fix = f"start the server with a longer context, or correct synthesize.tasks.{task} in params.yaml"
        return endpoint.fault(detail, fix)
    if code == 404:
        return endpoint.fault(detail, "correct the URL, which ends in /v1, in urls, or", "model")
    return endpoint.fault(detail, "wait, or correct", "urls")


def _of_answer(endpoint: _Endpoint, response: httpx2.Response) -> CheckResult:
    """The result of an endpoint that answers: its model, and whether its context is long enough."""
    model, task, listed = endpoint.options.model, endpoint.request.task, endpoint.listed
    try:
        answer = response.json()
        answer["choices"][0]
        served, usage = str(answer.get("model") or model), answer.get("usage") or {}
        tokens = _tokens(endpoint.request, usage.get("prompt_tokens"))
    except (ValueError, LookupError, TypeError, AttributeError):
        return endpoint.fault("does not answer as an OpenAI-compatible server", "correct", "urls")
    if listed and model not in listed:
        return _of_model(endpoint)
    # Gateways add a provider or a date to the name.
    if not listed and model not in served and served not in model:
        return endpoint.fault(f"answers with model {served}, not {model}", "correct", "model")
    room = next((listed[model][name] for name in _CONTEXT if name in listed.get(model, {})), None)
    if isinstance(room, int) and room < tokens:
        fix = f"start the server with a longer context, or lower max_tokens of {task} in params.yaml"
        return endpoint.fault(f"has a context of {room} tokens, and {task} needs {tokens} for prompt and answer", fix)
    return ok(f"{endpoint.name}: {endpoint.options.url} serves {model}")


def _of_model(endpoint: _Endpoint) -> CheckResult:
    shown = ", ".join([*endpoint.listed][:5])
    return endpoint.fault(f"serves {shown}, not {endpoint.options.model}", "correct", "model")


def _listed(response: httpx2.Response) -> dict[str, Mapping[str, Any]]:
    """Name -> entry of the models that a server lists; empty if it lists none."""
    try:
        return {str(entry["id"]): entry for entry in response.json()["data"]} if response.status_code == 200 else {}
    except (ValueError, LookupError, TypeError):
        return {}
