"""What is frozen: W_rec, W_in and the leak, as the papers draw them; reservoir/arrays.py holds what is drawn here."""

import logging
from dataclasses import dataclass

import numpy as np
from jax.experimental.sparse import BCOO

from esnlm.errors import InputError
from esnlm.reservoir.arrays import as_scipy, bcoo
from esnlm.reservoir.cell import Reservoir, Stack
from esnlm.reservoir.spectrum import SpectralRadius, spectral_radius
from esnlm.reservoir.topology import ErdosRenyi, Topology, draw_recurrent, erdos_renyi, largest_count
from esnlm.rng import Stream, generator, seed_sequence

log = logging.getLogger("esnlm")

# From this connectivity up a dense matrix is smaller than its nonzeros with their indices (S1).
DENSE_FROM = 2.0**-2

RULES = ("leaky_output", "leaky_membrane")


@dataclass(frozen=True)
class ContinuousTime:
    """dh/dt = (1 / gamma) (-alpha h + f(.)) in steps of delta (S2): h' = (1 - alpha delta / gamma) h + (delta / gamma) f(.)."""

    decay: float = 1.0  # [alpha]
    step: float = 0.8  # [delta]
    time_constant: float = 1.0  # [gamma]

    def check(self, field: str) -> None:
        for name in ("decay", "step", "time_constant"):
            value = getattr(self, name)
            if not value > 0:
                raise InputError(f"{field}.{name} is {value}: it must be above 0")


