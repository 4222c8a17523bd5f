"""Checkpoints: the newest sound one is found, broken ones are passed over; the code that made them has a hash."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from components.core.compute import checkpoint, provenance
from components.core.compute.checkpoint import Checkpoints, Facts, optimiser_tensors, restore_optimiser
from components.core.compute.provenance import git_commit
from components.core.system.errors import InputError
from components.core.tables import formats
from components.encoders.language_models.weights import check_weight_index

FILES = ("state.json", "state.safetensors")


def _facts(step: int) -> Facts:
    return {"step": step, "epoch": 0, "cursors": [step], "best": None, "fixed": {"batch_size": 4}}


def _tensors(step: int) -> dict[str, Tensor]:
    return {"weights.a": torch.full((3,), float(step)), "rng": torch.arange(4, dtype=torch.uint8)}


def _saved(folder: Path, *steps: int, keep: int = 9) -> Checkpoints:
    checkpoints = Checkpoints(folder, keep)
    for step in steps:
        checkpoints.save(_facts(step), _tensors(step))
    return checkpoints


def _resumed_step(checkpoints: Checkpoints) -> int | None:
    """The step of the checkpoint that is resumed, which must be whole."""
    found: list[tuple[Facts, dict[str, Tensor]]] = []
    resumed = checkpoints.resume(lambda facts, tensors: found.append((facts, tensors)))
    for facts, tensors in found:
        wanted = _tensors(facts["step"])
        assert facts == resumed == _facts(facts["step"])
        assert tensors.keys() == wanted.keys()
        assert all(torch.equal(tensors[name], tensor) for name, tensor in wanted.items())
    return resumed["step"] if resumed else None


def test_a_run_of_other_code_continues_and_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _saved(tmp_path, 1, 2)
    edited = Checkpoints(tmp_path, code="edited")
    assert _resumed_step(edited) == 2
    assert [record.getMessage() for record in caplog.records] == [
        f"checkpoint {tmp_path}/step-00000002 was made by other code, and the run continues: to start over, move "
        f"{tmp_path} away"
    ]
    edited.save(_facts(3), _tensors(3))
    assert _resumed_step(edited) == 3


def test_a_run_without_checkpoints_names_those_of_its_entry(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _saved(tmp_path / "mine-a", 1)
    _saved(tmp_path / "yours-a", 1)
    for name in ("mine-b", "mine-a", "other-b"):
        _resumed_step(Checkpoints(tmp_path / name))
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"{tmp_path}/mine-a has checkpoints of other settings")
    assert said.endswith(f"rename it {tmp_path}/mine-b")


def test_checkpoints_that_cannot_continue_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _saved(tmp_path, 1)

    def restore(_facts: Facts, tensors: dict[str, Tensor]) -> None:
        tensors["weights.b"]

    for code, error in (("edited", InputError), ("", KeyError)):
        with pytest.raises(error, match=r"weights\.b.*move .* away|^'weights\.b'$"):
            Checkpoints(tmp_path, code=code).resume(restore)
    assert sorted(Checkpoints(tmp_path).kept()) == [1]
    monkeypatch.setattr(checkpoint, "CHECKPOINT", formats.CHECKPOINT + 1)
    _saved(tmp_path, 1, 2)
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"step-00000002 was made by a newer cliptune \(it has format 3, .*\): update"):
        _resumed_step(Checkpoints(tmp_path))
    assert sorted(Checkpoints(tmp_path).kept()) == [1, 2]


def test_only_one_process_at_a_time_has_the_folder_and_it_can_write_there(tmp_path: Path) -> None:
    one, other = Checkpoints(tmp_path / "run"), Checkpoints(tmp_path / "run")
    in_use = rf"run is in use by process {os.getpid()} on .*: wait"
    with one.held(), pytest.raises(InputError, match=in_use), other.held():
        pass
    with other.held():
        assert other.best() is None
    with pytest.raises(InputError, match="cannot be written"), Checkpoints(Path("/dev/null/run")).held():
        pass
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"step-00000001 cannot be written .* free space"):
        _saved(tmp_path / "file", 1)


def test_the_last_few_and_the_best_are_kept_and_broken_later_ones_removed(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in range(1, 6):
        checkpoints.save(_facts(step), _tensors(step))
        if step in (1, 3):
            checkpoints.save_best(_facts(step), _tensors(step))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["best", "step-00000004", "step-00000005"]
    best = checkpoints.best()
    assert best is not None
    assert torch.equal(best["weights.a"], torch.full((3,), 3.0))
    assert _resumed_step(checkpoints) == 5
    checkpoints.clear()
    assert not tmp_path.exists()
    assert (_resumed_step(checkpoints), checkpoints.best()) == (None, None)
    checkpoints = _saved(tmp_path, 1, 2, 9, keep=2)
    (tmp_path / "step-00000009" / "state.json").unlink()
    (tmp_path / ".step-00000010.abc").mkdir()
    assert _resumed_step(checkpoints) == 2
    checkpoints.save(_facts(3), _tensors(3))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["missing", "of another step"])
def test_broken_ones_are_passed_over(name: str, damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoints = _saved(tmp_path, 1, 2)
    checkpoints.save_best(_facts(2), _tensors(2))
    path = tmp_path / "step-00000002" / name
    path.unlink()
    if damage == "of another step":
        path.write_bytes((tmp_path / "step-00000001" / name).read_bytes())
    assert _resumed_step(checkpoints) == 1
    assert "step-00000002 is broken" in caplog.text
    for weights in tmp_path.glob("*/state.safetensors"):
        weights.unlink()
    assert (_resumed_step(checkpoints), checkpoints.best()) == (None, None)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkpoints, dict[str, bytes]]:
    """Two checkpoints and the sound bytes of the newer one's files."""
    folder = tmp_path_factory.mktemp("checkpoints")
    checkpoints = _saved(folder, 1, 2)
    return checkpoints, {name: (folder / "step-00000002" / name).read_bytes() for name in FILES}


