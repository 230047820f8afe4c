"""What a text may hold that was hardly meant: marks of other tools, such as `<|endoftext|>`, which are read as any other
characters here, characters that nobody sees, and letters that are not in Unicode's form NFC.
"""

import re
import unicodedata
from collections import Counter

from esnlm.io.console import counted, warn

# A mark wherever it stands, if nobody writes it by hand; other marks only as a whole line, since within a line they may be text.
_MARK = re.compile(
    r"<\|(?:endoftext|endofdoc|startoftext|begin_of_text|end_of_text|im_start|im_end|eot_id|end)\|>"
    r"|^[^\S\n]*(?:</?s>|<(?:bos|eos|pad|sep|cls)>|\[(?:bos|eos|pad|sep|cls)\])(?=[^\S\n]*$)",
    re.IGNORECASE | re.MULTILINE,
)
# Characters that nobody sees, or that stand for lost ones. Each has tokens of its own, which make the words beside it improbable.
INVISIBLE = re.compile("[\ufeff\u200b\u200e\u200f\u00ad\ufffd]")
# [ours] The share of characters that NFC would join to the letters before them; fewer may be single signs.
FEW = 1e-4


class Oddities:
    """The oddities of texts, noted chunk by chunk."""

    def __init__(self) -> None:
        self.marks: Counter[tuple[str, str]] = Counter()  # by the name of the text and the mark
        self.invisible: Counter[tuple[str, str]] = Counter()  # by the name of the text and the character
        self.decomposed: dict[str, None] = {}  # the names of texts that are not in NFC, in order

    def note(self, text: str, name: str) -> None:
        """Looks at a chunk of the text of this name."""
        self.marks.update((name, match[0].strip()) for match in _MARK.finditer(text))
        self.invisible.update((name, match[0]) for match in INVISIBLE.finditer(text))
        if len(text) - len(unicodedata.normalize("NFC", text)) > FEW * len(text):
            self.decomposed[name] = None

    def warn(self) -> None:
        """Warns of what was found."""
        if self.marks:
            name, mark = next(iter(self.marks))
            times = counted(self.marks.total(), "time")
            warn(f"{name}: marks such as {mark!r} are read as text, {times}; put an empty line in their place")
        if self.invisible:
            name, character = next(iter(self.invisible))
            times = counted(self.invisible.total(), "time")
            warn(f"{name}: characters that nobody sees, such as {code_point(character)}, {times}: take them out")
        if self.decomposed:
            warn(f"{', '.join(self.decomposed)}: not in Unicode's form NFC: words have other tokens than in NFC")


def code_point(character: str) -> str:
    """Returns a character by its number and name, as "U+FEFF (ZERO WIDTH NO-BREAK SPACE)"."""
    return f"U+{ord(character):04X} ({unicodedata.name(character)})"
