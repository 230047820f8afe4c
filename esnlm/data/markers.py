"""Marks of other tools in a text, such as `<|endoftext|>` between documents. Here they are text like any other, and one is told of them."""

import re
from collections import Counter

from esnlm.runs.console import counted

# Wherever they stand: nobody writes these by hand.
ANYWHERE = r"<\|(?:endoftext|endofdoc|startoftext|begin_of_text|end_of_text|im_start|im_end|eot_id|end)\|>"
# As a whole line: within a line they may be markup, or a part of the text.
AS_A_LINE = r"</?s>|<(?:bos|eos|pad|sep|cls)>|\[(?:BOS|EOS|PAD|SEP|CLS)\]"
_MARK = re.compile(rf"{ANYWHERE}|^[ \t]*(?:{AS_A_LINE})[ \t]*$", re.MULTILINE | re.IGNORECASE)


def count_markers(text: str) -> Counter[str]:
    """Returns how often each mark stands in a text.

    Example:
        count_markers("The end.\\n<|endoftext|>\\nOnce more.\\n</s>\\n")  # {"<|endoftext|>": 1, "</s>": 1}
    """
    return Counter(found.strip() for found in _MARK.findall(text))


def describe_markers(markers: Counter[str]) -> str | None:
    """Returns the line that tells of marks; None where there are none."""
    if not markers:
        return None
    (mark, _), others = markers.most_common(1)[0], len(markers) - 1
    more = f", or {'another mark' if others == 1 else f'one of {others} other marks'} like it," * (others > 0)
    return (
        f"{mark!r}{more} stands in the text {counted(markers.total(), 'time')}: it is read as text, letter by letter, and ends no document;"
        " where it ends one, put an empty line in its place"
    )
