"""A GPT-2 in Hugging Face's format becomes a run that scores and generates."""

import json
import subprocess
import sys

import numpy as np
import pytest

import esnlm
from esnlm.errors import InputError
from esnlm.workflows.import_gpt2 import import_gpt2

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

MERGES = ["t h", "th e", "Ġ a", "Ġ the"]


def byte_symbols():
    """GPT-2's printable symbol of each byte, in the order of its vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(rest))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small GPT-2 with random weights, as transformers saves it, and a tokenizer of bytes and four merges."""
    path = tmp_path_factory.mktemp("hf") / "tiny"
    tokens = [*byte_symbols(), *(merge.replace(" ", "") for merge in MERGES), "<|endoftext|>"]
    config = transformers.GPT2Config(
        vocab_size=len(tokens),
        n_positions=64,
        n_embd=24,
        n_layer=2,
        n_head=3,
        initializer_range=0.2,
        bos_token_id=len(tokens) - 1,
        eos_token_id=len(tokens) - 1,
    )
    torch.manual_seed(0)
    transformers.GPT2LMHeadModel(config).save_pretrained(path, safe_serialization=True)
    (path / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}), encoding="utf-8")
    (path / "merges.txt").write_text("\n".join(["#version: 0.2", *MERGES, ""]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "tiny"
    import_gpt2(folder, out)
    return esnlm.load(out)


def test_sentence_log_probs_are_those_of_transformers(folder, run):
    sentences = ["the cat sat", "a the the", "", "x"]
    model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    for sentence, found in zip(sentences, run.log_probs(sentences), strict=True):
        ids = torch.tensor([[run.tokenizer.bos, *run.tokenizer.encode(sentence), run.tokenizer.eos]])
        with torch.no_grad():
            log_probs = model(ids).logits.double().log_softmax(-1)
        expected = log_probs[0, :-1].gather(1, ids[0, 1:, None]).sum()
        assert found == pytest.approx(float(expected), abs=1e-3)


def test_it_generates_what_transformers_does_greedily(folder, run):
    (text,) = run.generate("the cat", temperature=0, length=20)
    model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    ids = [run.tokenizer.bos, *run.tokenizer.encode("the cat")]
    prompt = len(ids)
    for _ in range(20):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    expected = ids[prompt:]
    expected = expected[: expected.index(run.tokenizer.eos)] if run.tokenizer.eos in expected else expected
    assert text == run.tokenizer.decode(np.array(expected))


def test_what_cannot_be_done_with_it_is_said(run, folder):
    assert run.unigram() is None
    with pytest.raises(InputError, match="this model reads at most 64"):
        run.log_probs(["the " * 100])
    with pytest.raises(InputError, match="the prompt has 102 tokens and 50 are asked for: this model reads at most 64"):
        run.generate("the " * 100)
    with pytest.raises(
        InputError, match="^count 0, length 50, temperature 1.0, top_k None: count, length and top_k must be at least 1"
    ):
        run.generate(count=0)
    with pytest.raises(InputError, match="exists; name another run directory with --out"):
        import_gpt2(folder, run.directory)


def test_the_command_imports_and_refuses_in_one_line(folder, tmp_path):
    def command(*arguments):
        done = subprocess.run([sys.executable, "-m", "esnlm", *map(str, arguments)], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    assert command("import", folder, "--out", tmp_path / "run") == (0, f"GPT-2 2 x 24 is in {tmp_path / 'run'}\n", "")
    code, out, _ = command("generate", "--run", tmp_path / "run", "--prompt", "the", "--length", 5, "--temperature", 0)
    assert code == 0 and out.startswith("the")
    (tmp_path / "empty").mkdir()
    code, out, error = command("import", tmp_path / "empty", "--out", tmp_path / "no")
    assert (code, out) == (2, "") and error.startswith("error: ") and error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "run"]
