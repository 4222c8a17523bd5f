"""Fine-tuning of an encoder by one method on any source of rows: the core of stage `train` and of `cliptune.tune`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from components.core.compute.checkpoint import Checkpoints
from components.core.compute.devices import pick_autocast, pick_device, pick_precision
from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.training.engine.gradients import Objective, Teacher
from components.training.engine.loop import fit
from components.training.engine.meter import Step
from components.training.engine.run import LoopOptions, Run, State, copy_into
from components.training.methods.contract.method import Method, Optimisation
from components.training.methods.registry import find_method
from components.training.rows.batches import BatchSource
from components.training.rows.sources import Columns, source_in_memory


def tune(
    base: Encoder,
    pairs: Columns,
    method: str = "paraclip",
    name: str = "tuned",
    device: str = "auto",
    report: Callable[[Step], None] | None = None,
    seed: int = 0,
    **settings: Any,
) -> Encoder:
    """A copy of `base`, trained by a method on rows in memory, as stage `train` does it on tables.

    Args:
        pairs: the columns that the method reads, such as `image`, `caption` and `paraphrase_1`.
        name: of the new encoder.
        device: as in `pick_device`.
        report: called after each step.
        settings: hyper-parameters other than the paper's.

    >>> pairs = {"image": pictures, "caption": ["a couch"] * 4, "paraphrase_1": ["a sofa"] * 4}
    >>> pairs["paraphrase_2"] = ["something to sit on"] * 4
    >>> tuned = tune(Encoder.load(Path("models/base")), pairs, lr=1e-4, batch_size=4, epochs=2)
    >>> tuned.save(Path("models/tuned")).method
    'paraclip'
    """
    torch.manual_seed(seed)
    found, place = find_method(method).read(settings), pick_device(device)
    tuning = FineTuning.of(copy.deepcopy(base), found)
    source = source_in_memory(pairs, found, tuning.encoder.to(place), seed)
    autocast = pick_autocast(pick_precision("auto", place), place)
    tuning.fit(source, name, LoopOptions(place, autocast, log_every=1), report=report)
    return tuning.encoder


@dataclass(frozen=True)
class FineTuning:
    """An encoder that a method trains.

    Attributes:
        base: the base's weights, only for `weight_ensemble`.
        from_base: whether all weights begin as the base's.
        teacher: the base encoder, unchanged, if losses read its features.
    """

    method: Method[Optimisation]
    encoder: Encoder
    base: Mapping[str, Tensor]
    from_base: bool
    teacher: Encoder | None

    @staticmethod
    def of(base: Encoder, method: Method[Optimisation]) -> FineTuning:
        """The encoder that training starts from; `base` may be changed."""
        teacher = copy.deepcopy(base) if method.reads_base else None
        kept = {}
        if method.settings.weight_ensemble < 1:
            kept = {name: weights.clone() for name, weights in base.model.state_dict().items()}
        from_base = not method.builds_tower and method.settings.image_tower != "random"
        return FineTuning(method, method.start(base), kept, from_base, teacher)

    def fit(
        self,
        source: BatchSource,
        title: str,
        options: LoopOptions,
        *,
        checkpoints: Checkpoints | None = None,
        report: Callable[[Step], None] | None = None,
        validate: Callable[[Objective, int], dict[str, float]] | None = None,
        select: tuple[str, bool] | None = None,
    ) -> State:
        """Train to the end; the encoder, on the CPU, has the weights that are exported.

        Args:
            title: the trained encoder's name.
            checkpoints, report, validate, select: as in `Run`.
        """
        method, encoder = self.method, self.encoder
        model = encoder.model.to(options.device)
        extra = method.extra(encoder).to(options.device)
        learnt = method.freeze(model)
        share = method.settings.weight_ensemble
        check_ensemble(share, learnt, self.base)
        trained = learnt | {f"extra.{key}": one for key, one in extra.named_parameters() if one.requires_grad}
        run = Run(
            title=title,
            model=model,
            trained=trained,
            losses=method.objective,
            source=source,
            optimisation=method.settings,
            extra=extra,
            perturb=method.augment and method.augment(encoder),
            options=options,
            checkpoints=checkpoints,
            report=report,
            validate=validate,
            preparation=encoder.sidecar.preparation,
            select=select,
            exported=lambda: ensembled(share, learnt, self.base),
            teacher=self._teacher(options),
        )
        state = fit(run)
        if select and checkpoints is not None and options.world.leads:
            if (best := checkpoints.best()) is None:
                raise InputError(f"{checkpoints.folder} has no best weights: set train.select_checkpoint to 'last'")
            copy_into(trained, best)
        ensemble(share, learnt, self.base)
        encoder.extra = {key: tensor.detach().cpu() for key, tensor in extra.state_dict().items()}
        own = asdict(method.settings)
        facts = {"name": title, "method": method.name, "settings": own, "from_base": self.from_base}
        # Of the weights before; `Encoder.save` computes them again.
        hashes = dict.fromkeys(("weights_sha256", "image_tower_sha256", "method_tensors_sha256"), "")
        encoder.sidecar = encoder.sidecar.model_copy(update=facts | hashes)
        model.to("cpu")
        return state

    def _teacher(self, options: LoopOptions) -> Teacher | None:
        if self.teacher is None:
            return None
        if self.method.settings.image_tower == "frozen":
            self.teacher.model.visual = nn.Identity()
        return Teacher.of(self.teacher, self.encoder.tokenizer, options.device, options.autocast)


def check_ensemble(share: float, trained: Mapping[str, nn.Parameter], base: Mapping[str, Tensor]) -> None:
    """Raise `InputError` if training does not start from the base's weights, so that an average makes no sense."""
    for name, weights in trained.items() if share < 1 else ():
        where = f"weight_ensemble {share} averages with the base's weights, but"
        if name not in base or base[name].shape != weights.shape:
            raise InputError(f"{where} the base has no '{name}': set it to 1")
        if not torch.equal(weights.cpu(), base[name].cpu()):
            raise InputError(f"{where} '{name}' starts at random: set it to 1")


@torch.no_grad()
def ensemble(share: float, trained: Mapping[str, nn.Parameter], base: Mapping[str, Tensor]) -> None:
    """Replace each weight by `share` of itself and the rest of the base's (WiSE-FT; PC-CLIP appendix A: 0.5)."""
    for name, weights in trained.items() if share < 1 else ():
        weights.lerp_(base[name].to(weights), 1 - share)


@contextmanager
def ensembled(share: float, trained: Mapping[str, nn.Parameter], base: Mapping[str, Tensor]) -> Iterator[None]:
    """`ensemble` within the block."""
    kept = {name: weights.detach().clone() for name, weights in trained.items() if share < 1}
    ensemble(share, trained, base)
    try:
        yield
    finally:
        copy_into({name: trained[name] for name in kept}, kept)