@dataclass(frozen=True)
class ReservoirConfig:
    """The reservoir of S1 (esn_at_scale, section 2.1). Symbols of the paper in brackets."""

    state_size: int = 4096  # units [N_state]
    topology: Topology = ErdosRenyi()  # of W_rec, by its kind; the others have a density of their own (topology.py)
    mean_degree: float = 32.0  # mean nonzeros per row and column of an erdos_renyi W_rec, and per token of W_in [d]
    connectivity: float | None = None  # share of nonzeros [gamma]; given, it replaces mean_degree / state_size
    input_connectivity: float | None = None  # share of nonzeros of W_in, where it is not that of W_rec; 1: dense
    spectral_radius: float = 0.99  # [rho_rec]
    input_scale: float = 1.0  # standard deviation of W_in's nonzeros [sigma_in]
    leak_min: float = 0.0  # a_i ~ Uniform(leak_min, leak_max), one a unit [alpha_min]
    leak_max: float = 1.0  # [alpha_max]
    continuous: ContinuousTime | None = (
        None  # given, step / time_constant is every unit's leak, not leak_min .. leak_max
    )
    activation: str = "tanh"  # tanh or relu [f]
    update_rule: str = "leaky_output"  # the leak fades the output, or with leaky_membrane the argument of f (S3)
    embedding: int | None = (
        None  # width of a frozen random embedding in front of W_in (S3) [D_emb]; null: W_in reads tokens
    )
    layers: int = 1  # stacked, each reading the states of the one below; the readout sees the states of all

    @property
    def gamma(self) -> float:
        return self.mean_degree / self.state_size if self.connectivity is None else self.connectivity

    @property
    def recurrent_gamma(self) -> float:
        """Share of nonzeros of W_rec, expected."""
        if isinstance(self.topology, ErdosRenyi):
            return self.gamma
        return self.topology.entries(self.state_size) / self.state_size**2

    @property
    def longest_row(self) -> float:
        """Entries of the fullest row of W_rec, about."""
        if isinstance(self.topology, ErdosRenyi):
            return min(self.state_size, largest_count(self.gamma * self.state_size, self.state_size))
        return self.topology.longest_row(self.state_size)

    @property
    def input_gamma(self) -> float:
        return self.gamma if self.input_connectivity is None else self.input_connectivity

    def matrices(self, vocab_size: int) -> list[tuple[int, int, float]]:
        """Rows, columns and expected share of nonzeros of each frozen matrix: W_rec, W_in, the embedding, then layer by layer."""
        recurrent = (self.state_size, self.state_size, self.recurrent_gamma)
        w_in = (self.state_size, self.embedding or vocab_size, self.input_gamma)
        embedding = [] if self.embedding is None else [(self.embedding, vocab_size, 1.0)]
        return [recurrent, w_in, *embedding] + (self.layers - 1) * 2 * [recurrent]  # above, W_in is as sparse as W_rec

    @property
    def leaks(self) -> tuple[float, float]:
        """The interval that the leaks are drawn from."""
        if self.continuous is None:
            return self.leak_min, self.leak_max
        return (self.continuous.step / self.continuous.time_constant,) * 2

    @property
    def decay(self) -> float:
        """What a leak is multiplied by where it fades the state: 1 but in continuous time."""
        return 1.0 if self.continuous is None else self.continuous.decay

    @property
    def dynamics(self) -> dict[str, str | float]:
        """What decides a time step beside the weights: the settings of a `Reservoir`."""
        return {"activation": self.activation, "decay": self.decay, "update_rule": self.update_rule}

    def check(self, field: str) -> None:
        """Raises InputError, naming the field below `field`, where a setting cannot be built."""

        def must(holds: bool, name: str, rule: str) -> None:
            if not holds:
                raise InputError(f"{field}.{name} is {getattr(self, name)}: {rule}")

        must(self.state_size >= 1, "state_size", "it must be at least 1")
        bernoulli, kind = isinstance(self.topology, ErdosRenyi), self.topology.kind
        if not bernoulli:
            rule = f"topology {kind} has a density of its own; leave it out, and for W_in give input_connectivity"
            must(self.connectivity is None, "connectivity", rule)
            self.topology.check(f"{field}.topology", self.state_size)
        if self.connectivity is not None:
            must(1e-12 < self.connectivity <= 1, "connectivity", "it must be above 1e-12 and at most 1")
        elif bernoulli or self.input_connectivity is None:
            must(
                0 < self.mean_degree <= self.state_size,
                "mean_degree",
                f"it must be above 0 and at most {field}.state_size = {self.state_size}, since "
                "connectivity = mean_degree / state_size; lower mean_degree or raise state_size",
            )
        if self.input_connectivity is not None:
            must(1e-12 < self.input_connectivity <= 1, "input_connectivity", "it must be above 1e-12 and at most 1")
        if self.continuous is not None:
            self.continuous.check(f"{field}.continuous")
        must(self.spectral_radius > 0, "spectral_radius", "it must be above 0")
        must(self.input_scale > 0, "input_scale", "it must be above 0")
        must(0 <= self.leak_min <= self.leak_max <= 1, "leak_min", "0 <= leak_min <= leak_max <= 1 must hold")
        must(self.activation in ("tanh", "relu"), "activation", "it must be tanh or relu")
        must(self.update_rule in RULES, "update_rule", f"choose {', '.join(RULES)}")
        must(self.embedding is None or self.embedding >= 1, "embedding", "it must be at least 1, or null for none")
        must(self.layers >= 1, "layers", "it must be at least 1")


@dataclass(frozen=True)
class Drawn:
    """A reservoir with what is worth recording of how it came about."""

    reservoir: Reservoir | Stack
    radii: tuple[SpectralRadius, ...]  # of M * V of each layer, before it was scaled
    redraws: int  # draws of a W_rec thrown away because their radius was 0


def draw(config: ReservoirConfig, vocab_size: int, seed: int, max_redraws: int = 100) -> Drawn:
    """Draws W_rec, W_in and the leak (S1, eq. 2-4) of each layer, and the embedding (S3); the same from the same seed.

    The embedding is N(0, 1). Above the first layer W_in is (N, N), as sparse as W_rec, with values N(0, sigma_in^2 / d): d
    outputs of size 1 then drive a unit as hard as a token drives those that it reaches, by N(0, sigma_in^2).

    Raises:
        InputError: every draw of a W_rec had radius 0.
    """
    size, width, shape = config.state_size, config.embedding, (config.embedding, vocab_size)
    embedding = None if width is None else generator(seed, Stream.EMBEDDING).standard_normal(shape, dtype=np.float32)
    degree = config.recurrent_gamma * size  # d
    inputs = [(width or vocab_size, config.input_gamma, config.input_scale)]
    inputs += [(size, config.recurrent_gamma, config.input_scale / np.sqrt(degree))] * (config.layers - 1)
    layers, radii, redraws = [], [], 0
    for layer, (columns, connectivity, scale) in enumerate(inputs):
        w_rec, radius, thrown_away = _draw_scaled(config, seed, layer, max_redraws)
        w_in = _bernoulli_gaussian(size, columns, connectivity, scale, generator(seed, Stream.INPUT, layer=layer))
        leak = generator(seed, Stream.LEAK, layer=layer).uniform(*config.leaks, size).astype(np.float32)
        layers.append(Reservoir(w_rec, w_in, leak, None if layer else embedding, **config.dynamics))
        radii.append(radius)
        redraws += thrown_away
    return Drawn(layers[0] if config.layers == 1 else Stack(layers), tuple(radii), redraws)


