"""Checks of servers and stores: Prefect, MLflow, databases, and the endpoints of language models.

The request to Prefect uses the variables of its own client, whose import takes seconds; only flows/ imports it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, cast

import httpx2

from components.captions.generating.engines import make_engine
from components.captions.generating.wire import BoundedClient, OversizedError
from components.captions.prompting.request import PICTURE, Request, Sampling
from components.captions.prompting.tasks import find_task
from components.cli.doctor.check import TIMEOUT_S, CheckFunction, CheckResult, Installation, fail, not_used, ok, warn
from components.core.settings import Settings
from components.core.tables.formats import STORE, refuse_newer
from components.core.tracking import explained, find_experiment, make_client, nothing_tracked, tracking_uri
from components.registry.champion import check_files
from components.registry.model import CHAMPION, find_alias

if TYPE_CHECKING:
    from components.captions.generating.engines.server import ServerEngine

QUESTION_S = 15.0
"""Time limit of a question to a language model, one for each model, before hours are spent."""
_CAPTION = "a photograph of two dogs that run over a wide green lawn behind a red ball on a sunny afternoon"


def check_prefect(installation: Installation) -> CheckResult:
    """The Prefect server answers, accepts the credentials and has the installed version."""
    environment = installation.environment
    url = environment.get("PREFECT_API_URL", "").rstrip("/")
    if not url:
        return not_used("PREFECT_API_URL is not set; `make stack` prints its value")
    login, token = environment.get("PREFECT_API_AUTH_STRING", ""), environment.get("PREFECT_API_KEY", "")
    secret = f"Basic {base64.b64encode(login.encode()).decode()}" if login else token and f"Bearer {token}"
    try:
        with BoundedClient(url, timeout=TIMEOUT_S, headers={"Authorization": secret} if secret else {}) as client:
            response = client.get(f"{url}/admin/version")
    except (httpx2.HTTPError, httpx2.InvalidURL, OversizedError) as error:
        reason = str(error) or type(error).__name__
        return fail(f"{url} does not answer ({reason})", "start it with `make stack`, or correct PREFECT_API_URL")
    if response.status_code in (401, 403):
        fix = "set PREFECT_API_AUTH_STRING to the server's credentials"
        return fail(f"{url} refuses the credentials ({response.status_code})", fix)
    if response.status_code != 200 or "json" not in response.headers.get("content-type", "json"):
        # Without /api every path is one of Prefect's pages.
        return fail(f"{url} answers {response.status_code}", "PREFECT_API_URL must end with /api")
    theirs, ours = str(response.json()), version("prefect")
    if theirs != ours:
        return warn(f"{url} runs Prefect {theirs}, this environment has {ours}", "install the same version in both")
    return ok(f"{url}, Prefect {theirs}")


def check_tracking(installation: Installation) -> CheckResult:
    """MLflow's server or database answers, and the project's experiment is not deleted."""
    if nothing_tracked():
        return ok(f"{tracking_uri()} will be made by its first user")
    with explained():
        client = make_client()
        client.search_experiments(max_results=1)
        if installation.loaded is not None:
            find_experiment(client, installation.loaded.dataset.name)
    return ok(f"{tracking_uri()} answers")


def check_registry(installation: Installation) -> CheckResult:
    """The registry answers and has a champion with its files."""
    model = installation.settings.promote.model
    with explained():
        client = None if nothing_tracked() else make_client()
        champion = client and find_alias(client, model, CHAMPION)
        if client is None or champion is None:
            return not_used(f"'{model}' has no champion yet; `cliptune promote` chooses one")
        check_files(client, champion, hurry=True)
    return ok(f"{model}: {CHAMPION} is version {champion.version}")


def check_generation_store(installation: Installation) -> CheckResult:
    """The generation store, which holds all answers of language models, can be opened."""
    from components.captions.generating.store.database import Database, version_of

    url = installation.settings.synthesize.store
    file = url.removeprefix("sqlite:///")
    if file != url and not Path(file).is_file():
        return ok(f"{file} will be made by its first user")
    database, fix = Database(url), "start or restore it, or correct synthesize.store in params.yaml and the password"
    with closing(database), database.explaining("does not answer", fix), database.streaming() as connection:
        refuse_newer(f"generation store {database.shown}", version_of(connection), STORE)
    return ok(f"{database.shown} answers")


def check_language_models(installation: Installation) -> CheckResult:
    """The HTTP endpoints of all language models of params.yaml answer; the first fault is the result."""
    settings = installation.settings
    stages = [*(f"students@{name}" for name in settings.students), "test_set"]
    checks = endpoint_checks(settings, [*stages, *(f"synthesize@{task}" for task in settings.synthesize.tasks)])
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(lambda check: check(installation), checks.values()))
    faults = [result for result in results if result.status == "fail"]
    if not results:
        return not_used("no stage uses a server")
    return faults[0] if faults else ok("; ".join(result.detail for result in results))


def endpoint_checks(settings: Settings, stages: Iterable[str]) -> dict[str, CheckFunction]:
    """Model -> its check, for each model with engine `server` that one of the stages uses."""
    requests = dict[str, Request]()
    for name, request in (pair for stage in stages for pair in _questions(settings, stage)):
        # Servers refuse a question that is longer than their context.
        longest = max(requests.get(name, request), request, key=lambda one: sum(len(text) for _, text in one.chat))
        requests[name] = longest
    llms = settings.synthesize.llms
    servers = [name for name in requests if llms.get(name, {}).get("engine") == "server"]
    return {name: partial(_ask, name, requests[name]) for name in servers}


def _questions(settings: Settings, stage: str) -> list[tuple[str, Request]]:
    """The models that a stage uses, each with its longest kind of question."""
    group, _, name = stage.partition("@")
    block = settings.synthesize
    if group == "synthesize" and name in block.tasks:
        task = block.tasks[name]
        asked = (block.model_of(task), task.judge_llm)
        return [(model, _question(settings, name)) for model in asked if model is not None]
    if group == "students" and name in settings.students:
        student = settings.students[name]
        teacher = student.teacher if isinstance(student.teacher, str) else ""
        return [(teacher, _question(settings, task)) for task in student.tasks]
    if group == "test_set" and settings.test_set.llm:
        sampling = Sampling(0.0, 1.0, settings.test_set.max_tokens)
        models = {settings.test_set.llm, settings.test_set.judge_llm or settings.test_set.llm}
        return [(model, Request(group, (("user", _CAPTION),), "", sampling, 0)) for model in sorted(models)]
    return []


def _question(settings: Settings, name: str) -> Request:
    """A question of a prompt task about a made-up caption, without pictures."""
    task, options = find_task(name), settings.synthesize.tasks.get(name)
    messages = task.render(dict.fromkeys(task.inputs, _CAPTION), options.prompt if options else "own")
    chat = tuple((message["role"], message["content"].replace(PICTURE, "")) for message in messages)
    return Request(name, chat, "", Sampling(0.0, 1.0, options.max_tokens if options else 40), 0)


def _ask(name: str, request: Request, installation: Installation) -> CheckResult:
    synthesize = installation.settings.synthesize
    for part, example in (("urls", "the URL of an endpoint: [https://host/v1]"), ("model", "a model of the endpoint")):
        if not synthesize.llms[name].get(part):
            fix = f"set it in params.yaml to {example}; nothing that needs captions runs before"
            return fail(f"synthesize.llms.{name}.{part} is not set", fix)
    engine = cast("ServerEngine", make_engine(synthesize, name))
    options = engine.options.model_copy(update={"timeout_s": QUESTION_S, "give_up_s": QUESTION_S, "attempts": 1})
    reply, *_ = chain.from_iterable(replace(engine, options=options).answer([request]))
    if reply.failure is not None:
        fix = f"correct synthesize.llms.{name} or synthesize.tasks.{request.task} in params.yaml"
        return fail(f"{name}: {options.url} does not answer a question of {request.task} ({reply.failure})", fix)
    return ok(f"{name}: {options.url} serves {options.model}")
