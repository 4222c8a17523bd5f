"""Checkpoints: the newest sound one is found, broken ones are passed over."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from components.training.checkpoint import Checkpoints


def _trained(steps: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimiser.zero_grad()
        model(torch.ones(3, 2)).sum().backward()
        optimiser.step()
    return model, optimiser


def test_nothing_to_resume_from_is_step_zero(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").resume(*_trained(0)) == 0


def test_the_newest_is_resumed_with_its_optimiser_state(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for steps in (1, 2, 3):
        checkpoints.save(steps, *_trained(steps))
    model, optimiser = _trained(0)
    assert checkpoints.resume(model, optimiser) == 3
    expected_model, expected_optimiser = _trained(3)
    assert torch.equal(model.weight, expected_model.weight)  # type: ignore[arg-type]
    for index, state in expected_optimiser.state_dict()["state"].items():
        for key, value in state.items():
            assert torch.equal(optimiser.state_dict()["state"][index][key], value)


def test_random_numbers_continue(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    model, optimiser = _trained(1)
    checkpoints.save(1, model, optimiser)
    expected = torch.rand(4)
    torch.manual_seed(99)
    checkpoints.resume(model, optimiser)
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.parametrize("damage", ["truncated", "missing", "bad_json"])
def test_a_broken_newest_falls_back_with_a_warning(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, *_trained(1))
    checkpoints.save(2, *_trained(2))
    newest = tmp_path / "step-00000002"
    tensors = newest / "state.safetensors"
    {
        "truncated": lambda: tensors.write_bytes(tensors.read_bytes()[:50]),
        "missing": tensors.unlink,
        "bad_json": lambda: (newest / "state.json").write_text("{"),
    }[damage]()
    assert checkpoints.resume(*_trained(0)) == 1
    assert "step-00000002 is broken" in caplog.text


def test_only_the_last_few_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for steps in range(1, 6):
        checkpoints.save(steps, *_trained(1))
    assert [folder.name for folder in sorted(tmp_path.iterdir())] == ["step-00000004", "step-00000005"]
    checkpoints.clear()
    assert not tmp_path.exists()
