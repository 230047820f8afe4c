"""Bounds for devices that are not there, against arithmetic by hand."""

import re

import pytest

from esnlm import config_io
from esnlm.compute import ComputeConfig, choose_compute
from esnlm.config import TrainingConfig
from esnlm.devices import DEVICES
from esnlm.errors import InputError
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.lstm import LstmConfig
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.training import plan, readout_regression
from esnlm.training.bounds import bound_times

H100, V, R, ROWS = DEVICES["h100"], 50_257, 512, 650


def bound(model, precision, devices=1, training=None):
    compute = choose_compute(ComputeConfig(precision=precision), model, "gpu")
    return bound_times(model, compute, training or TrainingConfig(), V, ROWS, H100, devices)


@pytest.mark.parametrize("size, precision", [(4096, "bf16"), (4096, "tf32"), (65_536, "bf16"), (65_536, "tf32")])
def test_an_update_takes_its_products_and_a_pass_of_adamw(size, precision):
    trained = R * (V + size) + V
    products = 2 * ROWS * R * (3 * V + 2 * size) / {"bf16": 989.4e12, "tf32": 494.7e12}[precision]
    read = 4 * (2 * trained + ROWS * size) / 3.35232e12
    by_hand = max(products, read) + 4 * 7 * trained / 3.35232e12
    found = bound(EchoStateConfig(reservoir=ReservoirConfig(state_size=size)), precision).update
    assert found == pytest.approx(by_hand, rel=1e-4)  # W_in's few entries are counted too


def test_a_state_is_a_dense_product_or_gathers():
    dense = bound(EchoStateConfig(reservoir=ReservoirConfig(state_size=2048)), "bf16").state  # dense on a GPU
    assert dense == pytest.approx(2 * 2048**2 / 66.9e12)
    gathered = bound(EchoStateConfig(reservoir=ReservoirConfig(state_size=65_536)), "bf16").state
    assert gathered == pytest.approx(4 * 33 * 65_536 / 3.35232e12)  # 32 states gathered for each unit, and one written


def test_scoring_a_token_takes_its_state_and_a_third_of_the_products():
    found = bound(EchoStateConfig(), "float32")
    assert found.scored - found.state == pytest.approx(2 * R * (V + 4096) / 66.9e12)
    trained = bound(LstmConfig(), "float32")
    assert trained.state == 0
    assert trained.scored == pytest.approx(LstmConfig().flops_per_token(V) / 3 / 66.9e12)


def test_devices_share_all_work_and_sgd_has_a_moment_less():
    one, eight = (bound(EchoStateConfig(), "bf16", devices) for devices in (1, 8))
    assert [8 * each for each in eight] == pytest.approx(list(one))
    sgd = bound(EchoStateConfig(), "bf16", training=TrainingConfig(optimizer="sgd"))
    trained = R * (V + 4096) + V
    assert one.update - sgd.update == pytest.approx(4 * 2 * trained / 3.35232e12)


@pytest.fixture
def small(tmp_path):
    (tmp_path / "small.yaml").write_text(
        "data: {kind: grammar, sentences: 3200}\nmodel: {reservoir: {state_size: 8192}, readout: {rank: 64}}"
    )

    def read(*settings):
        return config_io.read(tmp_path / "small.yaml", ["--run", str(tmp_path / "run"), *settings])

    return read


def test_a_plan_for_devices_that_are_not_there_says_that_it_is_a_bound(small, tmp_path, capsys):
    assert plan.show(small("--compute.precision", "tf32"), "h100:8") == 0  # a CPU has no tf32
    said = " ".join(capsys.readouterr().out.split())
    assert "devices 8 x NVIDIA H100 80GB HBM3, 84.94 GB each; none was asked, and nothing measured" in said
    assert "time, a bound 0:00: states 0:00, updates 0:00; " in said and "scoring, a bound " in said
    assert "by data sheet: NVIDIA, H100 Tensor Core GPU data sheet" in said
    assert (
        "chosen for h100 kernel fused, cross-entropy plain, batch slots" in said
        and "this cpu" not in said
        and "FIT" not in said
    )
    assert not (tmp_path / "run").exists()


