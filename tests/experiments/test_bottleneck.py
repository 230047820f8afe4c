"""The bottleneck studies: one step and training as PyTorch has them in float64, table 1.1, images,
and files that are kept."""

import json

import numpy as np
import pytest
import scipy.stats

from esnlm.readout.linear import readout_rates, readout_sigmas
from experiments.bottleneck import __main__ as study
from experiments.bottleneck import curves, network, one_step
from experiments.bottleneck.images import Images
from experiments.bottleneck.settings import Case

WIDTHS = [12, 20, 6, 20, 6, 20, 2]
# hidden layers of several widths, the narrowest of 20
BOTTLENECKS = (30, 70, 20, 70, 40, 60, 10)
EPSILON = float(np.finfo(np.float32).eps)
SMALL = {
    "kind": "alignment",
    "widths": {"first": 20, "last": 80, "count": 3},
    "seeds": 2,
    "images": {"train": 5, "test": 0},
    "cases": [{"parametrization": "dynamic", "factor": 2, "power": 0.5}],
}


def in_torch(weights):
    """Returns the weights in float64, and a function from images to the list of h~_l."""
    import torch

    arrays = [torch.tensor(np.asarray(array, np.float64), requires_grad=True) for array in weights]

    def layers(x, weights=arrays):
        x, found = torch.tensor(x, dtype=torch.float64), []
        for w in weights:
            found.append(x @ w.T)
            x = torch.relu(found[-1])
        return found

    return arrays, layers


def torch_loss(y, output):
    import torch

    return ((torch.tensor(y) - output) ** 2).sum(axis=1).mul(0.5).mean()


def torch_step(weights, rates, x, y):
    """h~_l, dL/dh~_l and the change of h~_l, each of all layers side by side."""
    import torch

    theirs, layers = in_torch(weights)
    before = layers(x)
    for layer in before:
        layer.retain_grad()
    torch_loss(y, before[-1]).backward()
    with torch.no_grad():
        moved = [w - 0.1 * rate * w.grad for w, rate in zip(theirs, rates, strict=True)]
        changes = [(a - b).numpy() for a, b in zip(layers(x, moved), before, strict=True)]
    found = {
        "h": [layer.detach() for layer in before],
        "slope": [layer.grad for layer in before],
        "change": changes,
    }
    return {
        f"{name}-{i}": np.asarray(each)
        for name, arrays in found.items()
        for i, each in enumerate(arrays)
    }


def torch_training(weights, rates, x, y, batches):
    """The weights after an update of SGD with momentum on each batch, by the rows of its images."""
    import torch

    theirs, layers = in_torch(weights)
    groups = [{"params": [w], "lr": 0.1 * rate} for w, rate in zip(theirs, rates, strict=True)]
    method = torch.optim.SGD(groups, momentum=0.9)
    for rows in batches:
        method.zero_grad()
        torch_loss(y[rows], layers(x[rows])[-1]).backward()
        method.step()
    return {f"w-{i}": w.detach().numpy() for i, w in enumerate(theirs)}


@pytest.mark.parametrize("parametrization", ["ntp", "standard", "mup", "spectral", "dynamic"])
@pytest.mark.parametrize("batch", [3])
def test_one_step_is_autograd_s(peer, parametrization, batch):
    """h~_l, dL/dh~_l and the whole change of h~_l, where W_l is moved and the images go through
    again."""
    weights, rates, gains = network.initialize(parametrization, WIDTHS, seed=0)
    rng = np.random.default_rng(1)
    x, y = (
        rng.normal(size=(batch, 12)).astype(np.float32),
        np.eye(2, dtype=np.float32)[rng.integers(0, 2, batch)],
    )
    found = network.step(weights, np.float32(0.1 * rates), gains, x, y)

    expected = peer(f"bottleneck-step-{parametrization}-{batch}", torch_step, weights, rates, x, y)
    # Errors of six products of up to 20 terms each, there and back, relative to a layer's size.
    # Where a unit crosses 0, its change after ReLU has the error of h~ itself.
    crossing = 2 * EPSILON * max(np.abs(expected[f"h-{i}"]).max() for i in range(len(weights)))
    for ours, name, beside in zip(found, ("h", "slope", "change"), (0, 0, crossing), strict=True):
        assert len(ours) == len(weights)
        for i, layer in enumerate(ours):
            exact = expected[f"{name}-{i}"]
            assert np.abs(layer - exact).max() < 100 * EPSILON * np.abs(exact).max() + beside


