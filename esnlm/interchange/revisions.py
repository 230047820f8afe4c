"""Names a run's kept checkpoints as BabyLM names the branches of a model (babylm-org/babylm-eval,
strict/README.md).

BabyLM names checkpoints after every million words up to ten, every ten million up to a hundred, and
every hundred million up to a thousand, counted over all epochs. `training.checkpoint_words` saves
such checkpoints.
"""

from collections.abc import Mapping

from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory

MILLION = 1_000_000
MILESTONES = (*range(1, 10), *range(10, 100, 10), *range(100, 1001, 100))  # millions of words
# [ours] A checkpoint is saved after an update, so it has read a few words more than requested. If
# it has read more than this share beyond a milestone, it is not named after it.
SURPLUS = 0.01


def revision_names(words: Mapping[int, int]) -> dict[int, str]:
    """Returns the name of each checkpoint: `chck_NM` for the first one at N million words, `step_N`
    for others.

    `words` is the number of words of training text that each checkpoint has read, by step.

    Example:
        >>> revision_names({10: 400_000, 25: 1_000_200, 50: 2_000_100, 60: 2_500_000})
        {10: 'step_10', 25: 'chck_1M', 50: 'chck_2M', 60: 'step_60'}
    """
    names: dict[int, str] = {}
    for step in sorted(words):
        millions = max((each for each in MILESTONES if each * MILLION <= words[step]), default=0)
        name, is_near = f"chck_{millions}M", 0 < words[step] <= (1 + SURPLUS) * millions * MILLION
        names[step] = name if is_near and name not in names.values() else f"step_{step}"
    return names


def words_of_checkpoints(directory: RunDirectory, kept: bool = False) -> dict[int, int]:
    """Returns the number of words of training text read by each saved checkpoint of a run, by step.

    Leaves out checkpoints without this number, such as those of imported models. With `kept`,
    returns only the checkpoints kept for good by `training.checkpoint_words`.
    """
    found = {}
    for step in checkpoint.all_steps(directory.checkpoints):
        metadata = checkpoint.metadata(directory.checkpoints / str(step))
        if isinstance(metadata.get("words"), int) and (metadata.get("permanent") or not kept):
            found[step] = metadata["words"]
    return found