@given(name=st.sampled_from(FILES), place=st.floats(0, 1, exclude_max=True), flip=st.integers(0, 255))
@settings(max_examples=100)
def test_a_flipped_byte_or_a_truncated_file_is_never_resumed(
    two: tuple[Checkpoints, dict[str, bytes]], name: str, place: float, flip: int
) -> None:
    """One of the two checkpoints is resumed, whole."""
    checkpoints, sound = two
    at = int(place * len(sound[name]))
    rest = bytes([sound[name][at] ^ flip]) + sound[name][at + 1 :] if flip else b""
    for file, content in (sound | {name: sound[name][:at] + rest}).items():
        (checkpoints.folder / "step-00000002" / file).write_bytes(content)
    assert _resumed_step(checkpoints) in ((1, 2) if name == "state.json" else (1,))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_an_optimiser_resumes_with_its_state(tmp_path: Path, layout: torch.memory_format) -> None:
    def stepped(*, resumed: bool) -> Tensor:
        weights = nn.Parameter(torch.arange(72.0).view(2, 4, 3, 3).to(memory_format=layout))
        optimiser = torch.optim.AdamW([weights], lr=0.1, fused=True)
        for step in range(4):
            if step == 2 and resumed:
                checkpoints = Checkpoints(tmp_path)
                checkpoints.save(_facts(step), optimiser_tensors(optimiser))
                optimiser = torch.optim.AdamW([weights], lr=0.1, fused=True)
                checkpoints.resume(lambda _, tensors, other=optimiser: restore_optimiser(other, tensors))
            weights.grad = torch.sin((step + 1.0) * weights.detach())
            optimiser.step()
        return weights.detach()

    assert torch.equal(stepped(resumed=True), stepped(resumed=False))


def test_a_commit_is_dirty_where_code_differs_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tracked.py").touch()
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in (("init", "-q"), ("add", "tracked.py"), (*author, "commit", "-qm", "first")):
        subprocess.run(["git", *command], check=True)
    clean = git_commit()
    assert len(clean) == 40
    Path("components").mkdir()
    cases = (("dvc.lock", False), ("notes.txt", False), ("components/mine.py", True), ("tracked.py", True))
    for path, dirty in cases:
        Path(path).write_text("changed")
        assert git_commit() == clean + "-dirty" * dirty, path
        Path(path).unlink()


def test_the_hash_of_code_follows_statements_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_ROOT", tmp_path)
    (tmp_path / "dvc.yaml").write_text(
        "stages: {base: {deps: [components/one, data/pairs]}, train: {foreach: x, do: {deps: [components/a.py]}}}"
    )
    (tmp_path / "components" / "one" / "__pycache__").mkdir(parents=True)

    def hashes(file: str) -> tuple[str, str]:
        (tmp_path / "components" / file).write_text(file)
        return provenance.code_hash.__wrapped__("base"), provenance.code_hash.__wrapped__("train")

    base, train = hashes("a.py")
    assert hashes("one/__pycache__/loop.pyc") == hashes("b.py") == (base, train)
    edited_base, edited_train = hashes("one/loop.py")
    assert (edited_base == base, edited_train == train) == (False, True)

    def hashed(code: str, name: str = "loop.py") -> str:
        (tmp_path / name).write_text(code)
        return provenance.hash_of_code(tmp_path)

    plain = hashed("RATE = 1\n\ndef step():\n    return RATE\n")
    worded = (
        '"""A loop."""\nRATE = 1  # of learning\n"""Per row."""\n\n\ndef step():\n    """One."""\n    return RATE\n'
    )
    assert hashed(worded) == plain
    assert hashed(worded.replace("RATE = 1", "RATE = 2")) != plain
    assert hashed(worded) == plain
    assert hashed("{}", "config.json") != plain


def test_weights_that_an_index_names_are_beside_it(tmp_path: Path) -> None:
    for content, message in [
        ({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}, None),
        ({"weight_map": {"a": "../other/model.safetensors"}}, r"outside its folder, '\.\./other/model\.safetensors'"),
        ({"weight_map": {"a": "/srv/model.safetensors"}}, "outside its folder"),
        ({"weight_map": {"a": "deeper/model.safetensors"}}, "outside its folder"),
        ({"weights": {}}, "is not an index of weights"),
        ({"weight_map": [1]}, "is not an index of weights"),
        ({"weight_map": {"a": 1}}, "is not an index of weights"),
    ]:
        (tmp_path / "part").mkdir()
        (tmp_path / "part" / "model.safetensors.index.json").write_text(json.dumps(content))
        if message is None:
            check_weight_index(tmp_path)
            return
        with pytest.raises(InputError, match=message):
            check_weight_index(tmp_path)