def test_training_is_torch_s_momentum_with_a_rate_a_layer(peer):
    rng = np.random.default_rng(0)
    x, y = (
        rng.normal(size=(10, 12)).astype(np.float32),
        np.eye(2, dtype=np.float32)[rng.integers(0, 2, 10)],
    )
    weights, rates, gains = network.initialize("dynamic", WIDTHS, seed=3)
    order, kept = (
        np.array([[3, 1, 4, 5], [9, 2, 6, 8], [7, 0, 0, 0]]),
        np.array([[1.0] * 4, [1.0] * 4, [1.0, 1, 0, 0]]),
    )
    shares = np.float32(kept / kept.sum(axis=1, keepdims=True))  # the last batch has two images
    begin = [w.copy() for w in weights], [np.zeros_like(w) for w in weights]
    method = {"rates": np.float32(0.1 * rates), "gains": gains, "momentum": 0.9}
    ours, _ = curves.train_epoch(*begin, x, y, order, shares, **method)

    batches = [rows[:number] for rows, number in zip(order, (4, 4, 2), strict=True)]
    expected = peer("bottleneck-training", torch_training, weights, rates, x, y, batches)
    assert len(ours) == len(expected)
    for i, w in enumerate(ours):
        assert np.abs(peer.sample(w) - expected[f"w-{i}"]).max() < 100 * EPSILON * np.abs(w).max()


def drawn_by_the_thesis(parametrization, widths, q, noise, biases):
    """W_l, b_l and g_l of eq. 2.73 to 2.77 ("dynamic") or eq. 3.3 and 3.4 ("spectral"), in
    float64."""
    depth, narrowest = len(widths) - 1, min(widths[1:-1])
    weights, shifts, gains = [], [], []
    for layer in range(1, depth + 1):
        below, here = widths[layer - 1], widths[layer]
        if parametrization == "dynamic":
            gain, sigma = (1 if layer == depth else narrowest**q) / below**0.5, narrowest**-q
        else:
            gain, sigma = (here / below) ** 0.5, here**-0.5 if below <= here else below**-0.5
        gamma, w = 1 if layer == depth else 2**0.5, noise[layer - 1].astype(np.float64)
        weights.append(gamma * sigma * w[:, :below])
        shifts.append(gamma * sigma * w[:, -1] if biases else None)
        gains.append(gain)
    return weights, shifts, gains


def forward_by_the_thesis(weights, shifts, gains, x):
    """The list of h~_l of one input, by eq. 2.2 to 2.4."""
    layers, h = [], x
    for w, b, g in zip(weights, shifts, gains, strict=True):
        layers.append(g * (w @ h + (0 if b is None else len(h) ** 0.5 * b)))
        h = np.maximum(layers[-1], 0)
    return layers


@pytest.mark.parametrize(
    "form, parametrization, q, biases",
    [
        ("gains", "dynamic", 0.2, True),
        ("rates", "dynamic", 0.2, False),
        ("rates", "spectral", 0.5, True),
    ],
)
def test_a_step_is_that_of_the_thesis_s_network_with_g(form, parametrization, q, biases):
    """One step of eq. 2.73 to 2.77 at one rate for all, in float64 NumPy; section 2.5's rates a
    layer give the same."""
    noise, _, _ = network.initialize("standard", WIDTHS, seed=0, biases=biases)
    for w, below, gamma in zip(noise, WIDTHS, [2**0.5] * 5 + [1], strict=False):
        w *= below**0.5 / gamma  # the standard normal numbers themselves
    weights, shifts, gains = drawn_by_the_thesis(parametrization, WIDTHS, q, noise, biases)
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=12).astype(np.float32), np.array([0.0, 1], np.float32)
    h = forward_by_the_thesis(weights, shifts, gains, x)
    slopes = [h[-1] - y]
    for w, g, below in zip(weights[:0:-1], gains[:0:-1], h[-2::-1], strict=True):  # eq. 2.35
        slopes.insert(0, g * (w.T @ slopes[0]) * (below > 0))
    inputs = [x.astype(np.float64), *(np.maximum(layer, 0) for layer in h[:-1])]
    moved = [
        w - 0.1 * g * np.outer(s, i)
        for w, g, s, i in zip(weights, gains, slopes, inputs, strict=True)
    ]
    raised = [
        None if b is None else b - 0.1 * g * len(i) ** 0.5 * s
        for b, g, s, i in zip(shifts, gains, slopes, inputs, strict=True)
    ]
    after = forward_by_the_thesis(moved, raised, gains, x)

    drawn = network.initialize(parametrization, WIDTHS, 0, q, form=form, biases=biases)
    found = network.step(
        drawn.weights, np.float32(0.1 * drawn.rates), drawn.gains, x[None], y[None]
    )
    assert (set(drawn.rates), set(drawn.gains))[form == "rates"] == {1}
    # as in test_one_step_is_autograd_s
    crossing = 2 * EPSILON * max(np.abs(layer).max() for layer in h)
    changes = [b - a for a, b in zip(h, after, strict=True)]
    for ours, exact, beside in zip(found, (h, slopes, changes), (0, 0, crossing), strict=True):
        for mine, theirs in zip(ours, exact, strict=True):
            assert np.abs(mine[0] - theirs).max() < 100 * EPSILON * np.abs(theirs).max() + beside


