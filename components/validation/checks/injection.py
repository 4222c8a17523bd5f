"""Texts that talk to the language model instead of describing a picture."""

from __future__ import annotations

import re
import unicodedata

from components.captions.prompts.disarm import TURN_MARKS, visible

_EARLIER = "previous|previously|prior|above|earlier|preceding|foregoing|initial|original|existing|system"
_ANY = f"all|any|every|everything|anything|of|the|these|those|this|that|your|my|our|other|and|or|given|{_EARLIER}"
_ASKED = "instructions?|prompts?|directives?|programming"
_SAID = f"{_ASKED}|rules?|directions?|commands?|guidelines?|context|messages?|requests?|tasks?|conversation|text|input"
_MODEL = "ai|assistant|chatbot|bot|language model|llm|gpt|chatgpt"
_ONLY = "only|just|exactly|solely|exclusively|nothing but"

_ORDERS = re.compile(
    r"\b(?:"
    # What was asked is taken back.
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
    # The reader is told who it is.
    r"|you (?:are|re|will be|must be) (?:now|henceforth) (?:an?|my|our|acting|called|named|free (?:of|from)|"
    rf"in \w+ mode|dan|{_MODEL})"
    r"|you are no longer (?:an?|bound|restricted|limited|required)"
    r"|(?:pretend|imagine) (?:to be|that you are|you are|you re)(?: an?| the)? (?:\w+ ){0,2}"
    rf"(?:{_MODEL}|hacker|expert)"
    rf"|(?:act|behave|respond|answer|role ?play) as (?:if you|though you|an? (?:\w+ ){{0,2}}(?:{_MODEL}|unrestricted))"
    r"|as an? (?:ai|(?:large )?language model)|from now on you|do anything now"
    # It is asked for its prompt, or for certain words.
    r"|(?:system|developer|hidden|secret) prompts?|prompt injection"
    r"|(?:reveal|repeat|print|show|leak|output|recite|disclose)(?: me| us)?"
    rf"(?: (?:all|of|the|this|your|its|full|exact|{_EARLIER})){{1,4}} (?:prompts?|instructions?)"
    rf"|(?:respond|reply|answer)(?: back)? (?:{_ONLY}) (?:with|in|as|by|yes|no|the|using)"
    rf"|(?:respond|reply|answer) with (?:{_ONLY}|the (?:word|phrase|text|following|string)|a single|one word|json)"
    r"|(?:only|just) (?:respond|reply|output) (?:with|in|the|as)|output (?:only|nothing but|exactly) (?:the|with|in|a)"
    r")\b"
)
"""Orders to a language model, in lower case with one space between words and nothing else."""

_ROLES = re.compile(
    r"(?:^|[\n.!?>|\])}\"'])\s*(?:system|assistant|user|human|chatgpt)\s*:(?=\s|$)"
    r"|#{2,}\s*(?:new )?(?:instructions?|system|user|assistant|human|response|input|task)\b"
    r"|\[\s*(?:system|assistant|user|instructions?)\s*\]"
    r"|\b(?:new|updated)[\W_]+instructions?\s*:",
    re.IGNORECASE,
)
"""Marks with which a text pretends to be another turn of the conversation."""


def instructs(text: str) -> bool:
    """Whether `text` tries to instruct a language model, or to open a turn of its conversation."""
    seen = unicodedata.normalize("NFKC", visible(text))
    if TURN_MARKS.search(seen) or _ROLES.search(seen):
        return True
    return any(_ORDERS.search(_plain(part)) for part in {seen, *re.split(r"[.!?;\n]+", seen)})


def find_injection(text: str, source: str) -> str | None:
    """`answer` or `source`, whichever tries to instruct a language model, else None."""
    if instructs(text):
        return "answer"
    return "source" if instructs(source) else None


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", " ", text.casefold()).strip()
