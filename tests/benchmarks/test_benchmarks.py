"""The benchmarks at tiny sizes: that they run, that the contenders compute the same, that the
bookkeeping is right.

Nothing here looks at a time.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import families
import generation
import measure
import radius
import recurrence
import scoring
import start
import untrained

import esnlm
from esnlm.base.errors import InputError

TINY = ["--copy-megabytes", "1", "--rounds", "1"]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(measure, "SHORTEST", 1e-9)
    monkeypatch.setattr(measure, "SETTLE", 0)
    # torch's threads spin while others wait for their core
    monkeypatch.setattr(measure, "cores", lambda: 1)


def test_contenders_take_turns_and_a_failing_one_drops_out():
    turns = []

    def fail(_):
        raise MemoryError("too large")

    contenders = {
        "a": lambda i: turns.append(("a", i)),
        "b": lambda i: turns.append(("b", i)),
        "c": fail,
    }
    seconds, failures = measure.interleave(contenders, rounds=2)
    assert turns == [("a", 0), ("b", 0), ("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert {name: len(own) for name, own in seconds.items()} == {"a": 2, "b": 2}
    assert failures == {"c": "MemoryError: too large"}


def test_ratios_are_taken_within_a_round():
    found = measure.compare({"ours": [1.0, 10.0, 2.0], "theirs": [3.0, 30.0, 2.0]}, baseline="ours")
    assert found["theirs"]["slower"] == 3  # of 3, 3, 1; the ratio of the medians is 1.5
    assert (found["theirs"]["median_s"], found["theirs"]["min_s"], found["theirs"]["max_s"]) == (
        3,
        2,
        30,
    )


@pytest.mark.nightly
def test_recurrence(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "cores", lambda: 2)
    record = recurrence.main(
        ["--sizes", "48", "--slots", "12", "--degree", "6", *TINY, "--out", str(tmp_path)]
        + ["--cores", "1", "2"]
    )
    with pytest.raises(InputError, match="choose from 1 to 2"):
        recurrence.main(["--cores", "3"])
    assert list(record["cores"]["48"]) == [
        "1 cores, in turn",
        "2 cores, in turn",
        "2 cores, at once",
    ]
    (row,) = record["rows"]
    kernels = {f"esnlm {kernel}" for kernel in ("bcoo", "csr", "dense")}
    assert {"esnlm", "jax BCOO", "scipy csr"} | kernels <= set(row["contenders"])
    for name, result in row["contenders"].items():
        assert result["error"] < 2e-6, name  # a few roundings of float32 in each of 32 steps
    assert json.loads((tmp_path / "recurrence.json").read_text()) == record
    assert "Command: `" in (tmp_path / "recurrence.md").read_text()


@pytest.mark.nightly
@pytest.mark.parametrize("onednn", [False, True])
def test_a_faster_peer_learns_the_same(onednn: bool):
    pytest.importorskip("torch")
    import peers

    model = untrained.initialize(32, 60, 8).model
    frozen, params = peers.TorchReservoir(model.reservoir), model.params["readout"]
    batches = [list(np.random.default_rng(seed).integers(0, 60, (8, 12))) for seed in range(4)]
    plain, faster = (
        peers.PackedWay(frozen, params, "float32", {}, onednn=way) for way in (False, onednn)
    )
    losses = [float(plain.update(batch)) for batch in batches]
    # a wrong gradient would show in it
    assert float(faster.updates(batches)) == pytest.approx(losses[-1], rel=1e-6)


@pytest.mark.nightly
def test_commands_are_timed_beside_the_import_of_jax(trained, tmp_path):
    run = str(trained("esn"))
    record = start.main(["--run", run, "--rounds", "2", "--out", str(tmp_path)])
    found = {name: len(each["rounds_s"]) for name, each in record["commands"].items()}
    assert found == {"import jax": 2, "score": 2, "generate": 2}
    with pytest.raises(InputError, match="score, generate failed"):
        start.main(["--run", str(tmp_path / "none"), "--rounds", "1"])


@pytest.mark.nightly
def test_scoring(stores, tmp_path):
    pairs = [
        {"sentence_good": f"the {noun} sleeps .", "sentence_bad": f"the {noun} sleep ."}
        for noun in ("cat", "dog")
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    given = [
        "--pairs",
        tmp_path / "pairs.jsonl",
        "--tokenizer",
        stores / "train" / "tokenizer",
        "--out",
        tmp_path,
    ]
    row = scoring.main([*map(str, given), "--size", "32", "--rank", "8", "--rounds", "1"])["row"]
    for name, result in row["contenders"].items():
        assert result["largest_difference"] < 1e-5, name
    assert row["distinct_prefixes"] < row["predictions"]


def test_a_plain_loop_writes_what_a_run_writes():
    model = (32, 60, 8)
    ours = generation.generate(generation.ready(*model), 20, 3)
    assert ours.tolist() == generation.Loop(*model).generate(20, 3).tolist()
    assert generation.agreement(np.array([1, 2, 3]), np.array([1, 0, 3])) == 1


@pytest.mark.nightly
def test_families_take_turns_on_the_same_sentences(tmp_path):
    text = ["the cat sees a dog .", "a dog that the cat sees sleeps .", "the dog sleeps ."] * 12
    store = tmp_path / "store"
    esnlm.prepare(text, store, tokenizer="words")
    models = {
        "frozen": (
            "{family: deep_readout, reservoir: {state_size: 8, mean_degree: 2}, readout: {rank: 4}}"
        ),
        "counted": (
            "{family: deep_readout, reservoir: {state_size: 8, mean_degree: 2}, readout: {rank: 4,"
            " counted: bigram}}"
        ),
        "lstm": "{family: lstm, width: 8}",
    }
    configs = []
    for name, model in models.items():
        configs.append(tmp_path / f"{name}.yaml")
        configs[-1].write_text(
            f"run: {tmp_path / 'run'}\nmodel: {model}\ntraining: {{batch_size: 4}}\n"
        )
    arguments = [
        "--store",
        store,
        "--configs",
        *configs,
        "--updates",
        2,
        "--rounds",
        2,
        "--out",
        tmp_path,
    ]
    record = families.main([*map(str, arguments)])
    found = record["contenders"]
    assert record["failures"] == {} and set(models) <= set(found)
    assert (
        found["frozen"]["slower"] == 1
        and found["frozen"]["states_per_s"] > 0
        and found["lstm"]["states_per_s"] is None
    )
    assert found["counted"]["trained"] == found["frozen"]["trained"]
    for result in found.values():
        assert len(result["rounds_s"]) == 2 and min(result["rounds_s"]) > 0
    assert "ms an update" in (tmp_path / "families.md").read_text()


def test_the_radius_is_that_of_both_references(tmp_path):
    sizes = ["--sizes", "100", "600", "--degrees", "8", "--seeds", "2", "--dense-up-to", "200"]
    rows = radius.main([*sizes, "--out", str(tmp_path)])["rows"]
    assert [row["reference"] for row in rows] == ["dense", "arpack"]
    assert all(float(row["worst error"]) < 1e-6 for row in rows)
