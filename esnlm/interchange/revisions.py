"""Names a run's checkpoints as BabyLM names the branches of a model.

BabyLM (babylm-org/babylm-eval, strict/README.md) names checkpoints after every million words up to
ten, every ten million up to a hundred, and every hundred million up to a thousand, counted over all
epochs. `training.checkpoint_words` saves such checkpoints.
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
        reached = [number for number in MILESTONES if number * MILLION <= words[step]]
        name = f"step_{step}"
        if reached and words[step] <= (1 + SURPLUS) * reached[-1] * MILLION:
            milestone = f"chck_{reached[-1]}M"
            name = name if milestone in names.values() else milestone
        names[step] = name
    return names


def words_of_checkpoints(directory: RunDirectory, permanent: bool = False) -> dict[int, int]:
    """Returns the words of training text that each saved checkpoint of a run has read, by step.

    Leaves out checkpoints without this number, such as those of imported models. With `permanent`,
    returns only those that `training.checkpoint_words` keeps for good.
    """
    words = {}
    for step in checkpoint.all_steps(directory.checkpoints):
        metadata = checkpoint.metadata(directory.checkpoints / str(step))
        is_included = metadata.get("permanent") or not permanent
        if isinstance(metadata.get("words"), int) and is_included:
            words[step] = metadata["words"]
    return words
