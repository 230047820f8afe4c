"""The names that BabyLM's evaluation pipeline gives to the checkpoints of a training: `chck_1M`, ..., `chck_10M`, `chck_20M`, ...

The pipeline asks for a checkpoint after every million words up to ten, after every ten million up to a hundred, and after
every hundred million up to a thousand (babylm-org/babylm-eval, strict/README.md, "Checkpoints"). Words are counted over all
epochs. `training.checkpoint_words` saves such checkpoints.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

from esnlm.errors import InputError
from esnlm.io.json_file import parse_json
from esnlm.loaded_run import Run
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory

MILLION = 1_000_000
MILESTONES = (*range(1, 10), *range(10, 100, 10), *range(100, 1001, 100))  # millions of words
# [ours] A checkpoint is saved after an update, so it has read a few words more than were asked for. A checkpoint that has read
# more than this share beyond a milestone belongs to no milestone.
SURPLUS = 0.01


def revision_names(words: Mapping[int, int]) -> dict[int, str]:
    """Returns the names of the checkpoints that belong to a milestone, by step and in the order of the milestones.

    A milestone's checkpoint is the first one that has read so many words.

    Args:
        words: how many words of training text each saved checkpoint has read, by step.

    Example:
        >>> revision_names({10: 400_000, 25: 1_000_200, 50: 2_000_100, 60: 2_500_000})
        {25: 'chck_1M', 50: 'chck_2M'}
    """
    names: dict[int, str] = {}
    for millions in MILESTONES:
        count = millions * MILLION
        reached = [step for step in sorted(words) if words[step] >= count]
        if reached and words[reached[0]] <= count * (1 + SURPLUS):
            names[reached[0]] = f"chck_{millions}M"
    return names


def revision_name(step: int, words: Mapping[int, int]) -> str:
    """Returns the name of one checkpoint: that of its milestone, or `step_N` where it belongs to none."""
    return revision_names(words).get(step, f"step_{step}")


def passed_over(words: Mapping[int, int], asked: Collection[int]) -> list[str]:
    """Returns a line for each milestone that was asked for and that no checkpoint belongs to, since one update went too far beyond it.

    Args:
        words: as in `revision_names`.
        asked: numbers of words, `training.checkpoint_words`.
    """
    lines, names = [], revision_names(words).values()
    for millions in MILESTONES:
        count, name = millions * MILLION, f"chck_{millions}M"
        reached = [step for step in sorted(words) if words[step] >= count]
        if count in asked and reached and name not in names:
            read = words[reached[0]]
            lines.append(
                f"{name}: no checkpoint; the first one behind it, of step {reached[0]}, has read {read:,} words, more than"
                f" {SURPLUS:.0%} too many: smaller updates (training.batch_size) come nearer"
            )
    return lines


def remarks(run: Run, words: Mapping[int, int]) -> list[str]:
    """Returns what one should know of the names of a run's checkpoints: a line where it goes on from another run, and `passed_over`.

    Args:
        run: any checkpoint of it.
        words: as in `revision_names`.
    """
    parent = run.config.parent
    since = f"{run.name} goes on from {Path(parent.run or '').name}, step {parent.step}: its words, and chck_1M, ..., count from there"
    lines = [] if parent.run is None else [since]
    return lines + passed_over(words, getattr(run.config.training, "checkpoint_words", ()))


def words_of_checkpoints(directory: RunDirectory) -> dict[int, int]:
    """Returns how many words of training text each saved checkpoint of a run has read, by step.

    A checkpoint that does not say it, such as that of an imported model, is left out.

    Raises:
        InputError: the metadata of a checkpoint is missing or damaged.
    """
    found = {}
    for step in checkpoint.all_steps(directory.checkpoints):
        file = directory.checkpoints / str(step) / checkpoint.METADATA
        try:
            words = parse_json(file.read_bytes()).get("words")
        except (OSError, ValueError, AttributeError):
            raise InputError(f"{file}: missing or damaged; delete this checkpoint, or restore it from a copy") from None
        if isinstance(words, int):
            found[step] = words
    return found