def _draw_scaled(
    config: ReservoirConfig, seed: int, layer: int, max_redraws: int
) -> tuple[BCOO | np.ndarray, SpectralRadius, int]:
    """W_rec = rho_rec / rho(M * V) * M * V, the radius of M * V, and how many draws had none.

    Where the topology fixes W_rec's values (ring, orthogonal), its radius is 1 before it is scaled, and none is sought.
    A W_rec of radius 0 (at a mean degree of 1 about one draw in 20 is nilpotent) cannot be scaled: it is drawn again
    from the next stream, and the log says so.
    """
    for redraws in range(max_redraws):
        w_rec, fixed = _draw_recurrent(config, generator(seed, Stream.RECURRENT, redraws, layer=layer))
        radius = (
            SpectralRadius(1.0, "topology", config.state_size)
            if fixed
            else spectral_radius(as_scipy(w_rec), seed=seed_sequence(seed, Stream.SPECTRAL_START, layer=layer))
        )
        if radius.disagreement > 0.01:
            log.warning(
                "spectral radius %.4g of W_rec: its two estimates differ by %.1f %%",
                radius.radius,
                100 * radius.disagreement,
            )
        if radius.radius > 0:
            break
        log.warning("W_rec has spectral radius 0 (nilpotent); drawing it again (draw %d)", redraws + 2)
    else:
        raise InputError(
            f"model.reservoir: {max_redraws} draws of W_rec at connectivity {config.recurrent_gamma:.3g} all have spectral radius 0"
            f"; raise {'mean_degree or connectivity' if isinstance(config.topology, ErdosRenyi) else 'topology.mean_degree'}"
        )
    scale = np.float32(config.spectral_radius / radius.radius)
    scaled = w_rec * scale if isinstance(w_rec, np.ndarray) else bcoo(w_rec.data * scale, w_rec.indices, w_rec.shape)
    return scaled, radius, redraws


def _draw_recurrent(config: ReservoirConfig, rng) -> tuple[BCOO | np.ndarray, bool]:
    """W_rec before it is scaled, and whether its topology fixes the values, which are N(0, 1) otherwise."""
    size = config.state_size
    if isinstance(config.topology, ErdosRenyi):
        return _bernoulli_gaussian(size, size, config.gamma, 1.0, rng), False
    row, column, value = draw_recurrent(config.topology, size, rng)
    values = rng.standard_normal(len(row), dtype=np.float32) if value is None else value
    if config.recurrent_gamma >= DENSE_FROM:
        w_rec = np.zeros((size, size), np.float32)
        w_rec[row, column] = values
    else:
        w_rec = bcoo(values, np.stack([row, column], axis=1), (size, size))
    return w_rec, value is not None


def _bernoulli_gaussian(rows, columns, connectivity, scale, rng) -> BCOO | np.ndarray:
    """M * V with M ~ Bernoulli(connectivity), V ~ N(0, scale**2), float32."""
    if connectivity >= DENSE_FROM:
        values = rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(scale)
        for row in values:  # a row at a time: the mask of a whole matrix would double its memory
            row[rng.random(columns, dtype=np.float32) >= connectivity] = 0
        return values
    row, column = erdos_renyi(rows, columns, connectivity, rng)
    values = rng.standard_normal(len(row), dtype=np.float32) * np.float32(scale)
    return bcoo(values, np.stack([row, column], axis=1), (rows, columns))
