"""The adapter for lm-evaluation-harness, against the oracle in float64 and against plain loops."""

import dataclasses
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import esnlm
from esnlm import commands
from esnlm.base.errors import InputError
from tests.evaluation.small_run import TOLERANCE, log_distributions
from tests.interchange.small_runs import small_run

lm_eval = pytest.importorskip(
    "lm_eval", reason="needs lm-evaluation-harness: pip install -e '.[lm-eval]'"
)
adapter_module = pytest.importorskip("esnlm.interchange.lm_eval")
EsnLM = adapter_module.EsnLM


@pytest.fixture(scope="module")
def run():
    return esnlm.load(small_run())


@pytest.fixture(scope="module")
def adapter(run):
    return EsnLM(run)


def requests(*arguments):
    return [SimpleNamespace(args=each) for each in arguments]


def answer(run, ids, scored):
    """log p of the last `scored` of ids, and whether each of them is the likeliest token."""
    log_probs = log_distributions(run, ids)[-scored:]
    tail = np.array(ids[-scored:])
    return log_probs[np.arange(scored), tail].sum(), bool((log_probs.argmax(axis=1) == tail).all())


def test_log_likelihoods_are_those_of_the_continuation_given_its_context(run, adapter):
    tokenizer = run.tokenizer
    texts = [
        ("", " the cats sleep ."),
        ("the cats", " sleep ."),
        ("the cats ", "sleep ."),
        ("xyz", " q"),
        ("", " the"),
    ]
    ids = [[tokenizer.bos, *tokenizer.encode(" the cats sleep .")]]
    ids += [tokenizer.encode("the cats sleep .")] * 2
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
    likeliest = int(log_distributions(run, [*bos, 0])[0].argmax())
    pairs = [
        (([""] * 2), bos, [token])
        for token in (likeliest, (likeliest + 1) % run.tokenizer.vocab_size)
    ]
    assert [greedy for _, greedy in adapter._loglikelihood_tokens(pairs)] == [True, False]
    assert adapter._loglikelihood_tokens([(("a", ""), bos, [])]) == [(0.0, True)], (
        "nothing to score"
    )


def test_a_context_that_is_too_long_loses_its_beginning(run):
    short = EsnLM(run, max_length=3)
    context, continuation = [5, 6, 7, 8, 9], [10, 11]
    ((found, _),) = short._loglikelihood_tokens([(("", ""), context, continuation)])
    np.testing.assert_allclose(found, answer(run, [8, 9, 10, 11], 2)[0], rtol=TOLERANCE)
    with pytest.raises(InputError, match="4 tokens"):
        short._loglikelihood_tokens([(("", "long"), [1], [2, 3, 4, 5])])
    assert short.generation_settings({"until": ["."]})["max_gen_toks"] == 2


def test_a_rolling_likelihood_scores_each_token_once(run, adapter):
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
    whole = adapter.generate_until(
        requests(*((context, {"until": [], "max_gen_toks": 6}) for context in contexts))
    )
    for context, text in zip(contexts, whole, strict=True):
        ids, chosen = run.tokenizer.encode(context) or [run.tokenizer.bos], []
        while (
            len(chosen) < 6
            and (token := int(log_distributions(run, [*ids, 0])[-1].argmax())) != run.tokenizer.eos
        ):
            ids.append(token)
            chosen.append(token)
        assert text == run.tokenizer.decode(chosen)
    stop = whole[0][2:4]
    (cut,) = adapter.generate_until(requests((contexts[0], {"until": [stop], "max_gen_toks": 6})))
    assert cut == whole[0][: whole[0].index(stop)]


def test_a_request_that_samples_has_the_choices_of_its_number(run):
    """Repeats of one context are samples of their own, however few are generated side by side."""
    settings = {"do_sample": True, "temperature": 2.0, "max_gen_toks": 8, "until": []}
    ask = requests(*[("the", settings)] * 6)
    together = EsnLM(run).generate_until(ask)
    assert len(set(together)) == 6 and EsnLM(run, seed=1).generate_until(ask) != together
    assert EsnLM(run).generate_until(ask[:2]) == together[:2]


@pytest.mark.parametrize(
    "asked, named",
    [
        ({"num_beams": 10}, "num_beams"),
        ({"do_sample": True, "temperature": 1.0, "top_p": 0.9}, "top_p"),
        ({"do_sample": True}, "temperature"),
    ],
)
def test_a_task_that_would_choose_other_tokens_is_refused(adapter, asked, named):
    with pytest.raises(InputError, match=named):
        adapter.generate_until(requests(("the", {"until": ["."], **asked})))
    greedy = {
        "do_sample": False,
        "temperature": 0.7,
        "top_p": 0.9,
        "num_beams": 1,
        "max_new_tokens": 7,
    }
    assert adapter.generation_settings({"until": ["."], **greedy})["max_gen_toks"] == 7


def test_a_context_of_white_space_is_an_empty_one(run, adapter):
    """The harness gives it no tokens; without BOS the first token of the answer would be free."""
    expected = adapter.loglikelihood(requests(("", "the cats")))
    assert (
        adapter._loglikelihood_tokens([((" ", "the cats"), [], run.tokenizer.encode("the cats"))])
        == expected
    )


