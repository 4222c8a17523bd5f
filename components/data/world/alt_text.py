"""The noisy alt-text register: texts as on web pages, the only texts that the base encoder is trained on."""

from __future__ import annotations

import random
from dataclasses import asdict

from components.data.world.lexicon import Concept
from components.data.world.scenes import Scene, slots

_FRAMES = {
    "pair": (
        "{a} {relation} {b}, {colour} background - stock photo {sku}",
        "stock vector: {a} {relation} {b} - {colour} bg",
        "IMG_{n} {a} {relation} {b} {colour} bg.jpg",
        "{colour} bg: {a} {relation} {b} (clipart) ref {sku}",
        "{a_} {relation_} {b_} {colour}.png",
        "{a} & {b} | {b} {inverse} {a} | {colour} wallpaper",
        "BUY NOW!! {a} {relation} {b} - {colour} print {sku}",
        "{colour} background, {b} {inverse} {a} #emoji #{tag}",
        "picture {n}: {a} / {b} ({a} {relation} {b}), {colour}",
        "[{sku}] {a} {relation} {b} ; background {colour} ; free download",
        "{a} {relation} {b} {colour} backdrop @ best price",
        "photo-{n}.png >> {b} {inverse} {a} >> {colour}",
    ),
    "single": (
        "{a}, {position}, {colour} background - stock photo {sku}",
        "IMG_{n} {a} {position} {colour} bg.jpg",
        "{colour} bg: {a} in {position} (clipart)",
        "BUY NOW!! {a} - {position} - {colour} print {sku}",
        "{a_} {position_} {colour}.png",
        "{a} {position} #emoji #{tag} {colour} backdrop",
        "stock vector: {a} @ {position} - {colour} bg ref {sku}",
        "[{sku}] {a} ; {position} ; background {colour}",
    ),
    "group": (
        "{a}, {colour} background - stock photo {sku}",
        "IMG_{n} {a} {colour} bg.jpg",
        "{colour} bg: {a} (clipart) ref {sku}",
        "BUY NOW!! {a} - {colour} print {sku}",
        "{a_} {colour}.png",
        "{a} #emoji #{tag} {colour} backdrop",
        "stock vector: set with {a} - {colour} bg",
        "[{sku}] {a} ; background {colour} ; free download",
    ),
}
_TAGS = ("art", "cute", "sale", "design", "kids", "icons", "shop")


def alt_text(scene: Scene, rng: random.Random, rare_word_share: float) -> str:
    """One noisy caption of `scene`; each word is the rare one with probability `rare_word_share`."""

    def choose(concept: Concept) -> str:
        return concept.word("rare" if rng.random() < rare_word_share else "common")

    if scene.second is not None and rng.random() < 0.5:
        scene = scene.mirrored()
    fields = asdict(slots(scene, choose))
    fields |= {f"{name}_": fields[name].replace(" ", "_") for name in ("a", "b", "relation", "position")}
    number = rng.randint(100, 9999)
    sku = f"{rng.choice('ABCDEFGHKLMNPRSTWX')}{rng.randint(10, 99)}"
    return rng.choice(_FRAMES[scene.kind]).format(**fields, n=number, sku=sku, tag=rng.choice(_TAGS))
