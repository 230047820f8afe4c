"""A GPT-2 in Hugging Face's format becomes a run that scores and generates."""

import numpy as np
import pytest

import esnlm
from esnlm import commands
from esnlm.base.errors import InputError
from tests.models import small_gpt2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("hf") / "tiny"
    path.mkdir()
    small_gpt2.write(path)
    return path


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "tiny"
    assert commands.main(["import", str(folder), "--out", str(out)]) == 0
    return esnlm.load(out)


def transformers_log_probs(folder, weights, ids_of_sentences):
    import torch
    import transformers

    model, found = transformers.GPT2LMHeadModel.from_pretrained(folder).eval(), []
    for ids in map(torch.tensor, ids_of_sentences):
        with torch.no_grad():
            log_probs = model(ids[None]).logits[0].double().log_softmax(-1)
        found.append(float(log_probs[:-1].gather(1, ids[1:, None]).sum()))
    return {"log_probs": found}


def test_sentence_log_probs_are_those_of_transformers(peer, folder, run):
    sentences = ["the cat sat", "a the the", "", "x"]
    ids = [
        [run.tokenizer.bos, *run.tokenizer.encode(sentence), run.tokenizer.eos]
        for sentence in sentences
    ]
    expected = peer(
        "import-log-probs", transformers_log_probs, folder, small_gpt2.random_weights(), ids
    )
    log_probs = [log_probs.sum() for log_probs in run.token_log_probs(sentences)]
    np.testing.assert_allclose(log_probs, expected["log_probs"], atol=1e-3, rtol=0)
    np.testing.assert_allclose(run.log_probs(sentences[:2]), log_probs[:2], rtol=1e-6)


def test_it_reads_as_many_tokens_as_it_has_positions(run):
    whole = " the" * 63  # of 65 ids with BOS and EOS: the last one is predicted, and not read
    assert np.isfinite(run.log_probs([whole])).all()
    for ask in (
        lambda: run.log_probs(["the " * 100]),
        lambda: run.states([whole]),
        lambda: run.generate("the " * 100),
    ):
        with pytest.raises(InputError, match="64"):
            ask()
    with pytest.raises(InputError, match="imported"):
        esnlm.load(run.directory, untrained=True)


def test_the_command_imports_and_refuses_in_one_line(folder, tmp_path, capsys):
    out = tmp_path / "run"
    assert commands.main(["import", str(folder), "--out", str(out)]) == 0
    assert str(out) in capsys.readouterr().out
    assert commands.main(["import", str(folder), "--out", str(out)]) == 2
    assert str(out) in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert commands.main(["import", str(tmp_path / "empty"), "--out", str(tmp_path / "no")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "run"]