@pytest.mark.parametrize("q", [0.0, 0.3, 0.5])
def test_dynamic_is_what_g_gives(q):
    """Section 2.5: a layer g_l W_l of deviation sigma_l is one of deviation g_l sigma_l that learns
    at g_l^2."""
    below, least = np.array(BOTTLENECKS[:-1]), 20
    g, sigma = least**q / np.sqrt(below), least**-q  # (2.74), (2.77)
    g[-1] = 1 / np.sqrt(below[-1])  # (2.73)
    found = network.sigmas_and_rates("dynamic", BOTTLENECKS, q)
    np.testing.assert_allclose(found[0], g * sigma)
    np.testing.assert_allclose(found[1], g**2)
    if q == 0:
        np.testing.assert_array_equal(found, network.sigmas_and_rates("ntp", BOTTLENECKS))


def test_spectral_is_what_g_gives():
    below, above = np.array(BOTTLENECKS[:-1]), np.array(BOTTLENECKS[1:])
    # (3.3), (3.4)
    g, sigma = (
        np.sqrt(above / below),
        np.where(below <= above, above**-0.5, below**-0.5),
    )
    found = network.sigmas_and_rates("spectral", BOTTLENECKS)
    np.testing.assert_allclose(found[1], g**2)
    np.testing.assert_allclose(found[0], g * sigma)


@pytest.mark.parametrize("widths", [(400, 100, 900), (50, 50, 50, 50, 3)])
def test_mup_is_dynamic_in_two_layers_and_at_equal_widths(widths):
    np.testing.assert_allclose(
        network.sigmas_and_rates("mup", widths), network.sigmas_and_rates("dynamic", widths)
    )


@pytest.mark.parametrize("kind", ["ntp", "spectral", "dynamic"])
@pytest.mark.parametrize("widths", [(400, 100, 900), (100, 400, 90)])
def test_a_readout_is_scaled_as_a_network_of_two_layers(kind, widths):
    sigma, rate = network.sigmas_and_rates(kind, widths)
    drawn, learned = readout_sigmas(kind, *widths), readout_rates(kind, "sgd", *widths)
    assert [drawn["b"], drawn["a"]] == sigma.tolist()
    assert [learned["b"], learned["a"]] == rate.tolist()


def test_weights_have_gamma_and_sigma():
    """sqrt 2 before ReLU, 1 at the output; the same numbers under every parametrisation, but for
    their scale."""
    widths = [300, 200, 100, 200, 50]
    ntp, dynamic = (network.initialize(kind, widths, seed=0)[0] for kind in ("ntp", "dynamic"))
    for w, gamma in zip(ntp, (2**0.5,) * 3 + (1,), strict=True):
        assert w.std() == pytest.approx(gamma / np.sqrt(w.shape[1]), rel=5 / np.sqrt(2 * w.size))
    np.testing.assert_allclose(dynamic[-1], ntp[-1] / 10, rtol=1e-6)  # n_min = 100, q = 1/2
    assert not np.array_equal(network.initialize("ntp", widths, seed=1)[0][0], ntp[0])


