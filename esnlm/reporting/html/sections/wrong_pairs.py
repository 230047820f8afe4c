"""The pairs that the run has wrong by the largest margin."""

from difflib import SequenceMatcher

from esnlm.reporting.blimp_text import readable
from esnlm.reporting.html.markup import Html, ask, join, note, tag
from esnlm.reporting.html.material import Material

PLACE = 50
TITLE = "Wrong by the largest margin"
MOST = 12
A_PARADIGM = 2  # at most, so that one hard paradigm does not fill the list


def render(run: Material) -> Html | None:
    if run.report is None or run.report["status"] != "ok":
        return None
    if isinstance(run.pairs, str):
        return ask(f"{run.pairs}.", run.report.get("provenance", {}).get("command") or f"esnlm blimp --run {run.path}")
    chosen = worst(run.pairs)
    if not chosen:
        return None
    explained = (
        f"Pairs in which the wrong sentence is more probable, by the largest margins; at most {A_PARADIGM} of a paradigm."
        " Right sentence first."
    )
    return join(note(explained), tag("ol", map(_item, chosen), class_="pairs"))


def worst(pairs: list[dict]) -> list[dict]:
    """Returns the wrong pairs of the largest margins, log p(bad) - log p(good) in nats, the largest first."""
    wrong = [line for line in pairs if line["right"] is False and not line["tie"] and None not in _log_probs(line)]
    chosen: list[dict] = []
    taken: dict[str, int] = {}
    for line in sorted(wrong, key=lambda line: -_margin(line)):
        if taken.get(line["UID"], 0) < A_PARADIGM and len(chosen) < MOST:
            taken[line["UID"]] = taken.get(line["UID"], 0) + 1
            chosen.append(line)
    return chosen


def _log_probs(line: dict) -> tuple[float | None, float | None]:
    return line.get("log_prob_good"), line.get("log_prob_bad")  # an item of regions has neither


def _margin(line: dict) -> float:
    return line["log_prob_bad"] - line["log_prob_good"]


def _item(line: dict) -> Html:
    good, bad = _marked(line["sentence_good"], line["sentence_bad"])
    about = tag("p", tag("b", f"{_margin(line):.1f} nats"), " ", readable(line["UID"]), class_="about")
    return tag("li", about, tag("p", good, dir="auto", class_="good"), tag("p", bad, dir="auto", class_="bad"))


def _marked(good: str, bad: str) -> tuple[Html, Html]:
    """Returns both sentences with the words marked in which they differ."""
    sides = good.split(" "), bad.split(" ")
    pieces: tuple[list[Html], list[Html]] = ([], [])
    for kind, *bounds in SequenceMatcher(None, *sides, autojunk=False).get_opcodes():
        for side, words, start, end in zip(pieces, sides, bounds[::2], bounds[1::2], strict=True):
            if text := " ".join(words[start:end]):
                side += [join(text) if kind == "equal" else tag("mark", text), join(" ")]
    return join(pieces[0]), join(pieces[1])
