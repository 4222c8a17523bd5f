"""Removes everything from captions, which are untrusted text, that could steer a language model."""

from __future__ import annotations

import re
import unicodedata

from components.captions.prompting.request import PICTURE

TURN_MARKS = re.compile(
    r"[<\uff1c][|\uff5c][^|\uff5c>\uff1e]{0,40}[|\uff5c][>\uff1e]"
    r"|</?(?:s|bos|eos|system|user|assistant|human|model|think|tool_\w{1,20}|(?:start|end)_of_(?:turn|role|text))>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_\w{1,20})\]"
    r"|<</?SYS>>",
    re.IGNORECASE,
)
"""Marks that open or close a message in some model's chat template: a caption could end its own and begin another."""

_OTHER_MARKS = re.compile(r"</?[a-z][a-z0-9_]{0,40}>|\[/?(?:IMG|IMG_BREAK|IMG_END|gMASK|CLS|SEP|PAD|UNK|MASK)\]")
"""Other marks that tokenizers may read as one special token; `<PERSON>`, a name that a data set hides, is not one."""

_DOUBLE_QUOTES = re.compile(
    '["\u02ba\u02dd\u02ee\u05f4\u00ab\u00bb\u201c-\u201f\u2033\u2034\u2036\u2037\u2057\u275d\u275e\u2760\u301d-\u301f'
    "\uff02\U0001f676-\U0001f678]"
)
_UNSEEN = {"Cc", "Cf", "Co", "Cs"}
"""Categories of invisible characters: control, format (also the invisible letters that spell hidden text),
private use, and halves of surrogate pairs, which are not valid text."""
_JOINERS, _JOINED = "\u200c\u200d", {"Lo", "Mc", "Mn", "Sk", "So"}
"""Between two pictures or two letters of a script that joins them, these join both into one sign; there they stay."""


def disarm(text: str) -> str:
    """`text` on one line, without chat marks, and with single for double quotes, so that it stays inside its quotes."""
    bare = visible(text).replace(PICTURE, " ")
    while bare != (again := _OTHER_MARKS.sub(" ", TURN_MARKS.sub(" ", bare))):
        bare = again
    return re.sub(r"\s+", " ", _DOUBLE_QUOTES.sub("'", bare)).strip()


def visible(text: str) -> str:
    """`text` without invisible characters; white space stays, and the joiners within one emoji."""
    if text.isascii() and text.isprintable():
        return text
    kinds = ["", *map(unicodedata.category, text), ""]
    return "".join(
        letter
        for letter, before, kind, after in zip(text, kinds, kinds[1:], kinds[2:], strict=False)
        if letter.isspace() or kind not in _UNSEEN or (letter in _JOINERS and {before, after} <= _JOINED)
    )
