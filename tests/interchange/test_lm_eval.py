"""The adapter for lm-evaluation-harness, against the oracle in float64 and against plain loops."""

import dataclasses
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import esnlm
from esnlm.errors import InputError
from tests import oracle
from tests.interchange.small_run import small_run

lm_eval = pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness: pip install -e '.[lm-eval]'")
TOLERANCE = 300 * float(
    np.finfo(np.float32).eps
)  # as in tests/evaluation/test_scoring.py, for sums of log-probabilities


@pytest.fixture(scope="module")
def run():
    return esnlm.load(small_run())


@pytest.fixture(scope="module")
def adapter(run):
    from esnlm.interchange.lm_eval import EsnLM

    return EsnLM(run)


def requests(*arguments):
    return [SimpleNamespace(args=each) for each in arguments]


def expected(run, ids):
    """Log-probabilities (T - 1, V) after each of ids but the last, from the equations in float64."""
    reservoir = run.model.reservoir
    dense = reservoir.w_rec.todense(), reservoir.w_in.todense()
    states = oracle.states(*dense, reservoir.leak, ids[:-1])
    return oracle.log_softmax(oracle.logits(run.model.params["readout"], states))


def answer(run, ids, scored):
    """log p of the last `scored` of ids, and whether each of them is the likeliest token."""
    log_probs = expected(run, ids)[-scored:]
    tail = np.array(ids[-scored:])
    return log_probs[np.arange(scored), tail].sum(), bool((log_probs.argmax(axis=1) == tail).all())


def test_log_likelihoods_are_those_of_the_continuation_given_its_context(run, adapter):
    tokenizer = run.tokenizer
    texts = [("", " the cats sleep ."), ("the cats", " sleep ."), ("the cats ", "sleep ."), ("xyz", " q"), ("", " the")]
    ids = [[tokenizer.bos, *tokenizer.encode(" the cats sleep .")]]
    ids += [
        tokenizer.encode(context.rstrip() + rest)
        for context, rest in zip(["the cats"] * 2, [" sleep ."] * 2, strict=True)
    ]
    ids += [tokenizer.encode("xyz q"), [tokenizer.bos, *tokenizer.encode(" the")]]
    scored = [len(ids[0]) - 1] + [len(ids[1]) - len(tokenizer.encode("the cats"))] * 2
    scored += [len(ids[3]) - len(tokenizer.encode("xyz")), len(ids[4]) - 1]
    found = adapter.loglikelihood(requests(*texts))
    for (log_prob, is_greedy), sequence, count in zip(found, ids, scored, strict=True):
        total, greedy = answer(run, sequence, count)
        np.testing.assert_allclose(log_prob, total, rtol=TOLERANCE)
        assert is_greedy is greedy


def test_what_greedy_decoding_gives_is_greedy_and_nothing_else(run, adapter):
    bos = [run.tokenizer.bos]
    likeliest = int(expected(run, [*bos, 0])[0].argmax())
    pairs = [(([""] * 2), bos, [token]) for token in (likeliest, (likeliest + 1) % run.tokenizer.vocab_size)]
    assert [greedy for _, greedy in adapter._loglikelihood_tokens(pairs)] == [True, False]
    assert adapter._loglikelihood_tokens([(("a", ""), bos, [])]) == [(0.0, True)], "nothing to score"


def test_a_context_that_is_too_long_loses_its_beginning(run):
    from esnlm.interchange.lm_eval import EsnLM

    short = EsnLM(run, max_length=3)
    context, continuation = [5, 6, 7, 8, 9], [10, 11]
    ((found, _),) = short._loglikelihood_tokens([(("", ""), context, continuation)])
    np.testing.assert_allclose(found, answer(run, [8, 9, 10, 11], 2)[0], rtol=TOLERANCE)
    with pytest.raises(InputError, match="a continuation has 4 tokens, and this model reads at most 3"):
        short._loglikelihood_tokens([(("", "long"), [1], [2, 3, 4, 5])])
    with pytest.raises(InputError, match="max_length is 0: it must be at least 1"):
        EsnLM(run, max_length=0)


def test_a_rolling_likelihood_scores_each_token_once(run, adapter):
    from esnlm.interchange.lm_eval import EsnLM

    text = "the cats sleep . the dogs see the cats ."
    ids = [run.tokenizer.bos, *run.tokenizer.encode(text)]
    found = adapter.loglikelihood_rolling(requests((text,), ("",)))
    np.testing.assert_allclose(found, [answer(run, ids, len(ids) - 1)[0], 0], rtol=TOLERANCE)

    (windowed,) = EsnLM(run, max_length=4).loglikelihood_rolling(requests((text,)))
    total = 0.0  # windows of four predictions; each reads its tokens and the one before them
    for first in range(1, len(ids), 4):
        part = ids[first - 1 : first + 4] if first + 4 <= len(ids) else ids[-5:]
        total += answer(run, part, len(ids[first : first + 4]))[0]
    np.testing.assert_allclose(windowed, total, rtol=TOLERANCE)


