"""One throwaway Prefect server for all flow tests, and a project whose `dvc` is a stand-in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from components.evaluation import comparison_csv
from components.evaluation.bootstrap import Interval
from components.evaluation.comparison import Cell, Comparison

STAGES = """
prepare:
base: prepare
embed: base
synthesize@paraphrase_1: prepare
synthesize@paraphrase_2: synthesize@paraphrase_1
validate: synthesize@paraphrase_2
train@paraclip: validate embed
train@other: validate
evaluate@base: base
evaluate@paraclip: train@paraclip
evaluate@other: train@other
compare: evaluate@base evaluate@paraclip evaluate@other
"""

FAKE_DVC = """
import sys
from pathlib import Path

needs = dict(line.split(":") for line in Path("stages.txt").read_text().split("\\n") if line)


def upstream(stage):
    return {stage}.union(*(upstream(need) for need in needs[stage].split()))


arguments = sys.argv[1:]
if arguments == ["stage", "list", "--name-only"]:
    print("\\n".join(needs))
elif arguments[:2] == ["dag", "--dot"] and arguments[2] in needs:
    print("strict digraph {")
    for stage in sorted(upstream(arguments[2])):
        print(f'"{stage}";')
    print("}")
elif arguments[:3] == ["--wait-for-lock", "repro", "--single-item"]:
    with Path("ran.txt").open("a") as stream:
        print(arguments[3], file=stream)
    print(f"50%\\rworking on {arguments[3]}")
    if Path("broken.txt").exists() and Path("broken.txt").read_text() == arguments[3]:
        sys.exit("error: data/pairs/train.parquet is missing")
else:
    sys.exit(f"fake dvc does not know {arguments}")
"""

FAKE_PROMOTE = """
from pathlib import Path
from components.registry import decision
made = dict(outcome="refused", model="m", encoder="paraclip", encoder_sha256="s", against="base", tracking_uri="u")
decision.save(decision.Decision(**made, fingerprint="f", time=decision.now()))
Path("ran.txt").open("a").write("promote\\n")
"""


@dataclass
class Project:
    """What the stand-ins did, and how to break one."""

    folder: Path

    def ran(self) -> list[str]:
        """Names of the stages that ran, in order."""
        path = self.folder / "ran.txt"
        return path.read_text().split() if path.exists() else []

    def break_stage(self, name: str) -> None:
        """Let a stage fail."""
        (self.folder / "broken.txt").write_text(name)


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Prefect server with an empty database."""
    from prefect.testing.utilities import prefect_test_harness

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PREFECT_API_URL", raising=False)
        patch.setenv("PREFECT_HOME", str(tmp_path_factory.mktemp("prefect")))
        patch.setenv("DO_NOT_TRACK", "1")
        with prefect_test_harness(server_startup_timeout=240):
            yield


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project folder, the current one."""
    import flows.stages
    import flows.train

    (tmp_path / "stages.txt").write_text(STAGES)
    (tmp_path / "dvc.py").write_text(FAKE_DVC)
    cell = Cell(Interval(0.5, 0.4, 0.6), None, True)
    comparison = Comparison(("base", "paraclip"), {"b/m": {"base": cell, "paraclip": cell}})
    comparison_csv.write(comparison, tmp_path / "reports" / "comparison.csv")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(flows.stages, "DVC", (sys.executable, str(tmp_path / "dvc.py")))
    monkeypatch.setattr(flows.train, "PROMOTE", (sys.executable, "-c", FAKE_PROMOTE))
    return Project(tmp_path)
