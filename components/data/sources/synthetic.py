"""The synthetic pictures as a source: scenes drawn from a seed, alt-texts for training, sentences for evaluation."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence

from components.core.settings import Settings
from components.core.tables import records
from components.data.source import EvaluationTables, Pair, Sample, Source, filled
from components.data.world.alt_text import alt_text
from components.data.world.difference_text import comparison_rows
from components.data.world.drawing import draw
from components.data.world.evaluation_text import CUES, evaluation_text, negation_text, plain_query, swapped
from components.data.world.lexicon import TIERS
from components.data.world.likeness import half_truth_rows, likeness_rows
from components.data.world.scenes import Scene, Split, draw_scenes, pair_is_held_out


def _pairs(settings: Settings) -> Iterator[Pair]:
    seed, prepare = settings.dataset.seed, settings.prepare
    position: Counter[str] = Counter()
    counts: dict[Split, int] = {"train": prepare.counts.train, "val": prepare.counts.val, "test": prepare.counts.test}
    for split, scene in draw_scenes(seed, counts):
        key = f"{seed}-{split}-{position[split]}"
        position[split] += 1
        caption = alt_text(scene, random.Random(f"caption-{key}"), prepare.rare_word_share)
        yield Pair(split, Sample.of(draw(scene, f"drawing-{key}")), caption, scene.to_json())


def _evaluation(settings: Settings, tests: list[Pair]) -> EvaluationTables:
    rng = random.Random(f"evaluation-{settings.dataset.seed}")
    scenes = [(pair, Scene.from_json(pair.facts or "")) for pair in tests]
    queries, captions, swaps, labels = [], [], [], []
    for position, (pair, scene) in enumerate(scenes):
        text = evaluation_text(scene, rng, TIERS[position % len(TIERS)])
        held_out = "pair" if scene.kind == "pair" and pair_is_held_out(*scene.names) else "scene"
        queries.append((pair.image_id, text.query, text.paraphrase, text.tier, held_out))
        captions += [(pair.image_id, text.query, "plain"), (pair.image_id, pair.caption, "alt_text")]
        for kind in ("relation", "attribute"):
            other = swapped(scene, kind)
            if other is not None:
                state = rng.getstate()
                true = plain_query(scene, rng)
                rng.setstate(state)
                group = scene.relation if kind == "relation" else "size"
                swaps.append((pair.image_id, true, plain_query(other, rng), kind, group))
        if scene.kind != "pair":
            labels.append((pair.image_id, scene.first.name))
    named = [(pair.image_id, scene) for pair, scene in scenes]
    seed = settings.dataset.seed
    rows = (
        ("paraphrase_queries", records.PARAPHRASE_QUERIES, queries),
        ("caption_queries", records.CAPTION_QUERIES, captions),
        ("swaps", records.SWAPS, swaps),
        ("labels", records.LABELS, labels),
        ("negations", records.NEGATION_QUERIES, _negations(named, random.Random(f"negations-{seed}"))),
        ("comparisons", records.COMPARISONS, comparison_rows(named, random.Random(f"comparisons-{seed}"))),
        ("half_truths", records.HALF_TRUTHS, half_truth_rows(named, random.Random(f"half-truths-{seed}"))),
        (
            "text_pairs",
            records.TEXT_PAIRS,
            likeness_rows([scene for _, scene in scenes], random.Random(f"likeness-{seed}")),
        ),
    )
    return {name: filled(table, data) for name, table, data in rows}


def _negations(scenes: Sequence[tuple[str, Scene]], rng: random.Random) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for position, (image, scene) in enumerate(scenes):
        cue = CUES[position % len(CUES)]
        caption, negation = negation_text(scene, rng, cue)
        evaluation = evaluation_text(scene, rng, TIERS[position // len(CUES) % len(TIERS)])
        rows.append((image, caption, negation, evaluation.paraphrase, cue, evaluation.tier))
    return rows


SOURCE = Source(pairs=_pairs, evaluation=_evaluation)
