"""The settings of a reservoir, and its random initialization as in the papers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from jax.experimental.sparse import BCOO
from pydantic import Field

from esnlm.base.errors import InputError, warn_caller
from esnlm.base.rng import Stream, generator, seed_sequence
from esnlm.base.settings import Choice, Count, Fraction, Positive, settings
from esnlm.data.store import TokenStore
from esnlm.reservoir.arrays import as_scipy, bcoo, scale
from esnlm.reservoir.cell import ReservoirLayer, Stack
from esnlm.reservoir.counted_input import counted_columns
from esnlm.reservoir.functions import check_own_functions, check_registered
from esnlm.reservoir.spectrum import SpectralRadius, spectral_radius
from esnlm.reservoir.topology import (
    TOPOLOGIES,
    ErdosRenyi,
    Topology,
    bernoulli_positions,
    dense_bernoulli_gaussian,
)

# Above this connectivity a dense matrix is smaller than its nonzeros with their indices.
DENSE_FROM = 2.0**-2
MOST_REDRAWS = 10  # maximum redraws of a W_rec whose radius is 0
# The bounds keep scaled values far below the largest float32, 3.4e38.
Scale = Annotated[float, Field(gt=0, le=1e30)]
Connectivity = Annotated[float, Field(gt=1e-12, le=1)]


@settings
class ContinuousTime:
    """Continuous time in steps of delta (Ueda et al. 2025b); every unit has the leak delta / gamma.

    dh/dt = (1 / gamma) (-alpha h + f(.)) becomes h' = (1 - alpha delta / gamma) h + (delta / gamma)
    f(.).
    """

    decay: Scale = 1.0  # rate at which a state decays without input [alpha]
    step: Scale = 0.8  # time from one token to the next [delta]
    time_constant: Scale = 1.0  # time constant of the units [gamma]


@settings
class ReservoirConfig:
    """The reservoir of Ueda et al. 2025a, section 2.1. The paper's symbols stand in brackets."""

    state_size: Count = 4096  # number of units per layer [N_state]
    # The graph of W_rec's connections; most kinds set the density, too.
    topology: Annotated[Topology, Choice(TOPOLOGIES, "kind", "erdos_renyi")] = ErdosRenyi()
    # mean nonzeros per row and column of an erdos_renyi W_rec, and per token of W_in [d]
    mean_degree: Positive = 32.0
    # share of nonzeros; null: mean_degree / state_size [gamma]
    connectivity: Connectivity | None = None
    # share of nonzeros of W_in; 1: dense; null: gamma
    input_connectivity: Connectivity | None = None
    # spectral radius of W_rec after scaling [rho_rec]
    spectral_radius: Annotated[float, Field(ge=0, le=1e30)] = 0.99
    input_scale: Scale = 1.0  # standard deviation of W_in's nonzeros [sigma_in]
    # Values of W_in: random, or counted from each token's neighbours in the training text, so that
    # tokens used alike drive the units alike (reservoir/counted_input.py). A counted W_in is dense
    # if input_connectivity is null.
    input_weights: Literal["random", "counted"] = "random"
    # smallest leak; each unit draws its own from leak_min to leak_max [alpha_min]
    leak_min: Fraction = 0.0
    leak_max: Annotated[float, Field(gt=0, le=1)] = 1.0  # largest leak [alpha_max]
    # Distribution of the leaks between these bounds: uniform, or log, which draws their logarithms
    # uniformly, so that as many leaks lie between 0.01 and 0.1 as between 0.1 and 1. Tanaka et al.
    # 2022 study leaks on many scales.
    leak_spacing: Literal["uniform", "log"] = "uniform"
    # Continuous time (Ueda et al. 2025b); if given, the leak of every unit is step / time_constant.
    continuous: ContinuousTime | None = None
    # activation of the units: tanh, relu, or a name registered by esnlm.activation [f]
    activation: str = "tanh"
    # Equation of a time step. The leak acts on the state h in leaky_output, on x, the argument of
    # f, in leaky_membrane (Fujimaki 2026), and is the size of an Euler step in euler_state
    # (Gallicchio 2024). residual_shift is leaky_output with the old state moved on by one unit
    # (Ceni and Gallicchio 2024). Or a name registered by esnlm.update_rule.
    update_rule: str = "leaky_output"
    # Rate at which a state decays under update_rule euler_state (Gallicchio 2024); other rules do
    # not use it [gamma]
    diffusion: Annotated[float, Field(ge=0, le=1e30)] = 0.001
    # Width of a frozen random embedding between the tokens and W_in; use it with input_connectivity
    # 1. null: W_in reads tokens directly (Fujimaki 2026) [D_emb].
    embedding: Count | None = None
    # number of stacked reservoirs; each reads the states below it, and the readout reads all states
    layers: Count = 1

    @property
    def gamma(self) -> float:
        """Share of nonzeros from `connectivity` or `mean_degree`."""
        if self.connectivity is not None:
            return self.connectivity
        return self.mean_degree / self.state_size

    @property
    def recurrent_gamma(self) -> float:
        """Expected share of nonzeros of W_rec."""
        if not self.topology.has_own_density:
            return self.gamma
        return self.topology.entries(self.state_size, self.gamma) / self.state_size**2

    @property
    def input_gamma(self) -> float:
        """Share of nonzeros of W_in; a counted W_in has the same number of them in each column."""
        if self.input_weights == "random":
            return self.gamma if self.input_connectivity is None else self.input_connectivity
        share = 1.0 if self.input_connectivity is None else self.input_connectivity
        return max(1, round(share * self.state_size)) / self.state_size

    def matrices(self, vocab_size: int) -> list[tuple[int, int, float]]:
        """Returns rows, columns and expected share of nonzeros of all matrices."""
        recurrent = (self.state_size, self.state_size, self.recurrent_gamma)
        w_in = (self.state_size, self.embedding or vocab_size, self.input_gamma)
        embedding = [] if self.embedding is None else [(self.embedding, vocab_size, 1.0)]
        # Above the first layer W_in is as sparse as W_rec.
        return [recurrent, w_in, *embedding] + (self.layers - 1) * 2 * [recurrent]

    @property
    def leaks(self) -> tuple[float, float]:
        """Interval from which the leaks are drawn."""
        if self.continuous is None:
            return self.leak_min, self.leak_max
        return (self.continuous.step / self.continuous.time_constant,) * 2

    @property
    def decay(self) -> float:
        """Factor of the leak on the old state [alpha]: 1 except in continuous time; under
        euler_state the diffusion."""
        if self.update_rule == "euler_state":
            return self.diffusion
        return 1.0 if self.continuous is None else self.continuous.decay

    @property
    def dynamics(self) -> dict[str, Any]:
        """The settings of a time step, as `ReservoirLayer` takes them."""
        return {"activation": self.activation, "decay": self.decay, "update_rule": self.update_rule}

    def __post_init__(self) -> None:
        for is_broken, message in self._rules():
            if is_broken:
                raise ValueError(message)
        try:
            self.topology.check(self.state_size)
        except ValueError as error:
            raise ValueError(f"topology.{error}") from None
        check_registered("activation", self.activation)
        check_registered("update_rule", self.update_rule)

    def _rules(self) -> list[tuple[bool, str]]:
        """Returns the rules between settings: whether each is broken, and its message."""
        has_density, kind = self.topology.has_own_density, self.topology.kind
        is_counted, is_euler = self.input_weights == "counted", self.update_rule == "euler_state"
        reads_degree = self.connectivity is None and (
            not has_density or (self.input_connectivity is None and not is_counted)
        )
        leaks = (self.leak_min, self.leak_max, self.leak_spacing)
        return [
            (
                has_density and self.connectivity is not None,
                f"connectivity is {self.connectivity}: topology {kind} has its own; leave it out",
            ),
            (
                reads_degree and self.mean_degree > self.state_size,
                f"mean_degree is {self.mean_degree}: it must be at most state_size ="
                f" {self.state_size}",
            ),
            (
                self.leak_min > self.leak_max,
                f"leak_min is {self.leak_min}: it must be at most leak_max = {self.leak_max}",
            ),
            (
                self.leak_spacing == "log" and self.leak_min == 0,
                "leak_min is 0: it must be above 0 if leak_spacing is log",
            ),
            (
                self.continuous is not None and leaks != (0, 1, "uniform"),
                "continuous: step / time_constant is every leak; leave the settings of leaks out",
            ),
            (
                self.continuous is not None and is_euler,
                "update_rule is euler_state, a step in continuous time by itself; leave"
                " continuous out",
            ),
            (
                not is_euler and self.diffusion != ReservoirConfig.diffusion,
                f"diffusion is {self.diffusion}: only update_rule euler_state reads it; leave"
                " it out",
            ),
            (
                self.spectral_radius == 0 and kind != "from_matrix",
                "spectral_radius is 0: it must be above 0",
            ),
            (
                is_counted and self.embedding is not None,
                "input_weights is counted: with an embedding W_in reads no tokens; leave"
                " embedding out",
            ),
        ]


