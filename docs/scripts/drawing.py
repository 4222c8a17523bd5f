"""Draw the pictures of the pages, light and dark: `python docs/scripts/drawing.py`.

`pareto.svg` has the values of docs/figures/study.json, `training_memory.svg` those of docs/figures/memory.json.
"""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "cliptune", "font.family": "sans-serif"})
from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

DOCS = Path(__file__).parents[1]
ORANGE = "#d9822b"
COLOURS = {
    "": {
        "text": "#1b1b1f",
        "line": "#5f6368",
        "frozen": "#e3edf7",
        "trained": "#fde9c9",
        "plain": "#f1f1f3",
    },
    "-dark": {
        "text": "#e8e8ea",
        "line": "#a0a4a8",
        "frozen": "#23374d",
        "trained": "#5a4318",
        "plain": "#303136",
    },
}
TOWERS = [
    # left, top, width, height, fill, lines
    (20, 40, 150, 60, "plain", ["Pictures"]),
    (230, 40, 170, 60, "frozen", ["Image tower", "frozen"]),
    (460, 40, 170, 60, "frozen", ["Vectors in your index", "stay as they are"]),
    (20, 290, 150, 60, "plain", ["Captions"]),
    (20, 165, 150, 60, "plain", ["Language model", "paraphrases, negations"]),
    (230, 290, 170, 60, "trained", ["Text tower", "trains"]),
    (460, 165, 170, 60, "plain", ["Loss", "InfoNCE over a batch"]),
    (690, 165, 170, 60, "plain", ["Evaluation and gate", "intervals, guards"]),
    (690, 290, 170, 60, "trained", ["Champion", "answers queries"]),
]
ARROWS = [
    ((170, 70), (230, 70)),
    ((400, 70), (460, 70)),
    ((95, 290), (95, 225)),
    ((170, 320), (230, 320)),
    ((170, 195), (230, 300)),
    ((400, 305), (460, 210)),
    ((545, 100), (545, 165)),
    ((630, 195), (690, 195)),
    ((775, 225), (775, 290)),
    ((860, 320), (872, 320), (872, 70), (630, 70)),
]
ROOMS = [
    (20, 20, 600, 44, "plain", ["cli", "the commands, and the checks of params.yaml"]),
    (20, 74, 600, 44, "plain", ["serving", "HTTP server, image index, pages to look at results"]),
    (20, 128, 600, 44, "plain", ["registry", "gate, champion, card, exports, reviews"]),
    (20, 182, 600, 44, "plain", ["evaluation", "benchmarks, intervals, ranking, report"]),
    (20, 236, 295, 44, "trained", ["captions", "written, judged, checked"]),
    (325, 236, 295, 44, "trained", ["training", "methods and the loop"]),
    (20, 290, 295, 44, "frozen", ["data", "pictures and texts from anywhere"]),
    (325, 290, 295, 44, "frozen", ["encoders", "any encoder behind one class"]),
    (20, 344, 600, 44, "plain", ["core", "settings, tables, pictures, texts, devices, tracking"]),
    (650, 20, 210, 152, "plain", ["flows", "Prefect: order, retries, machines"]),
    (650, 182, 210, 206, "plain", ["research", "the papers' claims,", "experiments, measuring"]),
]


Point = tuple[int, int]
Box = tuple[int, int, int, int, str, list[str]]


