"""One rank of `test_every_entry.py`: a step of every entry; the leading rank writes losses and gradients.

torchrun --nproc-per-node 2 tests/support/rank_worker.py <folder> <language model>
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).parents[2]))

from components.core.compute.distributed import World, join_world
from components.encoders.adapter.encoder import Encoder
from components.training.engine.loop import fit
from components.training.engine.meter import Step
from components.training.engine.run import LoopOptions
from components.training.methods.contract.method import Optimisation
from tests.conftest import TINY
from tests.support.synthetic_training import SyntheticSource, entries, subject

BATCH = 8
LOGGED = ("caption_ft", "paraclip", "conclip")
"""Methods that make use of weights."""


def one_step(
    name: str, language_model: Path, folder: Path, world: World, micro_batch: int | None, logged: bool = False
) -> None:
    """Train one step of `name` and write its losses and gradients to `folder`, from the leading rank."""
    torch.manual_seed(0)
    found = subject(name, Encoder.create("tiny", "tiny", TINY, "test"), language_model)
    steps: list[Step] = []
    source = SyntheticSource(found, BATCH, BATCH, world.rank, world.size, logged)
    plan = Optimisation(lr=1e-4, batch_size=BATCH, epochs=1)
    options = LoopOptions(world=world, micro_batch=micro_batch)
    fit(found.run(source=source, optimisation=plan, options=options, report=steps.append))
    if world.leads:
        folder.mkdir(parents=True, exist_ok=True)
        grads = {key: weights.grad for key, weights in found.trained.items() if weights.grad is not None}
        save_file(grads, folder / f"{name}.safetensors")
        (folder / f"{name}.json").write_text(json.dumps(steps[-1].losses), encoding="utf-8")


def main() -> None:
    folder, language_model = (Path(argument) for argument in sys.argv[1:])
    torch.set_num_threads(1)
    with join_world("cpu") as (world, _):
        for name in entries():
            one_step(name, language_model, folder / "whole", world, None)
            one_step(name, language_model, folder / "pieces", world, 3)
        for name in LOGGED:
            one_step(name, language_model, folder / "logged", world, 3, logged=True)


if __name__ == "__main__":
    main()