@dataclass(frozen=True)
class InitializedReservoir:
    """A new reservoir and the record of its initialization."""

    reservoir: ReservoirLayer | Stack
    radii: tuple[SpectralRadius, ...]  # spectral radius of each layer's W_rec before scaling
    redraws: int  # number of W_rec draws discarded because their radius was 0


def initialize_reservoir(
    config: ReservoirConfig, vocab_size: int, seed: int, text: TokenStore | None = None
) -> InitializedReservoir:
    """Initializes W_rec, W_in and the leaks of each layer, and the embedding, from a seed.

    W_rec, W_in and the leaks are those of Ueda et al. 2025a (eq. 2 to 4). The embedding (Fujimaki
    2026) is N(0, 1). Above the first layer W_in is (N, N), as sparse as W_rec, with values N(0,
    sigma_in^2 / d) [ours], so that d outputs of size 1 drive a unit as hard as a token drives its
    units in the first layer, with variance sigma_in^2.

    `text` is the training text for `input_weights: counted`. Raises InputError if every draw of a
    W_rec had radius 0, a counted W_in has no text, or JAX cannot trace a registered function.
    """
    check_own_functions(config.activation, config.update_rule, config.state_size)
    if config.input_weights == "counted" and text is None:
        raise InputError(
            "model.reservoir.input_weights is counted, and there is no training text to count;"
            " choose random"
        )
    embedding = None
    if config.embedding is not None:
        rng = generator(seed, Stream.EMBEDDING)
        embedding = rng.standard_normal((config.embedding, vocab_size), dtype=np.float32)
    layers, radii, redraws = [], [], 0
    for layer in range(config.layers):
        w_rec, radius, discarded = _initialize_w_rec(config, seed, layer)
        w_in = _initialize_w_in(config, vocab_size, seed, layer, text)
        leak = _initialize_leaks(config, generator(seed, Stream.LEAK, layer=layer))
        reads = embedding if layer == 0 else None
        layers.append(ReservoirLayer(w_rec, w_in, leak, reads, **config.dynamics))
        radii.append(radius)
        redraws += discarded
    reservoir = layers[0] if config.layers == 1 else Stack(layers)
    return InitializedReservoir(reservoir, tuple(radii), redraws)


