"""Checkpoints: the newest sound one is found, broken ones are passed over, whatever is broken about them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from components.core.compute.checkpoint import Checkpoints, Facts, optimiser_tensors, restore_optimiser
from components.core.system.errors import InputError

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


def _resumed(checkpoints: Checkpoints) -> tuple[Facts, dict[str, Tensor]] | None:
    found: list[tuple[Facts, dict[str, Tensor]]] = []
    facts = checkpoints.resume(lambda facts, tensors: found.append((facts, tensors)))
    assert (facts is None) == (not found)
    return found[0] if found else None


def test_nothing_to_resume_from(tmp_path: Path) -> None:
    assert _resumed(Checkpoints(tmp_path / "none")) is None
    assert Checkpoints(tmp_path / "none").best() is None


def test_a_run_of_other_code_starts_over_and_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _saved(tmp_path, 1, 2)
    edited = Checkpoints(tmp_path, code="edited")
    assert _resumed(edited) is None
    assert [record.getMessage() for record in caplog.records] == [
        f"checkpoint {tmp_path}/step-00000002 was made by other code of components/: the run starts over"
    ]
    edited.save(_facts(1), _tensors(1))
    found = _resumed(edited)
    assert found is not None
    assert found[0] == _facts(1)


def test_only_one_process_at_a_time_has_the_folder(tmp_path: Path) -> None:
    one, other = Checkpoints(tmp_path / "run"), Checkpoints(tmp_path / "run")
    with (
        one.held(),
        pytest.raises(InputError, match=rf"run is in use by process {os.getpid()} on .*: wait"),
        other.held(),
    ):
        pass
    with other.held():
        assert other.best() is None
    with pytest.raises(InputError, match="cannot be written"), Checkpoints(Path("/dev/null/run")).held():
        pass


def test_the_newest_is_resumed_as_it_was_saved(tmp_path: Path) -> None:
    found = _resumed(_saved(tmp_path, 1, 2, 10))
    assert found is not None
    facts, tensors = found
    assert facts == _facts(10)
    assert tensors.keys() == _tensors(10).keys()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in _tensors(10).items())


def test_only_the_last_few_and_the_best_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in range(1, 6):
        checkpoints.save(_facts(step), _tensors(step))
        if step in (1, 3):
            checkpoints.save_best(_facts(step), _tensors(step))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["best", "step-00000004", "step-00000005"]
    best = checkpoints.best()
    assert best is not None
    assert torch.equal(best["weights.a"], torch.full((3,), 3.0))
    found = _resumed(checkpoints)
    assert found is not None
    assert found[0]["step"] == 5
    checkpoints.clear()
    assert not tmp_path.exists()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["empty", "missing", "of another step"])
def test_a_broken_newest_falls_back_with_a_warning(
    name: str, damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = _saved(tmp_path, 1, 2)
    path = tmp_path / "step-00000002" / name
    {
        "empty": lambda: path.write_bytes(b""),
        "missing": path.unlink,
        "of another step": lambda: path.write_bytes((tmp_path / "step-00000001" / name).read_bytes()),
    }[damage]()
    found = _resumed(checkpoints)
    assert found is not None
    assert found[0] == _facts(1)
    assert "step-00000002 is broken" in caplog.text


def test_all_broken_is_a_new_start(tmp_path: Path) -> None:
    checkpoints = _saved(tmp_path, 1, 2)
    checkpoints.save_best(_facts(2), _tensors(2))
    for path in tmp_path.glob("*/state.safetensors"):
        path.unlink()
    assert _resumed(checkpoints) is None
    assert checkpoints.best() is None


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkpoints, dict[str, bytes]]:
    """Two checkpoints and the sound bytes of the newer one's files."""
    folder = tmp_path_factory.mktemp("checkpoints")
    checkpoints = _saved(folder, 1, 2)
    return checkpoints, {name: (folder / "step-00000002" / name).read_bytes() for name in FILES}


