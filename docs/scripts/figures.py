"""Write the tables of README and pages from docs/figures/*.json, and check every other number of the pages.

    python docs/scripts/figures.py            # writes the tables between `<!-- figures: ... -->` and `<!-- end -->`
    python docs/scripts/figures.py --check    # fails if a table, or a number in a text, differs from its file

`study.json` (a copy of reports/claims/papers.json) and `photographs*.json` hold measured values in percent, with the
command and the commit that made them. `texts.json` has the numbers of all other texts, by page and section, with their
command and the commit that first stated them. A command `... of this commit` is a script that only the history has.
"""

import json
import re
import sys
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
REPO = DOCS.parent
GENERATED = {"settings.md", "commands.md", "metrics.md"}
AO, JS, R5 = "paraphrased_retrieval/ao_at_10", "paraphrased_retrieval/js_at_10", "retrieval/t2i_recall_at_5"
WRITTEN = "written_paraphrases/ao_at_10"
ONE, NOISY = "photographs-one", "photographs-noisy"
NEGATION, SWAPS = "negations/original_over_negation", "swaps/relation_accuracy"
SCENES = {
    "query and paraphrase, AO@10": AO,
    "plain queries, recall@5": R5,
    "similarity of sentences, rank correlation": "text_similarity/spearman",
    "caption over its negation": NEGATION,
    "zero-shot classification, top-1": "zero_shot/top1",
    "left of or right of (chance 50)": SWAPS,
    "noisy alt-texts, as in training, recall@5": "retrieval_alt_text/t2i_recall_at_5",
    "half-truths (chance 50)": "half_truths/accuracy",
}
PHOTOGRAPHS = [
    ("one title each: AO@10 of two people's captions, `paraclip` on paraphrases by a 135M model", ONE, AO, "paraclip"),
    ("the same, `paraclip_people` on captions by people", ONE, AO, "paraclip_people"),
    ("AO@10 of a caption and a written query, `paraclip`", ONE, WRITTEN, "paraclip"),
    ("the same, `paraclip_people`", ONE, WRITTEN, "paraclip_people"),
    ("text-to-image recall@5, `paraclip`", ONE, R5, "paraclip"),
    ("noisy titles: AO@10 of two people's captions, `paraclip`", NOISY, AO, "paraclip"),
    ("the same, `paraclip_people`", NOISY, AO, "paraclip_people"),
    ("AO@10 of a caption and a written query, `paraclip`", NOISY, WRITTEN, "paraclip"),
    ("the same, `paraclip_people`", NOISY, WRITTEN, "paraclip_people"),
    ("five captions each: caption over its negation, `semclip`", "photographs", NEGATION, "semclip"),
]
PARACLIP = {
    "paraphrased retrieval AO@10": AO,
    "paraphrased retrieval JS@10": JS,
    "whole rankings of query and paraphrase, rank correlation": "ranking_stability/rank_correlation",
    "similarity of sentences, rank correlation": "text_similarity/spearman",
    "plain queries, text-to-image recall@5": R5,
    "the same with a typing error": "typos/t2i_recall_at_5",
    "paraphrases, text-to-image recall@10": "paraphrased_retrieval/paraphrase_recall_at_10",
    "noisy alt-text (as in training), text-to-image recall@5": "retrieval_alt_text/t2i_recall_at_5",
    "caption over its negation": NEGATION,
    "attribute swaps, accuracy": "swaps/attribute_accuracy",
    "relation swaps, accuracy": SWAPS,
    "zero-shot object classification, top-1": "zero_shot/top1",
}
RANKINGS = {
    "AO@10": AO,
    "JS@10": JS,
    "AO@10, unseen words": "paraphrased_retrieval/tier_unseen/ao_at_10",
    "plain R@5": R5,
    "alt-text R@5": "retrieval_alt_text/t2i_recall_at_5",
    "R@5 with a typo": "typos/t2i_recall_at_5",
    "attribute swaps": "swaps/attribute_accuracy",
    "relation swaps": SWAPS,
    "zero-shot top-1": "zero_shot/top1",
}
LANGUAGE = {
    "whole rankings": "ranking_stability/rank_correlation",
    "sentence similarity": "text_similarity/spearman",
    "caption over its negation": NEGATION,
    "paraphrase over negation": "negations/paraphrase_over_negation",
    "SemCLIP's composite": "negations/composite",
    "differences of pictures": "differences/accuracy",
    "larger thing": "differences/size_ordering_accuracy",
    "half-truths": "half_truths/accuracy",
    "TOT": "triplets/tot",
}
PEOPLE = {
    "AO@10 of two people's captions": AO,
    "text-to-image R@1": "retrieval/t2i_recall_at_1",
    "R@5": R5,
    "image-to-text R@5": "retrieval/i2t_recall_at_5",
    "ratings by experts, tau-c": "caption_ratings/tau_c",
    "caption over its negation": NEGATION,
}
TITLES = {
    "AO@10, people's captions": AO,
    "AO@10, written queries": WRITTEN,
    "text-to-image R@5": R5,
    "image-to-text R@5": "retrieval/i2t_recall_at_5",
    "ratings by experts, tau-c": "caption_ratings/tau_c",
    "caption over its negation": NEGATION,
}
SEMCLIP = ["base", "semclip", "semclip_1", "semclip_learnt", "semclip_paraphrase", "semclip_negation"]
TOWERS = [
    f"lm_{one}{images}"
    for one in ("frozen", "bottleneck", "alignment_2", "alignment", "finetuned")
    for images in ("", "_images")
]
ABLATIONS = {
    "caption over its negation": NEGATION,
    "SemCLIP's composite": "negations/composite",
    "AO@10": AO,
    "plain R@5": R5,
    "zero-shot top-1": "zero_shot/top1",
    "relation swaps": SWAPS,
}
NOTES = {
    "paraclip_people": ": people's captions for the LLM's",
    "caption_ft": ": the base's captions again",
}