def drawing(
    colours: dict[str, str], boxes: Sequence[Box], arrows: Sequence[Sequence[Point]], height: int, legend: str
) -> str:
    """Boxes, arrows and a legend below them, as SVG of 880 units' width."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 {height}" font-family="sans-serif" font-size="13">',
        f'<defs><marker id="end" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">'
        f'<path d="M0,0 L9,4 L0,8 z" fill="{colours["line"]}"/></marker></defs>',
    ]
    for corners in arrows:
        points = " ".join(f"{x},{y}" for x, y in corners)
        line = f'stroke="{colours["line"]}" stroke-width="1.6" marker-end="url(#end)"'
        parts.append(f'<polyline points="{points}" fill="none" {line}/>')
    for left, top, width, tall, fill, lines in boxes:
        parts.append(
            f'<rect x="{left}" y="{top}" width="{width}" height="{tall}" rx="8" fill="{colours[fill]}" '
            f'stroke="{colours["line"]}"/>'
        )
        for number, line in enumerate(lines):
            middle = top + tall / 2 + 5 + 19 * (number - (len(lines) - 1) / 2)
            weight = ' font-weight="600"' if number == 0 else ' font-size="12"'
            parts.append(
                f'<text x="{left + width / 2}" y="{middle:g}" text-anchor="middle" fill="{colours["text"]}"{weight}>'
                f"{escape(line)}</text>"
            )
    parts.append(f'<text x="20" y="{height - 15}" fill="{colours["text"]}" font-size="12">{legend}</text></svg>')
    return "\n".join(parts) + "\n"


LABELLED = {
    "base": (6, -14),
    "paraclip": (6, -14),
    "leaf": (6, 6),
    "lm_finetuned": (6, 6),
    "lm_bottleneck": (-70, 8),
    "joint_lm": (-26, 9),
    "pc_clip": (6, 6),
}
"""Encoders with a name in the picture, and the place of the name in points from their mark."""


def pareto(colours: dict[str, str], path: Path) -> None:
    """AO@10 of all encoders of the study against their accuracy at relations."""
    encoders = json.loads((DOCS / "figures" / "study.json").read_text("utf-8"))["encoders"]
    figure, axes = plt.subplots(figsize=(7.4, 4.2), facecolor="none")
    for name, cells in encoders.items():
        place = cells["paraphrased_retrieval/ao_at_10"]["value"], cells["swaps/relation_accuracy"]["value"]
        named = name in LABELLED
        axes.scatter(
            *place,
            s=42 if named else 22,
            color=ORANGE if named else colours["line"],
            alpha=1 if named else 0.6,
            zorder=2 + named,
        )
        if named:
            axes.annotate(name, place, xytext=LABELLED[name], textcoords="offset points", color=colours["text"])
    axes.axhline(50, color=colours["line"], linestyle=":", linewidth=1)
    axes.annotate("chance", (4, 50.5), color=colours["line"])
    axes.set(xlim=(3, 74), ylim=(46, 95))
    axes.set(xlabel="same images for query and paraphrase (AO@10, %)", ylabel="left of or right of (accuracy, %)")
    _save(figure, colours, path)


def memory(colours: dict[str, str], path: Path) -> None:
    """Peak memory of one training step by micro-batch, and by batch."""
    points = json.loads((DOCS / "figures" / "memory.json").read_text("utf-8"))["memory"]
    figure, sides = plt.subplots(1, 2, figsize=(8.4, 3.2), sharey=True, facecolor="none")
    largest = max(point["batch"] for point in points)
    fixed = next(point["micro_batch"] for point in points if point["batch"] < largest)
    by_micro = {point["micro_batch"]: point["peak_gb"] for point in points if point["batch"] == largest}
    by_batch = {point["batch"]: point["peak_gb"] for point in points if point["micro_batch"] == fixed}
    labels = f"texts in a micro-batch (batch of {largest:,})", f"texts in a batch (micro-batches of {fixed})"
    for axes, found, label in zip(sides, (by_micro, dict(sorted(by_batch.items()))), labels, strict=True):
        axes.plot(list(found), list(found.values()), "o:", color=ORANGE)
        axes.set(ylim=(0, 1.15 * max(by_micro.values())), xticks=list(found), xlabel=label)
    sides[0].set_ylabel("peak memory (GB)")
    _save(figure, colours, path)


def _save(figure: Figure, colours: dict[str, str], path: Path) -> None:
    """Write a plot whose axes have the colours of the page, on a transparent ground."""
    for axes in figure.axes:
        axes.set_facecolor("none")
        axes.xaxis.label.set_color(colours["text"])
        axes.yaxis.label.set_color(colours["text"])
        axes.tick_params(colors=colours["line"])
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(colours["line"])
    figure.tight_layout()
    figure.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    for ending, colours in COLOURS.items():
        towers = "Blue: frozen. Yellow: trained. A query and a paraphrase of it should find the same vectors."
        (DOCS / f"architecture{ending}.svg").write_text(drawing(colours, TOWERS, ARROWS, 400, towers), encoding="utf-8")
        rooms = "A room imports only rooms below it; rooms side by side do not know each other."
        (DOCS / f"rooms{ending}.svg").write_text(drawing(colours, ROOMS, (), 425, rooms), encoding="utf-8")
        pareto(colours, DOCS / f"pareto{ending}.svg")
        memory(colours, DOCS / f"training_memory{ending}.svg")