def test_generation_is_greedy_and_ends_where_the_task_says(run, adapter):
    contexts = ["the cats", "the", ""]
    whole = adapter.generate_until(requests(*((context, {"until": [], "max_gen_toks": 6}) for context in contexts)))
    for context, text in zip(contexts, whole, strict=True):
        ids, chosen = run.tokenizer.encode(context) or [run.tokenizer.bos], []
        while len(chosen) < 6 and (token := int(expected(run, [*ids, 0])[-1].argmax())) != run.tokenizer.eos:
            ids.append(token)
            chosen.append(token)
        assert text == run.tokenizer.decode(chosen)
    stop = whole[0][2:4]
    (cut,) = adapter.generate_until(requests((contexts[0], {"until": [stop], "max_gen_toks": 6})))
    assert cut == whole[0][: whole[0].index(stop)]


def test_sampling_depends_on_seed_and_temperature(run):
    from esnlm.interchange.lm_eval import EsnLM

    ask = requests(*[("the", {"do_sample": True, "temperature": 2.0, "max_gen_toks": 8, "until": ["\n"]})] * 4)
    first, again, other = (EsnLM(run, seed=seed).generate_until(ask) for seed in (0, 0, 1))
    assert first == again != other and len(set(first)) > 1
    with pytest.raises(InputError, match="a task samples with top_p: a run knows do_sample, temperature, top_k only"):
        EsnLM(run).generate_until(requests(("the", {"do_sample": True, "temperature": 1.0, "top_p": 0.9})))


def test_sampling_without_a_temperature_is_refused(run):
    from esnlm.interchange.lm_eval import EsnLM

    with pytest.raises(InputError, match="a task samples without a temperature: a run needs one above 0 for it"):
        EsnLM(run).generate_until(requests(("the", {"do_sample": True, "until": ["."]})))


def test_a_request_that_samples_has_the_choices_of_its_number(run, monkeypatch):
    """Repeats of one context are samples of their own, however few are generated side by side."""
    from esnlm.interchange import lm_eval as adapter_module

    settings = {"do_sample": True, "temperature": 2.0, "max_gen_toks": 8, "until": []}
    ask = requests(*[("the", settings)] * 6)
    together = adapter_module.EsnLM(run).generate_until(ask)
    monkeypatch.setattr(adapter_module, "SLOTS", 2)
    assert adapter_module.EsnLM(run).generate_until(ask) == together
    assert len(set(together)) == 6


@pytest.mark.parametrize(
    "asked, unknown",
    [
        ({"num_beams": 10}, "num_beams"),
        ({"repetition_penalty": 1.3, "no_repeat_ngram_size": 2}, "no_repeat_ngram_size, repetition_penalty"),
        ({"do_sample": False, "bad_words_ids": [[1]], "top_p": 0.9}, "bad_words_ids"),
    ],
)
def test_a_greedy_task_that_would_choose_other_tokens_is_refused(adapter, asked, unknown):
    with pytest.raises(InputError) as caught:
        adapter.generation_settings({"until": ["."], **asked})
    assert str(caught.value) == f"a task generates with {unknown}: a run knows do_sample, temperature, top_k only"


def test_settings_without_effect_are_taken(adapter):
    greedy = {"do_sample": False, "temperature": 0.7, "top_k": 50, "top_p": 0.9, "num_beams": 1, "min_length": None}
    assert adapter.generation_settings({"until": ["."], "max_new_tokens": 7, **greedy})["max_gen_toks"] == 7
    sampled = {"do_sample": True, "temperature": 0.7, "top_p": 1.0, "num_beams": 1, "length_penalty": 0.5}
    assert adapter.generation_settings({"until": ["."], **sampled})["temperature"] == 0.7


def test_a_short_model_generates_as_much_as_it_can_read(run):
    from esnlm.interchange.lm_eval import EsnLM

    short = EsnLM(run, max_length=6)
    assert short.generation_settings({"until": ["."]})["max_gen_toks"] == 5
    with pytest.raises(InputError, match="max_gen_toks is 9: it must be below the 6 tokens that this model reads"):
        short.generation_settings({"until": ["."], "max_gen_toks": 9})


def test_a_context_of_white_space_is_an_empty_one(run, adapter):
    """The harness gives it no tokens; without BOS the first token of the answer would be free."""
    expected = adapter.loglikelihood(requests(("", "the cats")))
    assert adapter._loglikelihood_tokens([((" ", "the cats"), [], run.tokenizer.encode("the cats"))]) == expected


