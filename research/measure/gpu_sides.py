"""The measured model and batch of the GPU measurement, and both sides' training; needs torch and open_clip alone."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import open_clip
import torch
from open_clip_train.params import parse_args
from open_clip_train.train import train_one_epoch
from torch import Tensor, nn

from components.core.compute.devices import peak_memory, pick_autocast
from components.encoders.adapter.images import CLIP
from components.training.engine.gradients import Towers
from components.training.engine.meter import Meter
from components.training.engine.run import LoopOptions, Run
from components.training.engine.stepper import Stepper, make_optimiser
from components.training.methods.contract.losses import Features, info_nce

_LR, _DECAY, _BETAS, _EPS = 1e-5, 0.1, (0.9, 0.98), 1e-6
_AT_MOST_S = 40.0
"""After which a training takes no further step."""
Figures = dict[str, float | None]


@dataclass(frozen=True)
class Setup:
    """A measured model by its open_clip configuration, and one batch.

    Attributes:
        tokens: of the texts, `[batch, context]`.
        lengths: up to and with each text's end token, `[batch]`; evenly 8 to 32, which is longer than most captions.
        pixels: uint8 `[batch, 3, size, size]`.
        steps: how many are timed at most.
    """

    name: str
    config: dict[str, Any]
    device: str
    precision: str
    batch: int
    tokens: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int64]
    pixels: Tensor
    steps: int

    @staticmethod
    def of(name: str, config: dict[str, Any], device: str, precision: str, batch: int, steps: int = 30) -> Setup:
        """A batch of noise: the cost of a step depends on sizes and lengths alone."""
        rng = np.random.default_rng(0)
        vocabulary, context = config["text_cfg"]["vocab_size"], config["text_cfg"]["context_length"]
        lengths = rng.integers(8, 32, batch, endpoint=True)
        tokens = rng.integers(1, vocabulary - 2, (batch, context)).astype(np.int32)
        tokens[np.arange(context) >= lengths[:, None]] = 0
        # Start and end token are the two last; the end token has the highest id, by which towers find it.
        tokens[:, 0], tokens[np.arange(batch), lengths - 1] = vocabulary - 2, vocabulary - 1
        size = config["vision_cfg"]["image_size"]
        pixels = torch.from_numpy(rng.integers(0, 256, (batch, 3, size, size), dtype=np.uint8))
        return Setup(name, config, device, precision, batch, tokens, lengths, pixels, steps)

    def model(self) -> Any:
        """The model with the same random weights at every call; a trained CLIP's logit scale."""
        torch.manual_seed(0)
        # As open_clip_train does; it matters for float32 alone.
        torch.backends.cuda.matmul.allow_tf32 = True
        model = open_clip.CLIP(**self.config, output_dict=True).to(self.device)
        nn.init.constant_(model.logit_scale, math.log(100))
        return model

    @property
    def warmup(self) -> int:
        """How many steps come before the timed ones."""
        return max(1, self.steps // 6)

    @property
    def autocast(self) -> torch.dtype | None:
        """The type that `torch.autocast` computes in."""
        return pick_autocast(self.precision, self.device)

    def wait(self, forget_peak: bool = False) -> float:
        """The time when the device has done all its work."""
        if self.device == "cuda":
            torch.cuda.synchronize()
            if forget_peak:
                torch.cuda.reset_peak_memory_stats()
        return time.monotonic()

    def figures(self, rate: float, losses: list[Tensor] | None = None) -> Figures:
        """A part's rate and peak memory, and the losses before the first and the last step's update."""
        ends = {f"{name}_step_loss": float(losses[at]) for name, at in (("first", 0), ("last", -1))} if losses else {}
        return {"samples_per_second": rate, "peak_memory_gb": peak_memory(self.device) / 1e3, **ends}


def train_peer(setup: Setup, *, compiled: bool = False) -> Figures:
    """`open_clip_train --lock-image`'s own loop on a batch that is on the device already."""
    precision = {"bf16": "amp_bf16", "fp32": "fp32"}[setup.precision]
    options = ["--model", setup.name, "--batch-size", str(setup.batch), "--precision", precision, "--lock-image"]
    arguments = parse_args([*options, "--skip-scheduler", "--log-every-n-steps", str(10**6)])
    alone = {"device": setup.device, "rank": 0, "local_rank": 0, "world_size": 1, "distributed": False}
    vars(arguments).update(alone | {"distill": False, "wandb": False, "save_logs": False})
    model = setup.model()
    model.lock_image_tower(unlocked_groups=0, freeze_bn_stats=False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [parameter for parameter in trained if (parameter.ndim < 2) == small], "weight_decay": decay}
        for small, decay in ((True, 0.0), (False, _DECAY))
    ]
    optimiser = torch.optim.AdamW(groups, lr=_LR, betas=_BETAS, eps=_EPS)
    losses: list[Tensor] = []
    loss = open_clip.create_loss(arguments)

    def noted(**output: Any) -> dict[str, Tensor]:
        found: dict[str, Tensor] = loss(**output)
        losses.append(found["contrastive_loss"].detach())
        return found

    batches = _Batches(setup)
    data = {"train": SimpleNamespace(set_epoch=lambda _epoch: None, dataloader=batches)}
    setup.wait(forget_peak=True)
    fast = torch.compile(model) if compiled else model
    train_one_epoch(fast, data, noted, 0, optimiser, None, None, None, arguments)
    return setup.figures(batches.timed * setup.batch / (setup.wait() - batches.since), losses)


