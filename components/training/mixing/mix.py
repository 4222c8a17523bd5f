"""Stage `mix`: combines the weights of two encoders, without training.

A method's task vector is the difference of its weights from the base's. A mix is the base plus two such
differences, each times its weight (task arithmetic: Ilharco et al. 2023, arXiv 2212.04089).

python -m components.training.mixing.mix --mix both
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from torch import Tensor

from components.core.compute.provenance import DIRTY, data_hashes, git_commit
from components.core.settings import Settings
from components.core.system.checking import load_checked
from components.core.system.errors import InputError
from components.core.system.project import run_in_project, start
from components.core.tables.files import write_json
from components.core.tables.folders import BASE
from components.core.tracking import RUN_FILE, tracked_run
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.sidecar import Sidecar

METHOD = "mix"


def run(settings: Settings, name: str, models: Path = BASE.parent, output: Path | None = None) -> None:
    """Write the encoder of an entry of `mixes` to `output`, by default in `models`, and its run's reference."""
    if name not in settings.mixes:
        raise InputError(f"params.yaml has no block mixes.{name}: add one, or use {', '.join(settings.mixes)}")
    mix = settings.mixes[name]
    inputs = {role: models / member / "encoder.safetensors" for role, member in
              (("base", BASE.name), ("first", mix.a), ("second", mix.b))}  # fmt: skip
    encoder, first, second = (Encoder.load(path.parent) for path in inputs.values())
    check_members({mix.a: first, mix.b: second})
    weights = mixed(weights_of(encoder), {mix.a: weights_of(first), mix.b: weights_of(second)}, mix.weights)
    encoder.model.load_state_dict(weights)
    params = mix.model_dump(mode="json")
    origin = _origin(name, data_hashes(inputs.values()), [first.sidecar, second.sidecar])
    facts = {"name": name, "method": METHOD, "settings": params}
    encoder.sidecar = encoder.sidecar.model_copy(update=facts | origin)
    output = output or models / name
    with tracked_run("mix", name, settings, params | {"method": METHOD}, inputs) as tracked:
        encoder.save(output)
        write_json(output / RUN_FILE, tracked.reference())
        tracked.log_artifact(output)


def _origin(name: str, hashes: dict[str, str], members: Sequence[Sidecar]) -> dict[str, object]:
    """Commit and data hashes of a mix: those of this run and of its members' trainings."""
    for member in members:
        for path, digest in member.data_hashes.items():
            if hashes.setdefault(path, digest) != digest:
                raise InputError(f"mixes.{name}: '{member.name}' was trained on another {path}: run `dvc repro`")
    commits = [git_commit(), *(member.git_commit for member in members)]
    dirty = any(commit.endswith(DIRTY) for commit in commits)
    commit = commits[0].removesuffix(DIRTY) + DIRTY * dirty if all(commits) else ""
    return {"data_hashes": hashes, "git_commit": commit}


def check_members(members: Mapping[str, Encoder]) -> None:
    """Raise `InputError` if a member did not start from the base's weights, which shapes do not show."""
    for name, encoder in members.items():
        if not encoder.sidecar.from_base:
            raise InputError(f"'{name}' cannot be mixed with the base: a tower of it was not trained from the base's")


def weights_of(encoder: Encoder) -> dict[str, Tensor]:
    """An encoder's weights by name."""
    weights: dict[str, Tensor] = encoder.model.state_dict()
    return weights


def mixed(
    base: Mapping[str, Tensor], members: Mapping[str, Mapping[str, Tensor]], coefficients: tuple[float, ...]
) -> dict[str, Tensor]:
    """The base's weights plus the difference of each member to them times its coefficient."""
    shapes = {key: weight.shape for key, weight in base.items()}
    for name, weights in members.items():
        odd = dict(shapes.items() ^ {key: weight.shape for key, weight in weights.items()}.items())
        if odd:
            raise InputError(
                f"'{name}' cannot be mixed with the base, whose towers differ: '{min(odd)}' is not the same"
            )
    result = {}
    for key, weight in base.items():
        total = weight.clone()
        if weight.is_floating_point():
            for coefficient, weights in zip(coefficients, members.values(), strict=True):
                total += coefficient * (weights[key] - weight)
        result[key] = total
    return result


def main(mix: Annotated[str, typer.Option(help="An entry of `mixes` in params.yaml.")]) -> None:
    """Combine the weights of two encoders.

    Example: python -m components.training.mixing.mix --mix all_needs
    """
    run_in_project(lambda: run(load_checked(entries=()), mix))


if __name__ == "__main__":
    start(main)
