"""The benchmarks at tiny sizes: that they run, that the contenders compute the same, that the bookkeeping is right.

Nothing here looks at a time.
"""

import json
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import families
import generation
import measure
import prepare_memory
import readout_rows
import recurrence
import scoring
import sentences
import start_up
import training
import untrained

import esnlm
from esnlm.errors import InputError
from esnlm.models.base import READOUT_ARRAYS
from esnlm.parallel.placement import Placement

TINY = ["--square", "32", "--copy-megabytes", "1", "--rounds", "1"]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(measure, "SHORTEST", 1e-9)
    monkeypatch.setattr(measure, "SETTLE", 0)
    monkeypatch.setattr(measure, "cores", lambda: 1)  # torch's threads spin while others wait for their core


def test_what_cannot_be_read_is_said_in_one_line(tmp_path, capfd):
    with pytest.raises(SystemExit, match="2"):
        measure.as_command(lambda: training.main([*TINY, "--store", str(tmp_path / "nowhere"), "--out", str(tmp_path)]))
    said = capfd.readouterr().err
    assert said.startswith(f"error: {tmp_path / 'nowhere'}") and said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_contenders_take_turns_and_a_failing_one_drops_out():
    turns = []

    def fail(_):
        raise MemoryError("too large")

    contenders = {"a": lambda i: turns.append(("a", i)), "b": lambda i: turns.append(("b", i)), "c": fail}
    seconds, failures = measure.interleave(contenders, rounds=2)
    assert turns == [("a", 0), ("b", 0), ("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert {name: len(own) for name, own in seconds.items()} == {"a": 2, "b": 2}
    assert failures == {"c": "MemoryError: too large"}


def test_ratios_are_taken_within_a_round():
    found = measure.compare({"ours": [1.0, 10.0, 2.0], "theirs": [3.0, 30.0, 2.0]}, baseline="ours")
    assert found["theirs"]["slower"] == 3  # of 3, 3, 1; the ratio of the medians is 1.5
    assert (found["theirs"]["median_s"], found["theirs"]["min_s"], found["theirs"]["max_s"]) == (3, 2, 30)


def test_drawn_sentences_are_like_the_corpus():
    plan = sentences.plan(None, vocab_size=1000, batch_size=32, window_tokens=20_000, count=3, seed=0)
    windows = [plan.batches(i) for i in range(3)]
    text = [sentence for window in windows for batch in window for sentence in batch]
    assert all(sum(map(sentences.predictions, window)) <= 20_000 for window in windows)
    assert all(len(batch) == 32 for window in windows for batch in window)
    assert np.mean([len(sentence) for sentence in text]) == pytest.approx(21, rel=0.05)
    assert sentences.real_share([batch for window in windows for batch in window]) == pytest.approx(0.29, abs=0.03)


def test_recurrence(tmp_path):
    record = recurrence.main(["--sizes", "48", "--slots", "12", "--degree", "6", *TINY[2:], "--out", str(tmp_path)])
    (row,) = record["rows"]
    kernels = {f"esnlm {kernel}" for kernel in ("bcoo", "csr", "ell", "dense")}
    assert {"esnlm", "jax BCOO", "scipy csr"} | kernels <= set(row["contenders"])
    for name, result in row["contenders"].items():
        assert result["error"] < 2e-6, name  # a few roundings of float32 in each of 32 steps
    assert json.loads((tmp_path / "recurrence.json").read_text()) == record
    assert "Command: `" in (tmp_path / "recurrence.md").read_text()


@pytest.mark.slow
def test_training(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr("esnlm.compute.LONGEST_WINDOW", 2048)  # few updates, so few sizes to compile
    sizes = ["--sizes", "32", "--vocab", "60", "--rank", "8", "--updates", "2"]
    (row,) = training.main([*sizes, *TINY, "--out", str(tmp_path)])["rows"]
    # main stops where the first losses of esnlm, (a) and (b) differ by more than rounding
    peers = {f"torch ({way}){how}" for way in "ab" for how in ("", ", as it comes")}
    assert set(row["contenders"]) == {"esnlm", "LSTM (c)", "torch (b), BOS once", *peers}
    assert row["first_losses"]["esnlm"] == pytest.approx(np.log(60), rel=0.1)
    assert not row["failures"] and {"gradient alone", "AdamW alone"} <= set(row["parts_s"])


def test_the_parts_of_an_update_run_alone(monkeypatch):
    monkeypatch.setattr("esnlm.compute.LONGEST_WINDOW", 2048)
    run = untrained.initialize(32, 60, 8)
    own = training.Esnlm(run, sentences.plan(None, 60, 32, run.config.compute.window_tokens, 1, seed=0))
    parts, rows = own.parts(1)
    seconds, failures = measure.interleave(parts, 1)
    assert set(seconds) == {"gradient", "AdamW"} and not failures and rows > 0


@pytest.mark.parametrize("ways", [{"shares_first_row": True}, {"onednn": True}])
def test_a_faster_peer_learns_the_same(ways: dict):
    pytest.importorskip("torch")
    import peers

    model = untrained.initialize(32, 60, 8).model
    frozen, params = peers.TorchReservoir(model.reservoir, "cpu", "csr"), model.params["readout"]
    plain, faster = (peers.PackedWay(frozen, params, "float32", {}, **way) for way in ({}, ways))
    for seed in range(4):  # a wrong gradient would show in the loss after it
        batch = sentences.draw(8, 60, seed)
        assert float(faster.update(batch)) == pytest.approx(float(plain.update(batch)), rel=1e-6)


def test_states_of_many_updates_side_by_side_teach_the_same():
    pytest.importorskip("torch")
    import peers

    model = untrained.initialize(32, 60, 8).model
    frozen, params = peers.TorchReservoir(model.reservoir, "cpu", "csr"), model.params["readout"]
    batches = [sentences.draw(8, 60, seed) for seed in range(4)]
    plain = peers.PackedWay(frozen, params, "float32", {})
    losses = [float(plain.update(batch)) for batch in batches]
    assert float(peers.AheadWay(frozen, params, "float32", {}).updates(batches)) == pytest.approx(losses[-1], rel=1e-6)


def test_what_runs_apart_raises_here():
    far = measure.Apart(dict, {"a": 1})
    assert far.get("a") == 1
    with pytest.raises(RuntimeError, match="'b'"):
        far.pop("b")
    far.close()
    with pytest.raises(RuntimeError, match="has ended"):
        far.get("a")
    hangs = measure.Apart(time.sleep, 60)
    with pytest.raises(RuntimeError, match="no answer in time"):
        hangs.ask("about", until=time.monotonic())


def test_update_floor_counts_what_an_update_needs():
    floor = training.update_floor(rows=10, size=3, vocab_size=7, rank=2, flops_per_s=1.0, bytes_per_s=1.0)
    assert floor == {"products": 3 * 2 * 10 * 7 * 2 + 2 * 2 * 10 * 3 * 2, "adamw": 7 * 4 * (7 * 2 + 2 * 3 + 7)}


def test_scoring(tmp_path):
    sizes = ["--size", "32", "--vocab", "60", "--rank", "8", "--limit", "40"]
    row = scoring.main([*sizes, *TINY, "--out", str(tmp_path)])["row"]
    assert {"esnlm", "plain jax"} <= set(row["contenders"])
    for name, result in row["contenders"].items():
        assert result["largest_difference"] < 1e-5, name
    assert row["distinct_prefixes"] < row["predictions"]


@pytest.mark.slow
def test_generation(tmp_path):
    sizes = ["--sizes", "32", "--vocab", "60", "--rank", "8", "--tokens", "9"]
    (row,) = generation.main([*sizes, *TINY[2:], "--out", str(tmp_path)])["rows"]
    assert set(row["contenders"]) == {"esnlm", *generation.THREADS} and not row["failures"]
    assert [result["agree"] for result in row["contenders"].values()] == [9, 9, 9]
    assert "esnlm reaches" in (tmp_path / "generation.md").read_text()


def test_a_plain_loop_writes_what_a_run_writes():
    model = (32, 60, 8)
    texts = [contender(*model).generate(20, 1.0, 3) for contender in (generation.Esnlm, generation.Loop)]
    assert texts[0].tolist() == texts[1].tolist()
    assert generation.agreement(np.array([1, 2, 3]), np.array([1, 0, 3])) == 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prepare_memory reads /proc, which only Linux has")
def test_memory_of_prepare_is_read_from_the_system(tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a").write_bytes(b"one\n" * 30_000 + b"two")
    text = tmp_path / "text.txt"
    prepare_memory.write_text(text, [tmp_path / "text" / "a"], 300_000)
    assert 300_000 <= text.stat().st_size < 300_000 + prepare_memory.BLOCK + 4
    assert set(text.read_bytes().splitlines()) == {b"one", b"two"}
    program = "import sys, time; file = open(sys.argv[1], 'rb', 0); file.read(1000); time.sleep(2)"
    samples = prepare_memory.watch([sys.executable, "-c", program, str(text)], text)
    assert {sample[0] for sample in samples} <= {0, 1000} and samples[-1][0] == 1000
    assert all(resident > 1e6 and workers == 0 for _, resident, workers in samples)
    assert prepare_memory.thin([(5, 7, 1), (9, 3, 2), (12, 4, 0)], 20, 2) == [(10, 7, 2), (20, 4, 0)]


def test_padded_sizes_are_those_of_a_run():
    lengths = np.random.default_rng(0).integers(5, 60, 640)
    store = sentences.as_store([np.zeros(length, np.int32) for length in lengths])
    found = start_up.padded_sizes(store, part=1)
    assert found["updates"] == 20
    finest, chosen = found["sizes"]
    assert 1 <= chosen <= finest <= 20
    fewer, more = found["padded"]
    assert 0 < fewer <= more < 0.2
    assert start_up.padded_sizes(store, part=4)["updates"] == 5


def test_rows_that_are_added_change_no_loss_and_no_gradient(tmp_path):
    size, few = 2048, ["--rank", "4", "--tokens", "5", "--rounds", "1", "--out", str(tmp_path)]
    figures = readout_rows.main(["--sizes", str(size), "2049", *few])["sizes"]
    assert set(figures["2048"]) >= {"V rows", "padded"} and "padded" not in figures["2049"]
    assert "| 2,048 | 2,064 |" in (tmp_path / "readout_rows.md").read_text()

    args = types.SimpleNamespace(rank=4, tokens=5)
    plain, padded = (
        readout_rows.compute(*readout_rows.problem(rows, args), "float32")
        for rows in (Placement(None, size, rows, READOUT_ARRAYS) for rows in (size, size + 16))
    )
    np.testing.assert_allclose(plain[0], padded[0], rtol=1e-6)
    for one, other in zip(plain[1], padded[1], strict=True):
        np.testing.assert_allclose(one, other[: len(one)], rtol=1e-5, atol=1e-7)


def test_a_family_that_cannot_be_measured_is_told_and_the_others_are_measured():
    sentence = np.arange(3)
    windows = [[[sentence] * 5] * 4] * 2  # two windows of four updates of ten predictions
    about = {name: {"ahead": True, "title": name, "trained": 1, "rows": 8} for name in ("a", "b")}
    seconds = {("a", "ahead"): [4.0, 8.0], ("a", "updates"): [1.0, 2.0], ("b", "updates"): [1.0, 1.0]}
    seconds["LSTM (torch)", "updates"] = [6.0, 12.0]
    failures = {("b", "ahead"): "no memory", ("c", "start"): "no kernel"}
    found = families.figures(seconds, failures, about, windows, count=2)
    assert set(found["contenders"]) == {"a", "LSTM (torch)"}
    assert found["contenders"]["a"]["rounds_s"] == [3, 6]  # half of a window's features, and two updates
    assert found["contenders"]["LSTM (torch)"]["slower"] == 2
    assert found["contenders"]["a"]["tokens_per_s"] == pytest.approx((20 / 3 + 20 / 6) / 2)
    assert found["failures"] == {"b ahead": "no memory", "c start": "no kernel"}
    with pytest.raises(InputError, match="no model could be measured: no kernel"):
        families.figures({}, {("c", "start"): "no kernel"}, {}, windows, count=2)


@pytest.mark.slow
def test_families_take_turns_on_the_same_sentences(tmp_path):
    text = ["the cat sees a dog .", "a dog that the cat sees sleeps .", "the dog sleeps ."] * 12
    store = tmp_path / "store"
    esnlm.prepare(text, store, tokenizer="words")
    models = {
        "frozen": "{family: deep_readout, reservoir: {state_size: 8, mean_degree: 2}, readout: {rank: 4}}",
        "counted": "{family: deep_readout, reservoir: {state_size: 8, mean_degree: 2}, readout: {rank: 4, counted: bigram}}",
        "lstm": "{family: lstm, width: 8}",
    }
    configs = []
    for name, model in models.items():
        configs.append(tmp_path / f"{name}.yaml")
        configs[-1].write_text(f"run: {tmp_path / 'run'}\nmodel: {model}\ntraining: {{batch_size: 4}}\n")
    arguments = ["--store", store, "--configs", *configs, "--updates", 2, "--rounds", 2, "--out", tmp_path]
    record = families.main([*map(str, arguments)])
    found = record["contenders"]
    assert record["failures"] == {} and set(models) <= set(found)
    assert (
        found["frozen"]["slower"] == 1 and found["frozen"]["states_per_s"] > 0 and found["lstm"]["states_per_s"] is None
    )
    assert found["counted"]["trained"] == found["frozen"]["trained"]
    for result in found.values():
        assert len(result["rounds_s"]) == 2 and min(result["rounds_s"]) > 0
    assert "ms an update" in (tmp_path / "families.md").read_text()
    others = ["--precisions", "float32", "bf16", "--without-padding", "--other-heaps"]
    few = ["--store", store, "--configs", configs[0], "--updates", 1, "--rounds", 1, "--out", tmp_path, *others]
    both = families.main([*map(str, few)])["contenders"]
    names = {
        f"frozen, {precision}{other}" for precision in ("float32", "bf16") for other in ("", ", V rows", ", one heap")
    }
    assert names <= set(both)
    for option in ("--rounds", "--updates"):
        with pytest.raises(InputError, match=f"^{option} is 0: it must be at least 1$"):
            families.main([*map(str, arguments), option, "0"])
    configs[0].write_text(configs[0].read_text().replace("4}", "8}"))
    with pytest.raises(InputError, match=r"^training.batch_size is 4, 8: give the same for all$"):
        families.main([*map(str, arguments)])
