"""Random initialization of a reservoir: W_rec, W_in and the leaks, as in the papers.

The arrays are held by reservoir/arrays.py.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from jax.experimental.sparse import BCOO
from pydantic import Field

from esnlm.base.errors import InputError, warn_caller
from esnlm.base.rng import Stream, generator, seed_sequence
from esnlm.base.settings import Choice, Count, Fraction, Positive, settings
from esnlm.data.store import TokenStore
from esnlm.reservoir.arrays import as_scipy, bcoo
from esnlm.reservoir.cell import Reservoir, Stack
from esnlm.reservoir.counted_input import counted_columns
from esnlm.reservoir.functions import check_own_functions, check_registered
from esnlm.reservoir.random_matrix import bernoulli_positions, dense_bernoulli_gaussian
from esnlm.reservoir.spectrum import SpectralRadius, spectral_radius
from esnlm.reservoir.topology import TOPOLOGIES, ErdosRenyi, Topology

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
        return (
            self.mean_degree / self.state_size if self.connectivity is None else self.connectivity
        )

    @property
    def recurrent_gamma(self) -> float:
        """Expected share of nonzeros of W_rec."""
        if not self.topology.has_own_density:
            return self.gamma
        return self.topology.entries(self.state_size, self.gamma) / self.state_size**2

    @property
    def input_gamma(self) -> float:
        """Share of nonzeros of W_in. A counted W_in is dense, or has an integer number of nonzeros
        per token."""
        if self.input_weights == "random":
            return self.gamma if self.input_connectivity is None else self.input_connectivity
        share = 1.0 if self.input_connectivity is None else self.input_connectivity
        return max(1, round(share * self.state_size)) / self.state_size

    def matrices(self, vocab_size: int) -> list[tuple[int, int, float]]:
        """Returns rows, columns and expected share of nonzeros of W_rec, W_in and the embedding,
        and of the layers above."""
        recurrent = (self.state_size, self.state_size, self.recurrent_gamma)
        w_in = (self.state_size, self.embedding or vocab_size, self.input_gamma)
        embedding = [] if self.embedding is None else [(self.embedding, vocab_size, 1.0)]
        # above, W_in is as sparse as W_rec
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
        """The settings of a time step, as `Reservoir` takes them."""
        return {"activation": self.activation, "decay": self.decay, "update_rule": self.update_rule}

    def __post_init__(self) -> None:
        self._check_density()
        self._check_time()
        if self.spectral_radius == 0 and self.topology.kind != "from_matrix":
            raise ValueError("spectral_radius is 0: it must be above 0")
        if self.input_weights == "counted" and self.embedding is not None:
            raise ValueError(
                "input_weights is counted: with an embedding W_in reads no tokens; leave"
                " embedding out"
            )
        check_registered("activation", self.activation)
        check_registered("update_rule", self.update_rule)

    def _check_density(self) -> None:
        has_own, kind = self.topology.has_own_density, self.topology.kind
        if has_own and self.connectivity is not None:
            raise ValueError(
                f"connectivity is {self.connectivity}: topology {kind} has its own; leave it out"
            )
        reads_degree = not has_own or (
            self.input_connectivity is None and self.input_weights == "random"
        )
        if self.connectivity is None and reads_degree and self.mean_degree > self.state_size:
            raise ValueError(
                f"mean_degree is {self.mean_degree}: it must be at most state_size ="
                f" {self.state_size}"
            )
        try:
            self.topology.check(self.state_size)
        except ValueError as error:
            raise ValueError(f"topology.{error}") from None

    def _check_time(self) -> None:
        """Raises ValueError for leaks, continuous time and an update rule that do not go
        together."""
        if self.leak_min > self.leak_max:
            raise ValueError(
                f"leak_min is {self.leak_min}: it must be at most leak_max = {self.leak_max}"
            )
        if self.leak_spacing == "log" and self.leak_min == 0:
            raise ValueError("leak_min is 0: it must be above 0 if leak_spacing is log")
        if self.continuous is not None and (self.leak_min, self.leak_max, self.leak_spacing) != (
            0,
            1,
            "uniform",
        ):
            raise ValueError(
                "continuous: step / time_constant is every leak; leave the settings of leaks out"
            )
        if self.continuous is not None and self.update_rule == "euler_state":
            raise ValueError(
                "update_rule is euler_state, a step in continuous time by itself; leave"
                " continuous out"
            )
        if self.update_rule != "euler_state" and self.diffusion != ReservoirConfig.diffusion:
            raise ValueError(
                f"diffusion is {self.diffusion}: only update_rule euler_state reads it; leave"
                " it out"
            )


@dataclass(frozen=True)
class InitializedReservoir:
    """A new reservoir and the record of its initialization."""

    reservoir: Reservoir | Stack
    radii: tuple[SpectralRadius, ...]  # spectral radius of each layer's W_rec before scaling
    redraws: int  # number of W_rec draws discarded because their radius was 0


def initialize_reservoir(
    config: ReservoirConfig, vocab_size: int, seed: int, text: TokenStore | None = None
) -> InitializedReservoir:
    """Initializes W_rec, W_in and the leaks of each layer, and the embedding. The same seed gives
    the same arrays.

    W_rec, W_in and the leaks are those of Ueda et al. 2025a (eq. 2 to 4). The embedding (Fujimaki
    2026) is N(0, 1). Above the first layer W_in is (N, N), as sparse as W_rec, with values N(0,
    sigma_in^2 / d) [ours], so that d outputs of size 1 drive a unit as hard as a token drives its
    units in the first layer, with variance sigma_in^2.

    `text` is the training text for `input_weights: counted`. Raises InputError if every draw of a
    W_rec had radius 0, a counted W_in has no text, or JAX cannot trace a registered function.
    """
    size, width = config.state_size, config.embedding
    check_own_functions(config.activation, config.update_rule, size)
    counted = config.input_weights == "counted"
    if text is None and counted:
        raise InputError(
            "model.reservoir.input_weights is counted, and there is no training text to count;"
            " choose random"
        )
    embedding = None
    if width is not None:
        embedding = generator(seed, Stream.EMBEDDING).standard_normal(
            (width, vocab_size), dtype=np.float32
        )
    degree = config.recurrent_gamma * size  # d
    inputs = [(width or vocab_size, config.input_gamma, config.input_scale)]
    inputs += [(size, config.recurrent_gamma, config.input_scale / np.sqrt(degree))] * (
        config.layers - 1
    )
    layers, radii, redraws = [], [], 0
    for layer, (columns, connectivity, scale) in enumerate(inputs):
        w_rec, radius, thrown_away = _initialize_w_rec(config, seed, layer)
        w_in = _initialize_w_in(
            size, columns, connectivity, scale, generator(seed, Stream.INPUT, layer=layer)
        )
        if text is not None and counted and not layer:
            projection = w_in if isinstance(w_in, np.ndarray) else as_scipy(w_in)
            w_in = counted_columns(text, projection, round(connectivity * size), scale)
        leak = _initialize_leaks(config, generator(seed, Stream.LEAK, layer=layer))
        layers.append(Reservoir(w_rec, w_in, leak, None if layer else embedding, **config.dynamics))
        radii.append(radius)
        redraws += thrown_away
    return InitializedReservoir(
        layers[0] if config.layers == 1 else Stack(layers), tuple(radii), redraws
    )


def _initialize_w_rec(
    config: ReservoirConfig, seed: int, layer: int
) -> tuple[BCOO | np.ndarray, SpectralRadius, int]:
    """Initializes W, scales it to the spectral radius, W_rec = rho_rec / rho(W) * W, and counts
    discarded draws."""
    # A W with radius 0 cannot be scaled (at a mean degree of 1 about one draw in 20 is nilpotent)
    # and is drawn again.
    size = config.state_size
    for redraws in range(MOST_REDRAWS):
        rng = generator(seed, Stream.RECURRENT, redraws, layer=layer)
        w: BCOO | np.ndarray
        if config.recurrent_gamma >= DENSE_FROM:
            w = config.topology.dense(size, config.gamma, rng)
        else:
            connections = config.topology.connect(size, config.gamma, rng)
            indices = np.stack([connections.row, connections.column], axis=1)
            w = bcoo(connections.values(rng), indices, (size, size))
        if config.topology.spectral_radius is None:
            # avoids a second float64 copy of a dense W
            real = w if isinstance(w, np.ndarray) else as_scipy(w)
            radius = spectral_radius(
                real, seed=seed_sequence(seed, Stream.SPECTRAL_START, layer=layer)
            )
        else:
            radius = SpectralRadius(config.topology.spectral_radius, "topology", size)
        if radius.disagreement > 0.01:
            differ = f"its two estimates differ by {100 * radius.disagreement:.1f} %"
            warn_caller(f"spectral radius {radius.radius:.4g} of W_rec: {differ}")
        if radius.radius > 0:
            break
        if redraws < MOST_REDRAWS - 1:
            warn_caller(
                "W_rec has spectral radius 0 (nilpotent); initializing it again (attempt"
                f" {redraws + 2})"
            )
    else:
        raise InputError(
            f"model.reservoir.topology {config.topology.kind}: W_rec has spectral radius 0 in every"
            " draw, so it cannot be scaled; add a cycle to the graph, or give the matrix itself to"
            " esnlm.Reservoir.from_matrices"
        )
    scale = np.float32(config.spectral_radius / radius.radius)
    scaled = (
        w * scale
        if isinstance(w, np.ndarray)
        else bcoo(np.asarray(w.data) * scale, w.indices, w.shape)
    )
    return scaled, radius, redraws


def _initialize_leaks(config: ReservoirConfig, rng: np.random.Generator) -> np.ndarray:
    """Returns the leaks of a layer, (N,) float32, drawn independently of W_rec."""
    low, high = config.leaks
    if config.leak_spacing == "uniform":
        return rng.uniform(low, high, config.state_size).astype(np.float32)
    return (low * (high / low) ** rng.uniform(size=config.state_size)).astype(np.float32)


def _initialize_w_in(
    rows: int, columns: int, connectivity: float, scale: float, rng: np.random.Generator
) -> BCOO | np.ndarray:
    """Returns M * V with M ~ Bernoulli(connectivity) and V ~ N(0, scale**2), float32."""
    if connectivity >= DENSE_FROM:
        return dense_bernoulli_gaussian(rows, columns, connectivity, rng, scale)
    row, column = bernoulli_positions(rows, columns, connectivity, rng)
    values = rng.standard_normal(len(row), dtype=np.float32) * np.float32(scale)
    return bcoo(values, np.stack([row, column], axis=1), (rows, columns))