def test_a_plan_says_what_does_not_fit_and_what_has_no_bound(small, capsys):
    plan.show(small("--model.readout.rank", "10000000"), "tpu-v5e")
    assert "; IT DOES NOT FIT" in capsys.readouterr().out
    plan.show(small("--training.kind", "ridge", "--model.readout.rank", "null"), "a100")
    assert "no bound: ridge is computed in part by the host" in capsys.readouterr().out


@pytest.mark.parametrize("kind, on_device", [("ridge", 4), ("rls", 4), ("lms", 16)])
def test_the_sums_of_a_regression_are_in_the_memory_of_the_host_and_none_of_it_is_cut(kind, on_device, small, capsys):
    experiment = small("--training.kind", kind, "--model.readout.rank", "null")
    vocab_size, features = experiment.data.size().vocab_size, 8192
    for on in ("h100", "h100:8"):
        plan.show(experiment, on)
        found = lines_of_plan(capsys.readouterr().out)
        assert f"trained with {kind} {plan._bytes(on_device * vocab_size * features)}," in found["memory of each"]
        needed = readout_regression.memory(experiment.training, features, vocab_size, None)
        assert found["memory of the host"] == f"{plan._bytes(needed)}: {kind}"
    plan.show(experiment)
    assert f"trained with {kind} {plan._bytes(needed)}," in lines_of_plan(capsys.readouterr().out)["memory"]


def lines_of_plan(said):
    """The lines of a plan by their names, each with single spaces."""
    split = (re.split(r"  +", line.strip(), maxsplit=1) for line in said.splitlines())
    return {words[0]: words[1] for words in split if len(words) == 2}


@pytest.mark.parametrize(
    "settings",
    [["--model.family", "lstm", "--model.ngrams.orders", "[2]"], ["--model.family", "deep_readout"]],
    ids=["lstm", "deep readout"],
)
def test_a_model_for_one_device_is_planned_for_one_of_many(settings, tmp_path, capsys):
    (tmp_path / "small.yaml").write_text("data: {kind: grammar, sentences: 3200}")
    experiment, plans = config_io.read(tmp_path / "small.yaml", settings), []
    for on in ("h100", "h100:8"):
        plan.show(experiment, on)
        plans.append(lines_of_plan(capsys.readouterr().out))
    one, many = plans
    assert many.pop("devices used") == f"1, since {experiment.model.title} can be computed on one device only"
    assert many.pop("devices").startswith("8 x ") and one.pop("devices").startswith("1 x ")
    assert many == one
    with pytest.raises(InputError, match="^compute.mesh asks for several devices: .* can be computed on one only"):
        mesh = ["--compute.mesh", "{vocabulary: 8}"]
        plan.show(config_io.read(tmp_path / "small.yaml", settings + mesh), "h100:8")


def test_a_plan_has_the_mesh_that_is_asked_for(small, capsys):
    def planned(mesh, on):
        plan.show(small("--compute.mesh", mesh), on)
        return lines_of_plan(capsys.readouterr().out)

    assert "devices used" not in planned("null", "h100:8")
    found = planned("{data: 2, vocabulary: 4, units: 2}", "h100:16")
    assert found["devices used"] == "8, by compute.mesh: data 2 x vocabulary 4"
    assert found["a copy of the reservoir"] == "on 2 devices, cut by unit"
    times = "time, a bound", "an update, a bound"
    assert [found[name] for name in times] == [planned("{vocabulary: 8}", "h100:8")[name] for name in times]
    with pytest.raises(
        InputError,
        match="^compute.mesh is data 4 x vocabulary 4: it needs 16 devices and --on h100:8 names 8; lower it, give null,",
    ):
        planned("{data: 4, vocabulary: 4}", "h100:8")


def test_an_unknown_device_is_refused(small):
    with pytest.raises(InputError, match="^--on h1000: no device of that name is known; choose b200, h200, h100, "):
        plan.show(small(), "h1000")
