"""Warns of probable mistakes in texts: marks of other tools, such as `<|endoftext|>`, which are
ordinary characters here, invisible characters, and letters that are not in the Unicode form NFC.
"""

import re
import unicodedata
from collections import Counter

from esnlm.base.console import counted, warn

# Unmistakable marks anywhere; other marks only as a whole line, since within a line they may be
# text.
_MARK = re.compile(
    r"<\|(?:endoftext|endofdoc|startoftext|begin_of_text|end_of_text|im_start|im_end|eot_id|end)\|>"
    r"|^[^\S\n]*(?:</?s>|<(?:bos|eos|pad|sep|cls)>|\[(?:bos|eos|pad|sep|cls)\])(?=[^\S\n]*$)",
    re.IGNORECASE | re.MULTILINE,
)
# Invisible or replacement characters, unpaired surrogates, and control characters except white
# space. Each has its own tokens, which make the words beside it improbable.
INVISIBLE = re.compile(
    "[\ufeff\u200b\u200e\u200f\u00ad\ufffd\ud800-\udfff\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]"
)
UNNAMED = {"Cc": "CONTROL CHARACTER", "Cs": "UNPAIRED SURROGATE"}  # by Unicode category
# [ours] Minimum share of characters that NFC would join to the letters before them; fewer may be
# single signs.
FEW = 1e-4


class Oddities:
    """Counts the oddities of texts, chunk by chunk."""

    def __init__(self) -> None:
        self.marks: Counter[tuple[str, str]] = Counter()  # by name of the text, and mark
        self.invisible: Counter[tuple[str, str]] = Counter()  # by name of the text, and character
        self.decomposed: dict[str, None] = {}  # names of texts not in NFC, in order

    def note(self, text: str, name: str) -> None:
        """Counts the oddities in a chunk of the text `name`."""
        self.marks.update((name, match[0].strip()) for match in _MARK.finditer(text))
        self.invisible.update((name, match[0]) for match in INVISIBLE.finditer(text))
        if len(text) - len(unicodedata.normalize("NFC", text)) > FEW * len(text):
            self.decomposed[name] = None

    def warn(self) -> None:
        """Prints warnings for all oddities found."""
        if self.marks:
            name, mark = next(iter(self.marks))
            times = counted(self.marks.total(), "time")
            warn(
                f"{name}: marks such as {mark!r} are read as text, {times}; replace them by empty"
                " lines"
            )
        if self.invisible:
            name, character = next(iter(self.invisible))
            times = counted(self.invisible.total(), "time")
            warn(
                f"{name}: invisible characters, such as {code_point(character)}, {times}: remove"
                " them"
            )
        if self.decomposed:
            warn(
                f"{', '.join(self.decomposed)}: not in Unicode form NFC: words have other tokens"
                " than in NFC"
            )


def code_point(character: str) -> str:
    """Formats a character with its number and name, as "U+FEFF (ZERO WIDTH NO-BREAK SPACE)"."""
    name = unicodedata.name(character, UNNAMED.get(unicodedata.category(character), "UNNAMED"))
    return f"U+{ord(character):04X} ({name})"
