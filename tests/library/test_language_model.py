"""A language model in the hand is the run that a training makes, and is saved as one."""

import gc

import numpy as np
import pytest

import esnlm
from esnlm import config_io
from esnlm.data import grammar
from esnlm.errors import InputError
from esnlm.regression.ridge import Ridge
from esnlm.reservoir import functions
from esnlm.workflows.train import train_run
from tests import oracle

SENTENCES = list(grammar.sentences(300, seed=0))
OTHERS = list(grammar.sentences(40, seed=1))


@pytest.fixture(scope="module")
def tokenizer():
    return esnlm.tokenizer("words", SENTENCES + OTHERS)


@pytest.fixture(scope="module")
def reservoir(tokenizer):
    return esnlm.Reservoir.draw(40, vocabulary=tokenizer, mean_degree=4, leak=(0.3, 1), seed=1)


@pytest.fixture(scope="module")
def ridge(reservoir, tokenizer):
    return esnlm.LanguageModel(reservoir, tokenizer, "ridge", regularizations=(1e-6, 1e-3)).fit(SENTENCES)


def test_a_fitted_model_scores_as_its_equations_say(reservoir, tokenizer, ridge):
    readout = ridge.run.model.params["readout"]
    w_in, w_rec = (m if isinstance(m, np.ndarray) else m.toarray() for m in (reservoir.w_in, reservoir.w_rec))
    ids = [np.array([tokenizer.bos, *tokenizer.encode(text), tokenizer.eos]) for text in OTHERS]
    expected = [oracle.token_log_probs(w_rec, w_in, reservoir.leak, readout, each) for each in ids]
    np.testing.assert_allclose(ridge.log_probs(OTHERS), [each.sum() for each in expected], rtol=1e-4)
    assert ridge.score(OTHERS) == pytest.approx(np.concatenate(expected).mean(), rel=1e-4)
    assert -np.log(tokenizer.vocab_size) + 1 < ridge.score(OTHERS) < 0
    h = oracle.states(w_rec, w_in, reservoir.leak, ids[0][:3])
    assert ridge.predict([tokenizer.decode(ids[0][1:3])]) == oracle.logits(readout, h)[-1].argmax()
    pairs = list(zip(OTHERS[:20], OTHERS[20:], strict=True))
    log_p = ridge.log_probs(OTHERS)
    np.testing.assert_array_equal(ridge.prefers(pairs), log_p[:20] > log_p[20:])


@pytest.mark.slow
def test_it_has_the_bits_of_a_training_of_the_same_settings(tmp_path, tokenizer, reservoir):
    """The reservoir that is drawn by hand with the run's seed is the one that the run draws."""
    esnlm.prepare(SENTENCES, tmp_path / "store", tokenizer=tokenizer)
    training = {"epochs": 2, "learning_rate": 0.02, "log_every": 3}
    tree = {"run": str(tmp_path / "run"), "seed": 1, "data": {"kind": "store", "train": str(tmp_path / "store")}}
    settings = {"state_size": 40, "mean_degree": 4, "leak_min": 0.3}
    tree |= {"model": {"reservoir": settings, "readout": {"rank": 8}}, "training": training}
    assert train_run(config_io.from_dict(tree)) == 0
    seen = []
    model = esnlm.LanguageModel(reservoir, tokenizer, "adamw", rank=8, seed=1, **training)
    model.fit(SENTENCES, callbacks=[lambda step, metrics: seen.append((step, metrics["train_nll"]))])
    trained, own = esnlm.load(tmp_path / "run").arrays(), model.run.arrays()
    assert trained.keys() == own.keys()
    for name, array in trained.items():
        np.testing.assert_array_equal(own[name], array)
    assert [step for step, _ in seen] == [3, 6, 9, 10, 12, 15, 18, 20]  # and at the end of the epoch


def test_a_saved_model_is_a_run(tmp_path, ridge):
    saved = ridge.save(tmp_path / "runs" / "mine")
    loaded = esnlm.load(tmp_path / "runs" / "mine")
    np.testing.assert_array_equal(loaded.log_probs(OTHERS), ridge.log_probs(OTHERS))
    assert loaded.config.run == str(tmp_path / "runs" / "mine") and saved.step == loaded.step
    assert loaded.unigram() is not None and loaded.bigram() is not None
    again = esnlm.Reservoir.of(loaded)
    np.testing.assert_array_equal(again.leak, ridge.reservoir.leak)
    with pytest.raises(InputError) as error:
        ridge.save(tmp_path / "runs" / "mine")
    assert str(error.value) == f"{tmp_path / 'runs' / 'mine'}: exists; name another folder"
    assert esnlm.train(loaded.config).step == loaded.step  # it is finished, and nothing is left to do


def test_the_run_of_a_model_that_is_gone_has_its_folder(tokenizer, reservoir):
    run = esnlm.LanguageModel(reservoir, tokenizer, "ridge", regularizations=(1e-4,)).fit(SENTENCES[:40]).run
    gc.collect()
    folder = run.directory
    assert run.unigram() is not None and run.training_store() is not None
    del run
    gc.collect()
    assert not folder.exists()