def _initialize_w_rec(
    config: ReservoirConfig, seed: int, layer: int
) -> tuple[BCOO | np.ndarray, SpectralRadius, int]:
    """Returns W_rec = rho_rec / rho(W) * W, the radius of W, and the number of discarded draws.

    A W with radius 0 cannot be scaled (at a mean degree of 1 about one draw in 20 is nilpotent) and
    is drawn again.
    """
    for redraws in range(MOST_REDRAWS):
        w = _draw_w_rec(config, generator(seed, Stream.RECURRENT, redraws, layer=layer))
        radius = _radius_of(w, config, seed_sequence(seed, Stream.SPECTRAL_START, layer=layer))
        if radius.disagreement > 0.01:
            warn_caller(
                f"spectral radius {radius.radius:.4g} of W_rec: its two estimates differ by"
                f" {100 * radius.disagreement:.1f} %"
            )
        if radius.radius > 0:
            return scale(w, config.spectral_radius / radius.radius), radius, redraws
        if redraws < MOST_REDRAWS - 1:
            warn_caller(
                "W_rec has spectral radius 0 (nilpotent); initializing it again (attempt"
                f" {redraws + 2})"
            )
    raise InputError(
        f"model.reservoir.topology {config.topology.kind}: W_rec has spectral radius 0 in every"
        " draw, so it cannot be scaled; add a cycle to the graph, or give the matrix itself to"
        " esnlm.Reservoir.from_matrices"
    )


