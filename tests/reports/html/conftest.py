"""A small run that has everything a page can tell of, with a name and sentences that try to run
scripts."""

import json

import pytest

from esnlm.commands import run_command
from esnlm.diagnosis.diagnose import diagnose
from esnlm.training import config_io
from esnlm.training.run import train_run

ATTACK = "<img src=x onerror=hacked=1>"  # a name of a folder cannot hold a slash
WORSE = (
    "</script></style></title><script>hacked=2</script><iframe src=https://example.org/></iframe>"
)
SMALL = """
data: {kind: grammar, sentences: 200, validation_sentences: 20, pairs: 2}
model: {reservoir: {state_size: 24, mean_degree: 4}, readout: {rank: 4}}
training: {log_every: 1}
"""


def write_pairs(file):
    """Writes minimal pairs of 12 paradigms, of which half are wrong whatever the model: 4 are the
    other 4 turned round."""
    lines = []
    for number in range(12):
        for i in range(4):
            good, bad = f"The cats sleep {WORSE} {i}.", f"The cats sleeps {i}."
            sides = (good, bad) if i % 2 else (bad, good)
            pair = {
                "sentence_good": sides[0],
                "sentence_bad": sides[1],
                "linguistics_term": f"{WORSE}{number % 3}",
            }
            lines.append(
                pair | {"UID": f'paradigm_{number}"><script>hacked=3</script>', "field": "syntax"}
            )
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.fixture(scope="session")
def full_run(tmp_path_factory):
    """The directory of a run that was trained, scored and diagnosed."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "small.yaml").write_text(SMALL)
    run = folder / f"run {ATTACK}"
    assert train_run(config_io.read(folder / "small.yaml", ["--run", str(run)])) == 0
    pairs = write_pairs(folder / "pairs.jsonl")
    words = ["--run", str(run), "--data", str(pairs), "--overwrite"]
    assert run_command("blimp", words, f"esnlm blimp {WORSE}") == 0
    diagnose(run, command=f"esnlm diagnose {ATTACK}")
    return run
