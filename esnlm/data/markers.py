"""What a text may hold that was not meant, for a warning: marks of other tools, such as `<|endoftext|>` between documents, which are read
as any other characters here, and letters that are written with marks of their own.
"""

import re
import unicodedata
from collections import Counter

from esnlm.io.console import counted, warn

# What may be a mark: a few characters between brackets. That is quick to search for, and seldom found.
_BRACKETED = re.compile(r"[<\[][^\s<>\[\]]{1,20}[>\]]")
# A mark wherever it stands: nobody writes these by hand.
_ANYWHERE = re.compile(
    r"<\|(?:endoftext|endofdoc|startoftext|begin_of_text|end_of_text|im_start|im_end|eot_id|end)\|>", re.IGNORECASE
)
# A mark as a whole line: within a line these may be markup, or a part of the text.
_AS_A_LINE = re.compile(r"</?s>|<(?:bos|eos|pad|sep|cls)>|\[(?:BOS|EOS|PAD|SEP|CLS)\]", re.IGNORECASE)

# [ours] Of the characters, marks that NFC would join to the letters before them: so many may be single signs.
FEW = 1e-4

# What to do about a mark, for a text that is prepared, one that is prepared across its lines, and one that is scored.
OF_PREPARATION = "where it ends one, put an empty line in its place"
OF_FILES = "where it ends one, put each document into a file of its own"
OF_SCORING = "leave it out where it is no text"
DECOMPOSED = (
    "not in Unicode's form NFC, as where an é is an e and a mark behind it: its tokens are others than those of the same words in NFC;"
    " write the text in NFC first"
)


def is_decomposed(text: str) -> bool:
    """Returns whether a text is in another form than Unicode's NFC, as where an é is an e and a mark behind it.

    Example:
        is_decomposed("Ka\\u0308the schla\\u0308ft.")  # True
    """
    if unicodedata.is_normalized("NFC", text):
        return False
    return len(text) - len(unicodedata.normalize("NFC", text)) > FEW * len(text)


def count_markers(text: str) -> Counter[str]:
    """Returns how often each mark stands in a text.

    Example:
        count_markers("The end.\\n<|endoftext|>\\nOnce more.\\n</s>\\n")  # {"<|endoftext|>": 1, "</s>": 1}
    """
    found: Counter[str] = Counter()
    for each in _BRACKETED.finditer(text):
        mark = each[0]
        if _ANYWHERE.fullmatch(mark) or (_AS_A_LINE.fullmatch(mark) and _is_a_line(text, each)):
            found[mark] += 1
    return found


def _is_a_line(text: str, found: re.Match[str]) -> bool:
    """Tells whether nothing but white space stands beside what was found in its line."""
    start, end = found.span()
    while start and text[start - 1] != "\n" and text[start - 1].isspace():
        start -= 1
    while end < len(text) and text[end] != "\n" and text[end].isspace():
        end += 1
    return text[start - 1 : start] in ("", "\n") and text[end : end + 1] in ("", "\n")


class Oddities:
    """What a text that is scored holds and was hardly meant, noted chunk by chunk."""

    def __init__(self) -> None:
        self._markers: Counter[str] = Counter()
        self._decomposed = False

    def note(self, text: str) -> str:
        """Looks at a chunk, and returns it."""
        self._markers.update(count_markers(text))
        self._decomposed = self._decomposed or is_decomposed(text)
        return text

    def warn(self, name: str) -> None:
        """Warns of what was found in the text of this name."""
        if (line := describe_markers(self._markers, OF_SCORING)) is not None:
            warn(f"{name}: {line}")
        if self._decomposed:
            warn(f"{name}: {DECOMPOSED}")


def describe_markers(markers: Counter[str], advice: str = OF_PREPARATION) -> str | None:
    """Returns the line that tells of marks; None where there are none."""
    if not markers:
        return None
    (mark, _), others = markers.most_common(1)[0], len(markers) - 1
    more = f", or {'another mark' if others == 1 else f'one of {others} other marks'} like it," * (others > 0)
    return (
        f"{mark!r}{more} stands in the text {counted(markers.total(), 'time')}: it is read as any other characters, and ends no document;"
        f" {advice}"
    )