class _Batches:
    """The loader that open_clip_train is given: one batch again and again, for so many steps or so long."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self.num_batches = setup.warmup + setup.steps
        self.num_samples = self.num_batches * setup.batch
        self.timed, self.since = 0, math.nan

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        setup = self._setup
        images = CLIP.normalise(setup.pixels.to(setup.device))
        texts = torch.from_numpy(setup.tokens).long().to(setup.device)
        for _ in range(setup.warmup):
            yield images, texts
        self.since = setup.wait()
        while self.timed < setup.steps and time.monotonic() < self.since + _AT_MOST_S:
            self.timed += 1
            yield images, texts


def train_ours(setup: Setup, *, compiled: bool = False) -> Figures:
    """This engine's step on the batch's image features, computed once."""
    model = setup.model().eval()
    with torch.no_grad():
        features = Towers(model, setup.device, setup.autocast)(None, setup.pixels.to(setup.device))[1]
    assert features is not None
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith("visual."))
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    # The modules of a batch and of its source need pyarrow, that of the optimisation's settings the methods.
    batch: Any = SimpleNamespace(
        ids=[str(row) for row in range(setup.batch)], tokens={"caption": setup.tokens},
        lengths={"caption": setup.lengths}, features={"image": features.cpu()}, pixels={}, labels={}, weights=None,
        alike=None, cursor=1, lost=0,
    )  # fmt: skip
    plan: Any = SimpleNamespace(
        lr=_LR, batch_size=setup.batch, epochs=1, weight_decay=_DECAY, decay_all=False, warmup_steps=0,
        schedule="constant", gamma=0.9, betas=_BETAS, eps=_EPS, clip_gradient=None, accumulate=1,
        image_tower="frozen", learn_logit_scale=True, least_crop=1.0, weight_ensemble=1.0,
    )  # fmt: skip
    source: Any = SimpleNamespace(describe=dict)
    options = LoopOptions(setup.device, setup.autocast, None, compiled)

    def contrast(found: Features) -> dict[str, Tensor]:
        return {"infonce": info_nce(found["image"], found["caption"], found.scale)}

    run = Run("gpu", model, trained, contrast, source, plan, options=options)
    stepper = Stepper(run, make_optimiser(trained, plan), per_epoch=1)
    meter, losses = Meter(setup.device), list[Any]()
    setup.wait(forget_peak=True)

    def train(steps: int) -> None:
        end = time.monotonic() + _AT_MOST_S
        while steps and time.monotonic() < end:
            losses.append(stepper.step([batch], meter).last.losses["infonce"])
            steps -= 1

    train(setup.warmup)
    meter.pace()
    train(setup.steps)
    pace = meter.pace()
    # The peaks that are known are those of 16-bit arithmetic.
    share = pace.flop_utilisation if setup.precision == "bf16" else None
    return setup.figures(pace.samples_per_second, losses) | {"flop_utilisation": share}
