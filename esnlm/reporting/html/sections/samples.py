"""Text that the model writes, from a seed that is named."""

from esnlm.errors import InputError
from esnlm.io.console import say
from esnlm.reporting.html.markup import Html, join, note, tag
from esnlm.reporting.html.material import Material

PLACE = 70
TITLE = "Samples"
COUNT, LENGTH, SEED = 6, 40, 0


def render(run: Material) -> Html:
    if isinstance(run.loaded, Html):
        return run.loaded
    say(f"{run.name}: writing samples")
    try:
        texts = run.loaded.generate(count=COUNT, length=LENGTH, seed=SEED)
    except InputError as error:  # the model has diverged
        return note(f"None: {error}.")
    quotes = (tag("li", text.strip() or "(an empty sentence)", dir="auto") for text in texts)
    return join(
        note(f"{COUNT} sentences that the model writes without a prompt, of at most {LENGTH} tokens, seed {SEED}."),
        tag("ul", quotes, class_="samples"),
    )


def command(run: Material) -> str:
    """Returns the command that writes the same text."""
    return f"esnlm generate --run {run.path} --count {COUNT} --length {LENGTH} --seed {SEED}"