@pytest.mark.nightly
@pytest.mark.parametrize("parametrization", ["ntp", "mup", "spectral", "dynamic"])
def test_the_coordinate_check_of_table_1_1(parametrization):
    """Widths in proportion, where the table's orders hold for all: over a factor of 8 a slope is
    within 0.15 of its order.

    A change is told for an error |f - y| of 1, as this scales all layers alike and differs by half
    from seed to seed. The inputs have fewer values than any layer has units, as Spectral's first
    layer is another one where they have more.
    """
    rng = np.random.default_rng(0)
    data = Images(
        rng.normal(size=(50, 16)).astype(np.float32),
        np.eye(2, dtype=np.float32)[rng.integers(0, 2, 50)],
    )
    case, sizes, found = (
        Case(parametrization, 0.4, 1.0),
        [50, 100, 200, 400],
        {"size": [], "change": []},
    )
    for n in sizes:
        of_seeds = [one_step.measure(case, n, seed, data, 0.1) for seed in range(30)]
        found["size"].append([each["size"] for each in of_seeds])
        found["change"].append([np.array(each["change"]) / each["error"] for each in of_seeds])
    for name, of_sizes in found.items():  # each (widths, seeds, layers)
        slopes = np.array(
            [
                one_step.fit_power(sizes, layer).slope
                for layer in np.moveaxis(np.array(of_sizes), 2, 0)
            ]
        )
        # nan where the table has none
        expected = np.array(one_step.expected_slopes(case, name), float)
        assert np.nanmax(np.abs(slopes - expected)) < 0.15, (name, slopes.round(2), expected)


def test_expected_slopes_where_the_bottleneck_narrows():
    """n_min goes as n^0.2: sqrt(n_min / n) as n^-0.4 in the wide layers."""
    change = {
        kind: one_step.expected_slopes(Case(kind, 150, 0.2), "change")
        for kind in ("ntp", "mup", "spectral", "dynamic")
    }
    assert change["ntp"] == pytest.approx([-0.5, -0.1, -0.5, -0.1, -0.5, 0])
    assert change["dynamic"] == pytest.approx([-0.4, 0, -0.4, 0, -0.4, 0])
    assert change["spectral"] == [0] * 6
    between = Case("dynamic", 150, 0.2, exponent=0.25)  # n_min^(1/4) n_l^(-1/2)
    assert one_step.expected_slopes(between, "change") == pytest.approx(
        [-0.45, -0.05, -0.45, -0.05, -0.45, 0]
    )
    assert one_step.expected_slopes(between, "alignment") == [0] * 6
    assert change["mup"] == [None] * 6, "it is stated for hidden layers of one width"


@pytest.mark.nightly
def test_a_study_goes_on_and_then_is_done(tmp_path, capsys, monkeypatch):
    study.run(SMALL, tmp_path / "whole", "a.yaml")
    assert capsys.readouterr().out == (tmp_path / "whole" / "alignment.md").read_text()
    before = (tmp_path / "whole" / "alignment.json").read_bytes()
    study.run(SMALL, tmp_path / "whole", "a.yaml")
    assert (tmp_path / "whole" / "alignment.json").read_bytes() == before

    stopped = json.loads(before)
    del stopped["report"], stopped["cells"]["dynamic, m = 2 n^0.5, n = 80"]
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "alignment.json").write_text(json.dumps(stopped))
    measured, measure = [], one_step.measure
    monkeypatch.setattr(
        one_step, "measure", lambda case, n, *rest: measured.append(n) or measure(case, n, *rest)
    )
    study.run(SMALL, tmp_path / "part", "a.yaml")
    assert measured == [80, 80]
    assert json.loads((tmp_path / "part" / "alignment.json").read_bytes()) == json.loads(before)


@pytest.mark.nightly
def test_training_curves_are_written(tmp_path):
    settings = {
        "kind": "training_curves", "pairs": [["airplane", "automobile"]], "parametrizations": ["dynamic", "spectral"], "n": 40, "narrow": 8,
        "epochs": 3, "seeds": 2, "images": {"train": 100, "test": 50}, "batch_size": 64, "learning_rate": 0.05,
    }  # fmt: skip
    study.run(settings, tmp_path, "a.yaml")
    found = json.loads((tmp_path / "training_curves.json").read_bytes())
    assert len(found["cells"]) == 4
    losses = found["cells"]["airplane/automobile, dynamic, seed 1"]
    assert (
        len(losses["train"]) == len(losses["test"]) == 4
        and losses["train"][-1] < losses["train"][0]
    )


def test_a_fit_is_least_squares_on_the_means_over_seeds():
    x = np.array([10, 20, 50, 100, 300])
    values = 3 * x[:, None] ** -0.7 * np.exp(np.random.default_rng(0).normal(size=(5, 8)) / 10)
    found, expected = (
        one_step.fit_power(x, values),
        scipy.stats.linregress(np.log(x), np.log(values.mean(axis=1))),
    )
    assert (found.slope, found.constant) == pytest.approx((expected.slope, expected.intercept))
    assert found.low < found.slope < found.high
