"""Small files of our own in the formats of BabyLM's evaluation data."""

import json
from pathlib import Path


def write_lines(file: Path, records: list) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def write_data(folder: Path) -> Path:
    """Writes a folder such as full_eval, with two and more items in each set."""
    pairs = [
        ("the cats sleep .", "the cats sleeps ."),
        ("the dog sees it .", "the dog see it ."),
        ("a", "a"),
    ]
    blimp = [{"sentence_good": good, "sentence_bad": bad} for good, bad in pairs]
    known = {"field": "syntax", "UID": "wh_island", "linguistics_term": "island_effects"}
    write_lines(folder / "blimp_filtered" / "wh_island.jsonl", [pair | known for pair in blimp])
    write_lines(
        folder / "blimp_filtered" / "passive_1.jsonl",
        [pair | known | {"UID": "passive_1"} for pair in blimp[:1]],
    )
    write_lines(folder / "supplement_filtered" / "turn_taking.jsonl", blimp)

    contexts = {"Context1": "the dogs run .", "Context2": "the cats run ."}
    contexts |= {"Target1": "dogs run .", "Target2": "cats run ."}
    other_way = ("Context2", "Context1", "Target2", "Target1")
    swapped = dict(zip(contexts, map(contexts.get, other_way), strict=True))
    other = {
        "Domain": "social-relations",
        "ContextType": "direct",
        "ContextDiff": "x",
        "TargetDiff": "y",
    }
    write_lines(
        folder / "ewok_filtered" / "social-relations.jsonl", [contexts | other, swapped | other]
    )

    options = [" the cat .", " the dog .", " a cat and a dog ."]
    for stem in ("regular", "ambiref", "move_contents"):
        asked = [
            {"input_prefix": "the box has", "options": options[i:] + options[:i], "numops": i}
            for i in (0, 0, 1)
        ]
        write_lines(folder / "entity_tracking" / f"{stem}.jsonl", asked)

    for name, words in (
        ("wug_adj_nominalization", ["wugity", "wugness"]),
        ("wug_past_tense", ["wugged", "wug"]),
    ):
        asked = [
            {"sentences": "\t".join(f"{start} {word} ." for word in words), "ratio": ratio}
            for start, ratio in (("the", 0.2), ("a", "0.9"), ("it sees the", 0.5), ("cats", 0.4))
        ]
        write_lines(folder / name / f"{name}.jsonl", asked)

    for number, stem in enumerate(("base", "wugs", "wugs_dist-before", "wugs_dist-in-between")):
        asked = [
            {
                "prefix_acceptable": f"a {good}",
                "prefix_unacceptable": f"a {bad}",
                "property_phrase": "sees the cats .",
            }
            for good, bad in [("dog", "box"), ("cat", "box"), ("box", "cat")][: 1 + number % 3]
        ]
        write_lines(folder / "comps" / f"comps_{stem}.jsonl", asked)
    return folder
