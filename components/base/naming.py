"""What a drawn scene shows and where, as a second lesson for towers that have few pictures to learn it from.

From 20,000 alt-texts alone a small tower learns sizes, layouts and colours, which tell the pictures of a batch apart;
what things are it learns late, and which of two is on the left never: mirrored, both towers would agree as well.
Published towers have seen hundreds of millions of pictures, or were trained on named ones before.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from components.core.records import PAIRS
from components.data.world.description.lexicon import load_lexicon
from components.data.world.description.scenes import RELATIONS, Scene
from components.methods.contract.losses import Features, unit
from components.training.rows.batches import Rows

SHOWN, PLACES = "shown", "places"
"""Labels: which objects of the lexicon a picture shows, `[rows, objects]`; which one of them is left, right, above and
below the other, from 1 on, 0 for none, `[rows, 4]`."""

_SHARPNESS = 3.0
"""Factor of the objects' logits, with which their layer need not grow large before it is sure."""
_LOG_SCALE = 3.0
"""Logarithm of the factor of the places' cosines as training begins."""


def scene_labels(pairs: Path) -> dict[str, Rows]:
    """The labels `SHOWN` and `PLACES` of each pair; none at all where a picture was not drawn from facts.

    Raises:
        InputError: the table is missing or damaged.
    """
    facts = PAIRS.read(pairs, ["facts"])["facts"].to_pylist()
    if None in facts:
        return {}
    number = {name: place for place, name in enumerate(load_lexicon().objects)}
    shown = np.zeros((len(facts), len(number)), dtype=np.int64)
    places = np.zeros((len(facts), len(RELATIONS)), dtype=np.int64)
    for row, scene in enumerate(map(Scene.from_json, facts)):
        shown[row, [number[name] for name in scene.names]] = 1
        if scene.second is not None:
            for side in (scene, scene.mirrored()):
                places[row, RELATIONS.index(side.relation)] = 1 + number[side.first.name]
    return {SHOWN: shown, PLACES: places}


class Naming(nn.Module):
    """Cross-entropies of what is read from features: of images which objects they show, of both towers what is where.

    Places are read from images and captions by the same directions, so that the towers agree on them.

    Args:
        dim: of the features.
        weight: of the losses.
    """

    def __init__(self, dim: int, weight: float) -> None:
        super().__init__()
        self._weight, objects = weight, len(load_lexicon().objects)
        self.shown = nn.Linear(dim, objects)
        self.places = nn.Parameter(torch.randn(len(RELATIONS) * (1 + objects), dim))
        self.log_scale = nn.Parameter(torch.tensor(_LOG_SCALE))

    def forward(self, features: Features) -> dict[str, Tensor]:
        """Losses of a batch that has the labels; the objects of a picture share its probability."""
        shown, places = features.labels[SHOWN].float(), features.labels[PLACES].flatten()
        logits = _SHARPNESS * self.shown(features.raw("image").own)
        directions = self.log_scale.exp() * unit(self.places)
        found = {"naming": F.cross_entropy(logits, shown / shown.sum(dim=1, keepdim=True))}
        for column in ("image", "caption"):
            at = (features[column].own @ directions.T).view(len(places), -1)
            found[f"placing_{column}"] = F.cross_entropy(at, places)
        return {name: self._weight * loss for name, loss in found.items()}