def _draw_w_rec(config: ReservoirConfig, rng: np.random.Generator) -> BCOO | np.ndarray:
    size = config.state_size
    if config.recurrent_gamma >= DENSE_FROM:
        return config.topology.dense(size, config.gamma, rng)
    connections = config.topology.connect(size, config.gamma, rng)
    indices = np.stack([connections.row, connections.column], axis=1)
    return bcoo(connections.values(rng), indices, (size, size))


def _radius_of(
    w: BCOO | np.ndarray, config: ReservoirConfig, seed: Sequence[int]
) -> SpectralRadius:
    if config.topology.spectral_radius is not None:
        return SpectralRadius(config.topology.spectral_radius, "topology", config.state_size)
    # as_scipy would copy a dense W in float64, and spectral_radius does so itself.
    return spectral_radius(w if isinstance(w, np.ndarray) else as_scipy(w), seed=seed)


def _initialize_w_in(
    config: ReservoirConfig, vocab_size: int, seed: int, layer: int, text: TokenStore | None
) -> BCOO | np.ndarray:
    rng, size = generator(seed, Stream.INPUT, layer=layer), config.state_size
    if layer > 0:
        degree = config.recurrent_gamma * size  # d
        deviation = config.input_scale / np.sqrt(degree)
        return _bernoulli_gaussian(size, size, config.recurrent_gamma, deviation, rng)
    columns, share = config.embedding or vocab_size, config.input_gamma
    w_in = _bernoulli_gaussian(size, columns, share, config.input_scale, rng)
    if config.input_weights == "random" or text is None:
        return w_in
    projection = w_in if isinstance(w_in, np.ndarray) else as_scipy(w_in)
    return counted_columns(text, projection, round(share * size), config.input_scale)


def _bernoulli_gaussian(
    rows: int, columns: int, density: float, deviation: float, rng: np.random.Generator
) -> BCOO | np.ndarray:
    """Returns M * V with M ~ Bernoulli(density) and V ~ N(0, deviation^2), float32."""
    if density >= DENSE_FROM:
        return dense_bernoulli_gaussian(rows, columns, density, rng, deviation)
    row, column = bernoulli_positions(rows, columns, density, rng)
    values = rng.standard_normal(len(row), dtype=np.float32) * np.float32(deviation)
    return bcoo(values, np.stack([row, column], axis=1), (rows, columns))


def _initialize_leaks(config: ReservoirConfig, rng: np.random.Generator) -> np.ndarray:
    """Returns the leaks of a layer, (N,) float32, drawn independently of W_rec."""
    low, high = config.leaks
    if config.leak_spacing == "uniform":
        return rng.uniform(low, high, config.state_size).astype(np.float32)
    return (low * (high / low) ** rng.uniform(size=config.state_size)).astype(np.float32)