@pytest.mark.slow
def test_a_reservoir_of_ones_own_is_saved_with_its_matrices(tmp_path, tokenizer, reservoir):
    own = reservoir.replace(w_rec=np.eye(40, k=-1), activation=lambda x: x / (1 + abs(x)))
    model = esnlm.LanguageModel(own, tokenizer, Ridge(regularizations=(1e-4,))).fit(SENTENCES)
    with pytest.raises(
        InputError, match=r"^activation is a function that is not registered, <lambda \d+>: it cannot be saved"
    ):
        model.save(tmp_path / "refused")
    assert not (tmp_path / "refused").exists()

    named = own.replace(activation=esnlm.activation(soft_own))
    model = esnlm.LanguageModel(named, tokenizer, "ridge", regularizations=(1e-4,)).fit(SENTENCES)
    model.save(tmp_path / "kept")
    loaded = esnlm.load(tmp_path / "kept")
    np.testing.assert_array_equal(loaded.log_probs(OTHERS), model.log_probs(OTHERS))
    np.testing.assert_array_equal(np.asarray(loaded.model.reservoir.w_rec.todense()), np.eye(40, k=-1))
    assert loaded.config.model.reservoir.topology.kind == "given"
    del functions.ACTIVATIONS["soft_own"]
    with pytest.raises(InputError, match="^model.reservoir.activation is soft_own: it must be tanh or relu"):
        esnlm.load(tmp_path / "kept")


def soft_own(x):
    return x / (1 + abs(x))


def test_what_cannot_be_is_refused_in_one_line(tokenizer, reservoir):
    def refused(act):
        with pytest.raises(InputError) as error:
            act()
        return str(error.value)

    new = esnlm.LanguageModel
    size = tokenizer.vocab_size
    assert refused(lambda: new(reservoir, tokenizer).log_probs(OTHERS)) == "this model is not fitted yet: call fit"
    small = esnlm.Reservoir.draw(8, vocabulary=5, mean_degree=2)
    line = f"the reservoir reads 5 token ids, and the tokenizer has {size}; draw it with vocabulary=tokenizer"
    assert refused(lambda: new(small, tokenizer)) == line
    line = "tokenizer is 'words': give one that was made, such as esnlm.tokenizer('words', sentences)"
    assert refused(lambda: new(reservoir, "words")) == line
    numbers = esnlm.Reservoir.draw(8, inputs=5, mean_degree=2)
    assert refused(lambda: new(numbers, tokenizer)) == "this reservoir reads numbers: draw one with vocabulary=..."
    assert refused(lambda: new(reservoir, tokenizer, Ridge(), rank=3, regularizations=(1,))).startswith(
        "regularizations: "
    )
    assert refused(lambda: new(reservoir, tokenizer, "rls", rank=3)).startswith(
        "model.readout.rank is 3: training.kind rls"
    )
    assert refused(lambda: new(reservoir, tokenizer).fit([])) == "there are no sentences: give at least one"
    line = "reservoir is 'mine': give one that was made, such as esnlm.Reservoir.draw(512, vocabulary=tokenizer)"
    assert refused(lambda: new("mine", tokenizer)) == line
    for readout in (esnlm.Readout("ridge"), None):
        line = f"readout is {readout}: name its rule, adamw, ridge, rls or lms, with the settings after it, such as"
        assert refused(lambda: new(reservoir, tokenizer, readout)).startswith(line)  # noqa: B023
    line = "compute is {'precision': 'float32'}: give an esnlm.compute.ComputeConfig, such as"
    assert refused(lambda: new(reservoir, tokenizer, compute={"precision": "float32"})).startswith(line)
    assert refused(lambda: new(reservoir, tokenizer).fit(None)) == "sentences is None: give a list of texts"


def test_one_text_is_no_list_of_texts(ridge):
    for call in (ridge.score, ridge.predict):
        with pytest.raises(InputError, match=r"^sentences is one text: give a list of texts$"):
            call("The cats sleep .")
    for call in (ridge.score, ridge.predict, ridge.log_probs, ridge.run.token_log_probs):
        with pytest.raises(InputError, match="^sentences is None: give a list of texts$"):
            call(None)
    with pytest.raises(InputError, match="^there are no pairs: give at least one$"):
        ridge.prefers([])
    with pytest.raises(InputError, match=r"^pairs is None: give \[\(good, bad\), \.\.\.\]$"):
        ridge.prefers(None)
    for pairs in (["ab", "cd"], [("a", "b", "c")], [None]):
        with pytest.raises(InputError, match=r" is no pair of texts: give \[\(good, bad\), \.\.\.\]$"):
            ridge.prefers(pairs)


def test_callbacks_print_and_are_functions(reservoir, tokenizer, capsys):
    model = esnlm.LanguageModel(reservoir, tokenizer, "adamw", batch_size=8, log_every=1)
    model.fit(SENTENCES, callbacks=[lambda step, metrics: print("step", step)])
    assert capsys.readouterr().out.startswith("step 1\n")
    for callbacks in (print, ["print"], "print"):
        with pytest.raises(
            InputError, match=r"^callbacks is .*: give a list of functions of the step and the metrics$"
        ):
            model.fit(SENTENCES, callbacks=callbacks)


def test_an_interrupted_fit_says_that_nothing_is_kept(reservoir, tokenizer):
    def stop(step, metrics):
        raise KeyboardInterrupt

    model = esnlm.LanguageModel(reservoir, tokenizer, "adamw", batch_size=8, log_every=1)
    with pytest.raises(KeyboardInterrupt, match="^stopped, and nothing is kept; esnlm.train has a run directory"):
        model.fit(SENTENCES, callbacks=[stop])


def test_a_url_is_no_folder(ridge, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for call in (
        lambda: ridge.save("s3://bucket/runs/mine"),
        lambda: esnlm.prepare(["The cats sleep ."], "s3://bucket/stores/x", tokenizer="words"),
        lambda: esnlm.train({"run": "s3://bucket/runs/mine"}, sentences=["The cats sleep ."]),
    ):
        with pytest.raises(InputError, match="^s3://bucket/.*: give a folder of this machine, and copy it there"):
            call()
    assert not list(tmp_path.iterdir())
