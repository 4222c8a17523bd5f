"""Check of the endpoints of language models by one tiny question each, before hours are spent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx

from components.captions.generating.client import body_of
from components.captions.prompting.request import PICTURE, Request, Sampling
from components.captions.prompting.tasks import find_task
from components.core.settings import Settings
from components.doctor.check import CheckFunction, CheckResult, Installation, fail, not_used, ok

ENDPOINT_TIMEOUT_S = 10.0
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
    return {name: partial(_check, _Endpoint(name, llms[name], requests[name])) for name in servers}


def _stages_of(settings: Settings) -> list[str]:
    return [*(f"students@{name}" for name in settings.students), "test_set",
            *(f"synthesize@{task}" for task in settings.synthesize.tasks)]  # fmt: skip


def _requests(settings: Settings, stage: str) -> list[tuple[str, Request]]:
    """The models that a stage asks, each with its longest kind of question."""
    group, _, name = stage.partition("@")
    block = settings.synthesize
    if group == "synthesize" and name in block.tasks:
        return [(block.model_of(block.tasks[name]), _request(settings, name))]
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
    """A model with engine `server`, and the question that it is asked."""

    name: str
    block: Mapping[str, Any]
    request: Request

    @property
    def key(self) -> str:
        return f"synthesize.llms.{self.name}"

    @property
    def model(self) -> str:
        return str(self.block["model"])

    @property
    def url(self) -> str:
        urls = self.block["urls"]
        return str(urls if isinstance(urls, str) else urls[0]).rstrip("/")

    @property
    def variable(self) -> str:
        return str(self.block.get("api_key_env", "OPENAI_API_KEY"))

    def fault(self, detail: str, fix: str) -> CheckResult:
        return fail(f"{self.name}: {self.url} {detail}", fix.replace("KEY", self.key))


def _check(endpoint: _Endpoint, installation: Installation) -> CheckResult:
    for part, example in (("urls", "the URL of an endpoint: [https://host/v1]"), ("model", "a model of the endpoint")):
        if not endpoint.block.get(part):
            first = f"set it in params.yaml to {example}"
            return fail(f"{endpoint.key}.{part} is not set", f"{first}; nothing that needs captions runs before")
    secret = installation.environment.get(endpoint.variable, "").strip()
    proxied = not endpoint.url.startswith(("http://127.0.0.1:", "http://localhost:"))
    path, body = body_of(endpoint.request, endpoint.model)
    try:
        with httpx.Client(
            timeout=ENDPOINT_TIMEOUT_S, trust_env=proxied, headers={"Authorization": f"Bearer {secret or 'none'}"}
        ) as client:
            listed = _listed(client.get(f"{endpoint.url}/models"))
            sent = {**endpoint.block.get("extra", {}), **body, "max_tokens": 1}
            response = client.post(endpoint.url + path, json=sent)
    except httpx.TimeoutException:
        fix = "wait until it is idle or use a faster one, or correct KEY.urls in params.yaml"
        return endpoint.fault(f"has not answered within {ENDPOINT_TIMEOUT_S:g} s", fix)
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        # A header with a character that no key has is quoted in the error.
        reason = type(error).__name__ if secret and secret in str(error) else str(error) or type(error).__name__
        return endpoint.fault(f"does not answer ({reason})", "start the server, or correct KEY.urls in params.yaml")
    if response.status_code == 200:
        return _of_answer(endpoint, response, listed)
    return _of_refusal(endpoint, response, listed, secret)


def _of_refusal(
    endpoint: _Endpoint, response: httpx.Response, listed: Mapping[str, Mapping[str, Any]], secret: str
) -> CheckResult:
    """The fault of an endpoint that answers with an error."""
    code, task = response.status_code, endpoint.request.task
    if code in (401, 403):
        state = "refuses the key in" if secret else "requires a key, which is missing in"
        fix = f"set {endpoint.variable} to the endpoint's key"
        return endpoint.fault(f"{state} the environment variable {endpoint.variable} (HTTP {code})", fix)
    if listed and endpoint.model not in listed:
        return _of_model(endpoint, f"serves {', '.join([*listed][:5])}")
    message = " ".join(response.text.split())[:200]
    said = message.replace(secret, "***") if secret else message
    fixes = {
        404: "correct KEY.urls, which end in /v1, or KEY.model in params.yaml",
        400: f"start the server with a longer context, or correct KEY or synthesize.tasks.{task} in params.yaml",
    }
    fix = fixes.get(code, "wait or repair the server, or correct KEY.urls in params.yaml")
    return endpoint.fault(f"answers HTTP {code} to a question of {task} ({said})", fix)


def _of_answer(endpoint: _Endpoint, response: httpx.Response, listed: Mapping[str, Mapping[str, Any]]) -> CheckResult:
    """The result of an endpoint that answers: its model, and whether its context is long enough."""
    model, task = endpoint.model, endpoint.request.task
    try:
        answer = response.json()
        answer["choices"][0]
        served, usage = str(answer.get("model") or model), answer.get("usage") or {}
        tokens = _tokens(endpoint.request, usage.get("prompt_tokens"))
    except (ValueError, LookupError, TypeError, AttributeError):
        fix = "correct KEY.urls in params.yaml"
        return endpoint.fault("does not answer as an OpenAI-compatible server", fix)
    if listed and model not in listed:
        return _of_model(endpoint, f"serves {', '.join([*listed][:5])}")
    if not listed and model not in served and served not in model:
        return _of_model(endpoint, f"answers with model {served}")
    room = next((listed[model][field] for field in _CONTEXT if field in listed.get(model, {})), None)
    if isinstance(room, int) and room < tokens:
        fix = f"start the server with a longer context, or lower max_tokens of {task} in params.yaml"
        return endpoint.fault(f"has a context of {room} tokens, and {task} needs {tokens} for prompt and answer", fix)
    return ok(f"{endpoint.name}: {endpoint.url} serves {model}")


def _of_model(endpoint: _Endpoint, state: str) -> CheckResult:
    return endpoint.fault(f"{state}, not {endpoint.model}", "correct KEY.model in params.yaml")


def _listed(response: httpx.Response) -> dict[str, Mapping[str, Any]]:
    """Name -> entry of the models that a server lists; empty if it lists none."""
    try:
        return {str(entry["id"]): entry for entry in response.json()["data"]} if response.status_code == 200 else {}
    except (ValueError, LookupError, TypeError):
        return {}
