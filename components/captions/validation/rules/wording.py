"""Finds texts that are not captions: talk about the task, echoes of its prompt, orders to a language model."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from functools import cache
from importlib.resources import files

import yaml

from components.captions.prompting.request import TURN_MARKS, visible
from components.captions.prompting.task import PromptTask
from components.captions.prompting.tasks import find_task
from components.core.text.languages import ENGLISH, identified, is_latin, latin_share

_SIGNS = {
    "lead_in": re.compile(
        r"^\W*(?:(?:sure|certainly|of course|okay|absolutely|alright|hm+|got it|understood|unfortunately|sorry)\b"
        r"|(?:ok|right|yes|well|so|great|wait|first|as requested)\s*[,!.:]|\w+ \w+!\s+\S"
        r"|here(?:'s| is| are) (?:a|an|the|your|my|one|some)\b"
        r"(?:\W+\w+){0,3}?\W+(?:paraphras|rephras|rewrit|version|caption)"
        r"|(?:\w+ ){0,2}(?:paraphrased?|rephrased|rewritten|caption|answer|output|response|text|version)"
        r"(?: \w+){0,2}[\s*_]*:"
        r"|the (?:\w+ )?(?:caption|text|paraphrase|sentence) (?:is|was|reads|says|describes|(?:can|could|should) be)\b"
        r"|as an? (?:ai|language model)\b)",
        re.IGNORECASE,
    ),
    # Not every "you": of a picture one says "you see a dog".
    "speaker": re.compile(
        r"\b(?:I(?:['\u2019](?:m|d|ll|ve))?(?!-)|me|[Mm]y|[Ll]et['\u2019]s"
        r"|[Yy]ou(?:['\u2019]d| would)? (?:ask|gave|give|like|need|prefer|provided|want|could say|can say|go\b))\b"
    ),
    "task": re.compile(
        r"\b(?:the|this|that|your) (?:sentence|caption|statement)\b|\b(?:re(?:phras|word|writ)|paraphras|synonym)\w*"
        r"|\((?:\w+ ){0,2}\d+ (?:words?|characters?|tokens?)\)|\b(?:word count|note|meaning):"
        r"|\b(?:hope (?:this|that|it)|feel free|(?:same|original) meaning)\b|\balternative(?:ly)?:"
        r"|[?\uff1f\u061f]|[^\W\d] / [^\W\d]",
        re.IGNORECASE,
    ),
    "markup": re.compile(r"[{}\\]|</?[a-z][^<>]*>|<\||\*\*|^(?:#+ |\[\s*[\"'])|&#?\w+;", re.IGNORECASE),
    "salad": re.compile(r"\b(?:an?|the) (?:an?|the|of|is|are)\b|\b(?:an?|the|and)\W*$"),
}
"""Signs of an answer that is not a caption, unless its source has them too. They are an opening of an answer, the
speaker or the reader, words about the task (or a question to the user), marks of HTML, JSON, LaTeX or Markdown, and
articles without a noun."""
_ENGLISH_ONLY = {"speaker", "salad"}
"""Signs that are ordinary words of other languages, as "me" is of French."""
_UNSPACED = ("ja", "zh")
_ADDRESS = re.compile(
    r"(?:https?://|www\.)[^\s)>\"']+|[\w.+-]+@[\w-]+\.\w[\w.]*|\b[\w-]+\.(?:com|net|org|info|biz|io|example)\b",
    re.IGNORECASE,
)

_PHRASE_WORDS = 3


def prompt_phrases(task: PromptTask) -> frozenset[tuple[str, ...]]:
    """Every run of three words of the task's question, without its sources and without the words that answers need.

    Demonstrations before the last question are excluded: a good answer resembles theirs. The phrases of a judge's task
    include those of the judged task.
    """
    messages = task.messages(dict.fromkeys(task.inputs, "\x00"))
    first, last = messages[0]["content"], messages[-1]["content"]
    asked = (first, last) if len(messages) > 1 else (last.rpartition("Q:")[2],)
    phrases = frozenset(phrase for text in asked for part in text.split("\x00") for phrase in _phrases(part))
    phrases -= {phrase for wanted in task.answers_repeat for phrase in _phrases(wanted)}
    return phrases if task.judges is None else phrases | prompt_phrases(find_task(task.judges))


def find_echo(
    text: str, source: str, phrases: frozenset[tuple[str, ...]] = frozenset(), language: str = ENGLISH
) -> str | None:
    """The first sign that `text` is not a caption: in `_SIGNS`, `refusal`, `link` or `prompt`; None without one.

    A sign that `source` has too does not count. `language` is the caption's.
    """
    for name, pattern in _signs(text.isascii()):
        if language != ENGLISH and name in _ENGLISH_ONLY:
            continue
        if pattern.search(text) and not pattern.search(source):
            return name
    if any(found.rstrip(".,;") not in source.casefold() for found in _ADDRESS.findall(text.casefold())):
        return "link"
    return "prompt" if (_phrases(text) & phrases) - _phrases(source) else None


def find_unusable(text: str, languages: Collection[str] = (ENGLISH,)) -> str | None:
    """The reason why a text that a model wrote of a picture is not a caption: see `find_echo`, `injection` or
    `language`; None without one.

    `languages` are those that it may be in; any if empty.
    """
    language = ENGLISH if not languages or ENGLISH in languages else next(iter(languages))
    if (sign := find_echo(text, "", language=language)) is not None:
        return sign
    if instructs(text):
        return "injection"
    return "language" if languages and find_foreign(text, languages) is not None else None


@cache
def _signs(latin: bool) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """The signs, and phrases in other languages; `latin` leaves out those in other letters."""
    refusal, opening, answer, here, task = (
        _spoken(kind, latin) for kind in ("refusal", "opening", "answer", "here", "task")
    )
    lead_in = (
        rf"^\W*(?:{opening})\s*[,!.:\uff0c\uff01\u3002\uff1a\u3001\u060c]"
        rf"|^.{{0,40}}?(?:{answer})[^:\uff1a]{{0,15}}[:\uff1a]|^\W*(?:{here}).{{0,40}}?(?:{answer})"
    )
    spoken = {"refusal": refusal, "lead_in": lead_in, "task": task}
    return (*_SIGNS.items(), *((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in spoken.items()))


def _spoken(kind: str, latin: bool) -> str:
    """Matches a phrase of a kind of `phrases.yaml`, in any of its languages, or in those in Latin letters."""
    phrases: dict[str, str] = yaml.safe_load(files(__package__).joinpath("phrases.yaml").read_text("utf-8"))[kind]
    spaced = "|".join(
        phrase for code, phrase in phrases.items() if code not in _UNSPACED and (is_latin(code) or not latin)
    )
    return "|".join((rf"\b(?:{spaced})", *(phrases[code] for code in _UNSPACED if not latin)))


def _phrases(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"[^\W_]+", text.casefold())
    return set(zip(*(words[start:] for start in range(_PHRASE_WORDS)), strict=False))


_EARLIER = "previous|previously|prior|above|earlier|preceding|foregoing|initial|original|existing|system"
_ANY = f"all|any|every|everything|anything|of|the|these|those|this|that|your|my|our|other|and|or|given|{_EARLIER}"
_ASKED = "instructions?|prompts?|directives?|programming"
_SAID = f"{_ASKED}|rules?|directions?|commands?|guidelines?|context|messages?|requests?|tasks?|conversation|text|input"
_MODEL = "ai|assistant|chatbot|bot|language model|llm|gpt|chatgpt"
_ONLY = "only|just|exactly|solely|exclusively|nothing but"

_ORDERS = re.compile(
    r"\b(?:"
    # Orders to ignore the question.
    rf"(?:ignore|disregard|forget|override|bypass)(?: (?:{_ANY})){{0,6}} (?:{_ASKED})"
    rf"|(?:ignor|disregard|forgett?|overrid|bypass)(?:e|ing)?(?: (?:{_ANY})){{0,3}} (?:{_EARLIER})"
    rf"(?: (?:{_ANY})){{0,3}} (?:{_SAID})"
    r"|(?:ignore|disregard|forget|override)(?: (?:all|any|everything|anything|whatever))?(?: of)?"
    r"(?: (?:the|this|that|what(?: is| was| s)?))? (?:(?:above|preceding|foregoing)(?! (?:ground|water|average))"
    rf"|(?:{_EARLIER})(?: (?:and|or|but|then|now|sentences?|captions?|lines?|parts?|questions?|content|words?)\b|$))"
    rf"|(?:ignore|disregard|forget|override)(?: (?:{_ANY})){{0,3}} (?:{_SAID}|sentences?|words) (?:above|before|so far)"
    r"|forget (?:everything|all|anything|what) (?:that )?(?:you|i|we) (?:were|was|are|have|ve|said|told|wrote|asked)"
    rf"|(?:do not|don t|never|stop) (?:follow|obey)\w*(?: (?:{_ANY})){{0,4}} (?:{_ASKED}|guidelines)"
    r"|(?:do not|don t|never|stop) (?:paraphras|rephras|rewrit|translat)\w* (?:the|this|that|it|any|anything|above)"
    r"|(?:new|updated) (?:system )?instructions? (?:follow|are|is|from now)"
    r"|instead(?: of \w+(?: \w+){0,4})? (?:please )?(?:output|respond|reply)"
    # A new role for the model.
    r"|you (?:are|re|will be|must be) (?:now|henceforth) (?:an?|my|our|acting|called|named|free (?:of|from)|"
    rf"in \w+ mode|dan|{_MODEL})"
    r"|you are no longer (?:an?|bound|restricted|limited|required)"
    r"|(?:pretend|imagine) (?:to be|that you are|you are|you re)(?: an?| the)? (?:\w+ ){0,2}"
    rf"(?:{_MODEL}|hacker|expert)"
    rf"|(?:act|behave|respond|answer|role ?play) as (?:if you|though you|an? (?:\w+ ){{0,2}}(?:{_MODEL}|unrestricted))"
    r"|as an? (?:ai|(?:large )?language model)|from now on you|do anything now"
    # Questions for its prompt, or for certain words.
    r"|(?:system|developer|hidden|secret) prompts?|prompt injection"
    r"|(?:reveal|repeat|print|show|leak|output|recite|disclose)(?: me| us)?"
    rf"(?: (?:all|of|the|this|your|its|full|exact|{_EARLIER})){{1,4}} (?:prompts?|instructions?)"
    rf"|(?:respond|reply|answer)(?: back)? (?:{_ONLY}) (?:with|in|as|by|yes|no|the|using)"
    rf"|(?:respond|reply|answer) with (?:{_ONLY}|the (?:word|phrase|text|following|string)|a single|one word|json)"
    r"|(?:only|just) (?:respond|reply|output) (?:with|in|the|as)|output (?:only|nothing but|exactly) (?:the|with|in|a)"
    r")\b"
)
"""Orders to a language model, in lower case, with single spaces between words."""

_ROLES = re.compile(
    r"(?:^|[\n.!?>|\])}\"'])\s*(?:system|assistant|user|human|chatgpt)\s*:(?=\s|$)"
    r"|#{2,}\s*(?:new )?(?:instructions?|system|user|assistant|human|response|input|task)\b"
    r"|\[\s*(?:system|assistant|user|instructions?)\s*\]"
    r"|\b(?:new|updated)[\W_]+instructions?\s*:",
    re.IGNORECASE,
)
"""Marks of a text that imitates another turn of the conversation."""


def instructs(text: str) -> bool:
    """Whether `text` tries to instruct a language model, or to open a turn of its conversation."""
    seen = unicodedata.normalize("NFKC", visible(text))
    if TURN_MARKS.search(seen) or _ROLES.search(seen):
        return True
    parts = {seen, *re.split(r"[.!?;\n\u3002]+", seen)}
    ordered, *ordering = _orders(seen.isascii())
    return any(
        _ORDERS.search(_plain(part)) or ordered.search(part) or all(one.search(part) for one in ordering)
        for part in parts
    )


@cache
def _orders(latin: bool) -> tuple[re.Pattern[str], ...]:
    """Orders in other languages: a pattern that is one, and three that are one together."""
    kinds = ("order", "ignore", "earlier", "instructions")
    return tuple(re.compile(_spoken(kind, latin), re.IGNORECASE) for kind in kinds)


def find_injection(text: str, source: str) -> str | None:
    """`answer` or `source` if that one tries to instruct a language model, else None."""
    if instructs(text):
        return "answer"
    return "source" if instructs(source) else None


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", " ", text.casefold()).strip()


_MAX_FOREIGN_LETTERS = 0.25


def find_foreign(text: str, languages: Collection[str] = (ENGLISH,)) -> str | None:
    """The code of the language of `text` if it is surely none of `languages`, `script` if its letters are not Latin.

    A caption is short and may name a dish or a place in the local language. The text must have at least 16 letters,
    and py3langid a confidence of at least 90%. Only languages in Latin letters have a script to miss.
    """
    if all(map(is_latin, languages)) and latin_share(text) < 1 - _MAX_FOREIGN_LETTERS:
        return "script"
    found = identified(text)
    return None if found is None or found in languages else found
