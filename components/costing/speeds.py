"""How fast a profile's towers are, each kind of them timed once."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from components.core import folders
from components.core.discovery import choose
from components.core.settings import Settings
from components.costing.rates import Rates
from components.costing.towers import Speed, base_encoder, method_encoder, time_towers
from components.methods.contract.method import Method
from components.methods.registry import find_method


class Entry(NamedTuple):
    """An entry of `methods`: its method, its hyper-parameters, the folder it reads."""

    method: Method
    hyper: Any
    reads: Path


def entry_of(settings: Settings, name: str) -> Entry:
    """The entry called `name`.

    Raises:
        InputError: there is no such entry or method, or a key of it is wrong.
    """
    given = dict(settings.methods[choose(sorted(settings.methods), name, "params.yaml: method")])
    method, reads = find_method(given.pop("method", name)), Path(given.pop("reads", folders.VALIDATED))
    return Entry(method, method.settings(given, name), reads)


class Speeds:
    """The speeds of the base's towers and of those that methods train.

    Towers are timed here. Where `rates` say how fast the base's are, a method's are that much faster or slower than the
    base's as they are here.
    """

    def __init__(self, settings: Settings, rates: Rates) -> None:
        self._settings, self._rates = settings, rates
        self._timed: dict[object, Speed] = {}

    @cached_property
    def base(self) -> Speed:
        """Of the base, all of which trains."""
        here = self._base_here
        texts, images = self._rates.trained_texts_per_second, self._rates.embedded_images_per_second
        return replace(here, texts=texts or here.texts, images=images or here.images)

    def trained(self, name: str) -> Speed:
        """Of what the entry `name` of `methods` trains.

        Raises:
            InputError: as `entry_of`, or files of its text tower are not there.
        """
        method, hyper, _ = entry_of(self._settings, name)
        encoder = method_encoder(self._settings, method, hyper)
        kind = tuple((key, weight.shape, weight.requires_grad) for key, weight in encoder.model.named_parameters())
        if kind not in self._timed:
            here = time_towers(encoder, self._settings, images=False)
            texts = self.base.texts * here.texts / self._base_here.texts
            self._timed[kind] = replace(here, texts=texts, images=self.base.images)
        return self._timed[kind]

    def of(self, encoder: str) -> Speed:
        """Of an encoder to evaluate; a mix is as fast as the base."""
        return self.trained(encoder) if encoder in self._settings.methods else self.base

    @cached_property
    def _base_here(self) -> Speed:
        return time_towers(base_encoder(self._settings), self._settings, images=True)