def _damaged(two: tuple[Checkpoints, dict[str, bytes]], name: str, raw: bytes) -> None:
    """Whatever bytes a file has: what is resumed is one of the two checkpoints, whole."""
    checkpoints, sound = two
    for other in FILES:
        (checkpoints.folder / "step-00000002" / other).write_bytes(raw if other == name else sound[other])
    found = _resumed(checkpoints)
    assert found is not None
    step = found[0]["step"]
    assert found[0] == _facts(step)
    assert step == 1 or name == "state.json"
    assert all(torch.equal(found[1][key], tensor) for key, tensor in _tensors(step).items())


@given(name=st.sampled_from(FILES), place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
@settings(max_examples=60)
def test_a_flipped_byte_is_never_resumed(
    two: tuple[Checkpoints, dict[str, bytes]], name: str, place: float, flip: int
) -> None:
    raw = bytearray(two[1][name])
    raw[int(place * len(raw))] ^= flip
    _damaged(two, name, bytes(raw))


@given(name=st.sampled_from(FILES), share=st.floats(0, 1, exclude_max=True))
@settings(max_examples=40)
def test_a_truncated_file_is_never_resumed(two: tuple[Checkpoints, dict[str, bytes]], name: str, share: float) -> None:
    _damaged(two, name, two[1][name][: int(share * len(two[1][name]))])


def test_what_a_killed_writer_left_is_removed_and_never_resumed(tmp_path: Path) -> None:
    checkpoints = _saved(tmp_path, 1)
    (tmp_path / ".step-00000002.abc").mkdir()
    found = _resumed(checkpoints)
    assert found is not None
    assert found[0]["step"] == 1
    checkpoints.save(_facts(3), _tensors(3))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["step-00000001", "step-00000003"]


def test_a_broken_one_from_later_makes_room(tmp_path: Path) -> None:
    checkpoints = _saved(tmp_path, 1, 2, 9, keep=2)
    (tmp_path / "step-00000009" / "state.json").unlink()
    checkpoints.save(_facts(3), _tensors(3))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"step-00000001 cannot be written .* free space"):
        Checkpoints(tmp_path / "file").save(_facts(1), _tensors(1))


def _stepped(steps: int) -> tuple[nn.Module, torch.optim.AdamW]:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    for step in range(steps):
        _step(model, optimiser, step)
    return model, optimiser


def _step(model: nn.Module, optimiser: torch.optim.AdamW, step: int) -> None:
    optimiser.zero_grad()
    (model(torch.ones(3, 2)).sum() * (step - 1.5)).backward()
    optimiser.step()


def test_optimiser_state_survives(tmp_path: Path) -> None:
    model, optimiser = _stepped(3)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(_facts(3), optimiser_tensors(optimiser))
    other = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)

    def restore(_facts: Any, tensors: dict[str, Tensor]) -> None:
        restore_optimiser(other, tensors)

    checkpoints.resume(restore)
    _step(model, other, 3)
    expected, _ = _stepped(4)
    for found, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(found, wanted)


def test_optimiser_state_of_weights_that_lie_channels_last_survives() -> None:
    def stepped(*, resumed: bool) -> Tensor:
        weights = nn.Parameter(torch.arange(72.0).view(2, 4, 3, 3).to(memory_format=torch.channels_last))
        optimiser = torch.optim.AdamW([weights], lr=0.1, fused=True)
        for step in range(4):
            if step == 2 and resumed:
                saved = {name: value.contiguous() for name, value in optimiser_tensors(optimiser).items()}
                optimiser = torch.optim.AdamW([weights], lr=0.1, fused=True)
                restore_optimiser(optimiser, saved)
            weights.grad = torch.sin((step + 1.0) * weights.detach())
            optimiser.step()
        return weights.detach()

    assert torch.equal(stepped(resumed=True), stepped(resumed=False))
