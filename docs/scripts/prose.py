"""Check the English of pages, docstrings, comments and error messages, for `make lint`: `python docs/scripts/prose.py`.

Ten habits make text hard to read for strangers; each rule has the words to use instead. Vale would do the same, but no
package index has its program.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

REPO = Path(__file__).parents[2]
LONGEST = 36
"""Words of a sentence, without those in brackets."""
RULES = {
    r"(?<!here )\b(is|are|was|were) (no|none|nothing)\b(?! (longer|more|less|fewer|later))": "is not a, has no",
    r"\b(tell|tells|told|asks|asked|asking)\b": "software prints, reports, requests or requires",
    r"\b(goes|go|went|going) on\b": "continues, resumes",
    r"\b[Ww]hat (is|was|it|they|a|the|each|others|comes?|came|has|have|had|you|people|users) \b(?![^?]*\?)": "a noun",
    r"\b(lies|lie|lay) (in|on|there|here|over|beside|below)\b": "is in, is on",
    r"\banew\b|\bat hand\b|\bas it is\b": "again; available; unchanged",
    r"\b(is|are|was|were|stays|stay) away\b": "is unavailable",
    r"\b[Nn]obody\b|\b[Ww]hoever\b|\b[Ww]hom\b": "name the person or the program",
    r"\bby itself\b": "automatically, alone",
    r"\b(hold|holds|held) what\b": "a noun",
}
_CODE = re.compile(r"^```.*?^```|<!--.*?-->|</?\w[^>]*>|^:::.*?$", re.M | re.S)
_ITEM = re.compile(r"\s*([-*#>]+|\d+\.|(?=\|)) ?(?=\S)")
ERRORS = {"InputError", "ValueError"}


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """The sentences of a page with their lines; code, links and comments are left out."""
    start, block = 1, list[str]()
    for number, line in enumerate([*_CODE.sub(lambda code: "\n" * code[0].count("\n"), text).splitlines(), ""], 1):
        if not line.strip() or _ITEM.match(line) or (block and block[-1].startswith(("#", "|"))):
            for part in " ".join(block).split("|") if block and block[0].startswith("|") else [" ".join(block)]:
                yield from ((start, one) for one in re.split(r"(?<=[.!?*])\s+(?=[A-Z*\"`])", _plain(part)) if one)
            start, block = number, []
        block.append(line)


def _plain(text: str) -> str:
    """A text without marks of Markdown; code is one word."""
    text = text.strip()
    text = text[found.end() :] if (found := _ITEM.match(text)) else text
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return " ".join(re.sub(r"`[^`]*`", "X", text).split())


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of the errors that a file raises."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
            parts = [part for argument in node.args for part in ast.walk(argument) if isinstance(part, ast.Constant)]
            yield node.lineno, "".join(part.value if isinstance(part.value, str) else " " for part in parts)


def remarks(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a Python or YAML file; each entry of a section such as Args is an item."""
    text = path.read_text("utf-8")
    lines = [found[1] if (found := re.match(r"\s*# (?!type|noqa)(.*)", line)) else "" for line in text.splitlines()]
    for node in ast.walk(ast.parse(text)) if path.suffix == ".py" else ():
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines[node.lineno - 1 : node.end_lineno] = node.value.value.splitlines()
    return sentences("\n".join(re.sub(r"^ *[A-Z]\w+:$|^ *[a-z][\w, ]*: (?=.)", "- ", line) for line in lines))


def faults(found: Iterator[tuple[int, str]], longest: int) -> Iterator[str]:
    """Each fault: line, rule, words."""
    for line, sentence in found:
        counted = re.sub(r"\([^)]*\)|\[[^\]]*\]", "", sentence)
        if (words := len(re.findall(r"[\w'’-]+", counted))) > longest and not sentence.startswith("Example"):
            yield f"{line}: {words} words in a sentence: {sentence[:60]}..."
        for rule, instead in RULES.items():
            for match in re.finditer(rule, sentence):
                near = sentence[max(0, match.start() - 25) : match.end() + 25]
                yield f"{line}: '{match[0]}' ({instead}): ...{near}..."


def main() -> int:
    """Print every fault; 1 if there is one."""
    listed = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True, check=True).stdout
    found = list[str]()
    for name in listed.splitlines():
        path = REPO / name
        if path.suffix == ".md":
            found += [f"{name}:{one}" for one in faults(sentences(path.read_text("utf-8")), LONGEST)]
        elif path.suffix in {".py", ".yaml"} and not name.startswith("tests/"):
            found += [f"{name}:{one}" for one in faults(remarks(path), LONGEST)]
        if path.suffix == ".py" and name.startswith("components/"):
            found += [f"{name}:{one}" for one in faults(messages(path), 60)]
    print(*found, sep="\n", end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