def test_a_run_that_has_diverged_has_no_scores(run):
    """The largest of many NaN is the first, which in BLiMP is the right one."""
    model = run.model.with_params(jax.tree.map(lambda array: array * np.nan, run.model.params))
    diverged = EsnLM(dataclasses.replace(run, model=model))
    with pytest.raises(InputError, match="not a number"):
        diverged.loglikelihood(requests(("the", " cats"), ("the", " dogs")))


# ---- the harness itself ----

TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{validation: {data}}}}}
validation_split: validation
"""
CHOICE = (
    'output_type: multiple_choice\ndoc_to_text: ""\ndoc_to_target: 0\nmetric_list: [{metric:'
    " acc}]\n"
)
CHOICE += 'doc_to_choice: "{{[sentence_good, sentence_bad]}}"\n'
SCORED = (
    "output_type: loglikelihood\ndoc_to_text: question\ndoc_to_target: answer\nmetric_list:"
    " [{metric: acc}]\n"
)
GENERATED = "output_type: generate_until\ndoc_to_text: question\ndoc_to_target: answer\n"
GENERATED += "generation_kwargs: {until: [.], max_gen_toks: 5}\n"


@pytest.fixture
def own_tasks(tmp_path, monkeypatch):
    """A folder for tasks. The harness's own are left out: their files are thousands, and take many
    seconds to read."""
    from lm_eval import tasks

    manager = tasks.TaskManager
    monkeypatch.setattr(
        tasks, "TaskManager", lambda **options: manager(include_defaults=False, **options)
    )
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "tasks"
    folder.mkdir()

    def write(name, kind, rows):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / f"{name}.yaml").write_text(
            TASK.format(name=name, data=tmp_path / f"{name}.jsonl") + kind
        )

    return write


def lm_eval_of(*words):
    return commands.main(["lm-eval", *words, "--include_path", "tasks"])


def samples_of(task):
    (file,) = Path("out").glob(f"*/samples_{task}_*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_minimal_pairs_have_the_answers_of_esnlm(run, own_tasks):
    rng, words = np.random.default_rng(0), ["the", "cats", "sleep", "dogs", "see", "."]
    pairs = [[" ".join(rng.choice(words, rng.integers(2, 7))) for _ in range(2)] for _ in range(40)]
    pairs.append([pairs[0][0]] * 2)
    own_tasks(
        "pairs", CHOICE, [{"sentence_good": good, "sentence_bad": bad} for good, bad in pairs]
    )
    arguments = [
        "--model_args",
        f"run={run.directory}",
        "--tasks",
        "pairs",
        "--output_path",
        "out",
        "--log_samples",
    ]
    assert lm_eval_of(*arguments) == 0
    samples = {sample["doc_id"]: sample for sample in samples_of("pairs")}
    good, bad = (run.log_probs([pair[i] for pair in pairs], "lm-eval") for i in (0, 1))
    assert len(samples) == len(pairs)
    for i, sample in samples.items():
        # Two programs were compiled for the same numbers, each to float32's precision.
        found = [float(answer[0]) for answer in sample["filtered_resps"]]
        np.testing.assert_allclose(found, [good[i], bad[i]], rtol=1e-6)
        assert sample["acc"] == float(good[i] >= bad[i])


@pytest.mark.nightly
def test_chats_few_shots_and_generation_work(run, adapter, own_tasks, capsys):
    """Of several tasks at once, with nothing to write to, and of a run whose name has the harness's
    own sign in it."""
    rows = [{"question": "the cats", "answer": answer} for answer in ("sleep", "see")]
    own_tasks("scored", SCORED + "fewshot_split: validation\n", rows)
    own_tasks("generated", GENERATED, rows)
    shutil.copytree(run.directory, "rank=6")
    asked = [
        "--model_args",
        f"run=rank=6,step={run.step},add_bos_token=True",
        "--tasks",
        "scored,generated",
    ]
    assert lm_eval_of(*asked) == 0
    assert "|scored" in capsys.readouterr().out and not Path("out").exists()
    asked += [
        "--output_path",
        "out",
        "--log_samples",
        "--num_fewshot",
        "1",
        "--apply_chat_template",
    ]
    assert lm_eval_of("run", *asked) == 0
    sample = samples_of("scored")[0]
    context, answer = (
        sample["arguments"]["gen_args_0"]["arg_0"],
        sample["arguments"]["gen_args_0"]["arg_1"],
    )
    assert context.startswith("User:\nthe cats\n\nAssistant:\n") and context.endswith(
        "User:\nthe cats\n\nAssistant:\n"
    )
    ids = run.tokenizer.encode(context.rstrip())
    whole = [run.tokenizer.bos, *run.tokenizer.encode(context + answer)]
    ((log_prob, _),) = adapter._loglikelihood_tokens(
        [(("", ""), whole[: len(ids) + 1], whole[len(ids) + 1 :])]
    )
    np.testing.assert_allclose(float(sample["filtered_resps"][0][0]), log_prob, rtol=1e-6)
    (results,) = Path("out").glob("*/results_*.json")
    found = json.loads(results.read_text())
    assert found["config"]["step"] == run.step and found["n-shot"]["scored"] == 1
    assert "exact_match,none" in found["results"]["generated"]