def test_a_run_that_has_diverged_has_no_scores(run):
    """The largest of many NaN is the first, which in BLiMP is the right one."""
    from esnlm.interchange.lm_eval import EsnLM

    model = run.model.with_params(jax.tree.map(lambda array: array * np.nan, run.model.params))
    diverged = EsnLM(dataclasses.replace(run, model=model))
    for ask in (
        lambda: diverged.loglikelihood(requests(("the", " cats"), ("the", " dogs"))),
        lambda: diverged.loglikelihood_rolling(requests(("the cats",))),
    ):
        with pytest.raises(InputError, match="texts have a log-probability that is not a number at step"):
            ask()


def test_a_loaded_run_has_its_step(run):
    from esnlm.interchange.lm_eval import EsnLM

    for options in ({"step": 2}, {"untrained": True}):
        with pytest.raises(InputError, match="step and untrained choose what is loaded"):
            EsnLM(run, **options)


def test_the_name_is_known_once_the_module_is_imported(run):
    from lm_eval.api.registry import get_model

    import esnlm.interchange.lm_eval  # noqa: F401

    made = get_model("esnlm").create_from_arg_string(
        f"run={run.directory},step={run.step},add_bos_token=True", {"batch_size": 8}
    )
    assert made.tok_encode("the") == [run.tokenizer.bos, *run.tokenizer.encode("the")]
    assert made.tok_encode("the", add_special_tokens=False) == run.tokenizer.encode("the")
    assert made.get_model_info()["step"] == run.step


def test_neither_torch_nor_transformers_is_imported(tmp_path):
    (tmp_path / "adjunct_island.jsonl").write_text(
        '{"sentence_good": "the cats sleep .", "sentence_bad": "the sleep ."}\n'
    )
    program = f"""
import sys
from esnlm.workflows.lm_eval import evaluate_with_lm_eval
evaluate_with_lm_eval({str(small_run())!r}, ["blimp_adjunct_island"], [{str(tmp_path)!r}], out={str(tmp_path / "out.json")!r})
assert not {{"torch", "transformers"}} & sys.modules.keys()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "blimp_adjunct_island" in done.stdout


@pytest.mark.parametrize("by_name", [False, True])
def test_the_harness_evaluates_a_run(run, adapter, by_name):
    from lm_eval.tasks import TaskManager

    def documents(**_):
        import datasets

        rows = [{"question": "the cats", "answer": word} for word in ("sleep", "sleeps")]
        return {"test": datasets.Dataset.from_list(rows)}

    shared = {"custom_dataset": documents, "test_split": "test", "doc_to_text": "question", "doc_to_target": "answer"}
    tasks = [
        {"task": "scored", "output_type": "loglikelihood", **shared},
        {"task": "generated", "output_type": "generate_until", "generation_kwargs": {"until": ["."]}, **shared},
    ]
    model = (
        {"model": "esnlm", "model_args": {"run": str(run.directory), "max_gen_toks": 5}}
        if by_name
        else {"model": adapter}
    )
    manager = TaskManager(include_defaults=False)
    found = lm_eval.simple_evaluate(**model, tasks=tasks, task_manager=manager, bootstrap_iters=0)
    expected = adapter.loglikelihood(requests(("the cats", "sleep"), ("the cats", "sleeps")))
    answers = [sample["filtered_resps"][0] for sample in found["samples"]["scored"]]
    assert [tuple(answer) for answer in answers] == expected
    assert found["results"]["scored"]["acc,none"] == np.mean([greedy for _, greedy in expected])
    assert "exact_match,none" in found["results"]["generated"]
    assert found["config"]["step"] == run.step


def test_tasks_that_begin_as_those_of_blimp_are_found(monkeypatch):
    from esnlm.interchange import lm_eval_tasks

    monkeypatch.setattr(
        "lm_eval.tasks.TaskManager.load", lambda self, specs: {name: name in self.task_index for name in specs}
    )
    name = "blimp_nl__auxiliaries__perfect"
    assert lm_eval_tasks.load_tasks([name], None) == {name: True}


def test_data_that_cannot_be_fetched_is_one_line(monkeypatch):
    from esnlm.interchange import lm_eval_tasks

    def refuse(*_):
        raise ConnectionError("Couldn't reach 'nyu-mll/blimp' on the Hub")

    monkeypatch.setattr("lm_eval.tasks.TaskManager.load", refuse)
    with pytest.raises(InputError) as caught:
        lm_eval_tasks.load_tasks(["blimp_passive_1"], None)
    assert str(caught.value) == (
        "tasks blimp_passive_1: the harness cannot fetch their data: Couldn't reach 'nyu-mll/blimp' on the Hub"
    )