@cache
def measured(name: str) -> dict[str, dict[str, Any]]:
    """Encoder -> metric -> value, interval, seeds and difference to the base, of docs/figures/<name>.json."""
    found: dict[str, dict[str, Any]] = json.loads((DOCS / "figures" / f"{name}.json").read_text("utf-8"))["encoders"]
    return found


def against(rows: list[tuple[str, str, str, str]], head: str) -> list[str]:
    """A row for each label, file, metric and encoder, with base and difference; the better one is bold."""
    lines = [f"| {head} | base | method | difference |", "|---|---|---|---|"]
    for label, file, metric, encoder in rows:
        base, cell = measured(file)["base"][metric]["value"], measured(file)[encoder][metric]
        value, difference = cell["value"], cell.get("difference") or [round(cell["value"] - base, 1)]
        sure = len(difference) == 1 or difference[1] > 0 or difference[2] < 0
        marks = [f"**{one:.1f}**" if sure and one == max(base, value) else f"{one:.1f}" for one in (base, value)]
        lines.append(f"| {label} | {marks[0]} | {marks[1]} | {_difference(difference)} |")
    return lines


def seed_by_seed() -> list[str]:
    """Base and ParaCLIP with half-widths and each seed's value."""
    lines = ["| metric | base | ParaCLIP | difference |", "|---|---|---|---|"]
    for label, metric in PARACLIP.items():
        cells = [measured("study")[encoder][metric] for encoder in ("base", "paraclip")]
        texts = [
            f"{one['value']:.1f} {_half(one)} ({', '.join(f'{seed:.1f}' for seed in one['seeds'])})" for one in cells
        ]
        lines.append(f"| {label} | {texts[0]} | {texts[1]} | {_difference(cells[1]['difference'])} |")
    return lines


def all_encoders(
    file: str, columns: dict[str, str], show: Callable[[str, dict[str, Any]], str], names: Collection[str] = ()
) -> list[str]:
    """A row for each encoder, or for those named; the best of a column is bold."""
    lines = [f"| encoder | {' | '.join(columns)} |", f"|{'---|' * (len(columns) + 1)}"]
    found = {name: measured(file)[name] for name in names or measured(file)}
    best = {metric: max(cells[metric]["value"] for cells in found.values()) for metric in columns.values()}
    for encoder, cells in found.items():
        texts = []
        for metric in columns.values():
            value = f"{cells[metric]['value']:.1f}"
            texts.append(show(f"**{value}**" if cells[metric]["value"] == best[metric] else value, cells[metric]))
        note = NOTES.get(encoder, "") if file.startswith("photographs") else ""
        lines.append(f"| `{encoder}`{note} | {' | '.join(texts)} |")
    return lines


