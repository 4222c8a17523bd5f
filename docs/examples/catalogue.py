"""Write a catalogue of drawn pictures with noisy titles, to try every step of the tutorial without own data.

    python docs/examples/catalogue.py data/catalogue            # 3,000 pictures, captions.tsv

Test rows have a plain query as caption, and a paraphrase of it. The scenes are not those of `make demo`.
"""

import csv
import random
import sys
from pathlib import Path

from components.data.world.alt_text import alt_text
from components.data.world.drawing import draw
from components.data.world.evaluation_text import evaluation_text
from components.data.world.lexicon import TIERS
from components.data.world.scenes import Split, draw_scenes

SEED, RARE = 7, 0.04
COUNTS: dict[Split, int] = {"train": 2300, "val": 200, "test": 500}


def main(folder: Path, counts: dict[Split, int] = COUNTS) -> int:
    """Write the pictures and their captions; returns the number of pictures."""
    folder.mkdir(parents=True)
    rows = []
    for number, (split, scene) in enumerate(draw_scenes(SEED, counts)):
        name = f"{number:05d}.png"
        rng = random.Random(number)
        (folder / name).write_bytes(draw(scene, name))
        if split == "train":
            rows.append((name, alt_text(scene, rng, RARE), "", split))
        else:
            text = evaluation_text(scene, rng, TIERS[number % len(TIERS)])
            rows.append((name, text.query, text.paraphrase, split))
    with (folder / "captions.tsv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
        writer.writerows([("image", "caption", "paraphrase", "split"), *rows])
    return len(rows)


if __name__ == "__main__":
    print(f"wrote {main(Path(sys.argv[1])):,} pictures to {sys.argv[1]}")
