"""Bounds for devices that are not there, against arithmetic by hand."""

import pytest

from esnlm import config_io
from esnlm.compute import ComputeConfig, choose_compute
from esnlm.config import TrainingConfig
from esnlm.devices import DEVICES
from esnlm.errors import InputError
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.lstm import LstmConfig
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.training import plan
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
    assert "chosen for h100 kernel fused, batch slots" in said and "this cpu" not in said and "FIT" not in said
    assert not (tmp_path / "run").exists()


def test_a_plan_says_what_does_not_fit_and_what_has_no_bound(small, capsys):
    plan.show(small("--model.readout.rank", "10000000"), "tpu-v5e")
    assert "; IT DOES NOT FIT" in capsys.readouterr().out
    plan.show(small("--training.kind", "ridge", "--model.readout.rank", "null"), "a100")
    assert "no bound: ridge is computed in part by the host" in capsys.readouterr().out


def test_an_unknown_device_is_refused(small):
    with pytest.raises(InputError, match="^--on h1000: no device of that name is known; choose b200, h200, h100, "):
        plan.show(small(), "h1000")