def _entries() -> list[str]:
    """Encoders that are not only in the tables of ablations."""
    return [name for name in measured("study") if not name.endswith(("_images", "_1", "_learnt"))]


def _plain(value: str, _: dict[str, Any]) -> str:
    return value


def _photograph(value: str, cell: dict[str, Any]) -> str:
    if "difference" in cell:
        return f"{value} [{cell['difference'][1]:+.1f}, {cell['difference'][2]:+.1f}]"
    return f"{value} {_half(cell)}"


def _half(cell: dict[str, Any]) -> str:
    return f"±{(cell['interval'][1] - cell['interval'][0]) / 2:.1f}"


def _difference(values: list[float]) -> str:
    return f"{values[0]:+.1f}" + (f" [{values[1]:+.1f}, {values[2]:+.1f}]" if len(values) > 1 else "")


TABLES: dict[str, Callable[[], list[str]]] = {
    "scenes": lambda: against(
        [(label, "study", metric, "paraclip") for label, metric in SCENES.items()],
        "drawn scenes, 1,000 test scenes ([all methods](docs/results.md))",
    ),
    "photographs": lambda: against(
        PHOTOGRAPHS, "photographs, Flickr8k's 1,000 test photographs ([all methods](docs/photographs.md))"
    ),
    "base and paraclip": seed_by_seed,
    "rankings": lambda: all_encoders("study", RANKINGS, _plain, _entries()),
    "language": lambda: all_encoders("study", LANGUAGE, _plain, _entries()),
    "semclip": lambda: all_encoders("study", ABLATIONS, _plain, SEMCLIP),
    "towers": lambda: all_encoders("study", ABLATIONS, _plain, ["base", *TOWERS]),
    "people's captions": lambda: all_encoders("photographs", PEOPLE, _photograph),
    "one caption": lambda: all_encoders(ONE, TITLES, _photograph),
    "noisy captions": lambda: all_encoders(NOISY, TITLES, _photograph),
}
_TABLE = re.compile(r"(<!-- figures: (.+?) -->\n).*?(<!-- end -->)", re.S)
_NUMBER = re.compile(r"(?<![\w.,/-])[+-]?\d+(?:,\d{3})*\.\d+(?![\w.])")
_NOT_TEXT = re.compile(r"^```.*?^```|`[^`]*`|\]\([^)]*\)|\[\d{4}\.\d{5}\]", re.M | re.S)


def written(text: str) -> str:
    """A page with its tables as the files say."""
    return _TABLE.sub(lambda found: found[1] + "\n".join(TABLES[found[2]]()) + "\n" + found[3], text)


def numbers(text: str) -> Iterator[tuple[str, list[str]]]:
    """Section -> its decimal numbers, sorted; without tables of `figures`, code, links and ids of arXiv."""
    plain = _NOT_TEXT.sub(" ", _TABLE.sub("", text))
    for section in re.split(r"^(?=#{1,4} )", plain, flags=re.M):
        if found := sorted(set(_NUMBER.findall(section))):
            yield section.splitlines()[0].lstrip("# ") if section.startswith("#") else "", found


def main(check: bool) -> int:
    """Write the tables, or list what differs."""
    pages = [REPO / "README.md", *sorted(path for path in DOCS.glob("*.md") if path.name not in GENERATED)]
    known = json.loads((DOCS / "figures" / "texts.json").read_text("utf-8"))
    faults = []
    for page in pages:
        text = page.read_text("utf-8")
        if (new := written(text)) != text:
            if check:
                faults.append(f"{page.name}: a table differs from docs/figures: run python docs/scripts/figures.py")
            else:
                page.write_text(new, encoding="utf-8")
        for section, found in numbers(new):
            entry = known.get(page.name, {}).get(section, {"numbers": []})
            if extra := sorted(set(found) - set(entry["numbers"])):
                faults.append(f"{page.name}, '{section}': {', '.join(extra)} not in docs/figures/texts.json")
            if old := sorted(set(entry["numbers"]) - set(found)):
                faults.append(f"{page.name}, '{section}': {', '.join(old)} in docs/figures/texts.json, not in the text")
    print(*faults, sep="\n", end="\n" if faults else "")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
