"""What a text may hold that was hardly meant: marks of other tools, such as `<|endoftext|>` between documents, which are read as
any other characters here, and letters that are not in Unicode's form NFC.
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
# [ours] The share of characters that NFC would join to the letters before them; fewer may be single signs.
FEW = 1e-4


class Oddities:
    """The oddities of texts, noted chunk by chunk."""

    def __init__(self) -> None:
        self.marks: Counter[str] = Counter()
        self.decomposed: dict[str, None] = {}  # the names of texts that are not in NFC, in order
        self._first = ""  # the name of the first text with a mark

    def note(self, text: str, name: str) -> None:
        """Looks at a chunk of the text of this name."""
        if "<" in text or "[" in text:
            found = Counter(match[0].strip() for match in _MARK.finditer(text))
            self._first = self._first or (name if found else "")
            self.marks += found
        if len(text) - len(unicodedata.normalize("NFC", text)) > FEW * len(text):
            self.decomposed[name] = None

    def warn(self, advice: str) -> None:
        """Warns of what was found. The advice is what to do about a mark."""
        if self.marks:
            (mark, _), others = self.marks.most_common(1)[0], len(self.marks) - 1
            more = f", or {counted(others, 'other mark')} like it," if others else ""
            warn(
                f"{self._first}: {mark!r}{more} stands in the text {counted(self.marks.total(), 'time')}: it is read as any other"
                f" characters, and ends no document; {advice}"
            )
        if self.decomposed:
            first, *rest = self.decomposed
            more = f" and {counted(len(rest), 'more text')}" if rest else ""
            warn(
                f"{first}{more}: not in Unicode's form NFC (an é is an e and a mark behind it), so that words have other tokens than"
                " in NFC; write the text in NFC first"
            )
