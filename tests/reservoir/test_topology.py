"""Topologies as they are defined, and a new one: one class, which a configuration can name."""

import networkx as nx
import numpy as np
import pytest

from esnlm.reservoir.topology import (
    TOPOLOGIES,
    Antisymmetric,
    BlockDiagonal,
    ErdosRenyi,
    FixedInDegree,
    Orthogonal,
    Ring,
    ScaleFree,
    SmallWorld,
)


def connect(kind, size, seed=0):
    """Draws the connections of a topology that has a density of its own."""
    return kind.connect(size, 0.0, np.random.default_rng(seed))


def dense(kind, size, seed=0):
    """Returns the matrix of a topology, with ones where it leaves the values open."""
    row, column, value = connect(kind, size, seed)
    w = np.zeros((size, size))
    w[row, column] = 1 if value is None else value
    return w


def assert_sorted_without_duplicates(row, column, rows, columns):
    flat = row.astype(np.int64) * columns + column
    assert (np.diff(flat) > 0).all()
    assert row.min() >= 0 and row.max() < rows and column.min() >= 0 and column.max() < columns


KINDS = [
    FixedInDegree(degree=6), Ring(), SmallWorld(degree=6, rewiring=0.3), ScaleFree(edges=3),
    BlockDiagonal(blocks=4, mean_degree=6), Orthogonal(degree=8), Antisymmetric(mean_degree=6),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_topology_gives_sorted_positions_that_its_seed_decides(kind):
    assert TOPOLOGIES[kind.kind] is type(kind)
    row, column, value = connect(kind, 60)
    assert row.dtype == column.dtype == np.int32 and len(row) == len(column)
    assert_sorted_without_duplicates(row, column, 60, 60)
    assert (value is None) != (kind.kind in ("ring", "orthogonal", "antisymmetric"))
    assert np.array_equal(dense(kind, 60), dense(kind, 60))
    assert kind == Ring() or not np.array_equal(dense(kind, 60, 0), dense(kind, 60, 1))


@pytest.mark.parametrize("size", [60, 1001])
@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.kind != "block_diagonal"], ids=lambda kind: kind.kind
)
def test_topologies_know_their_entries_before_they_are_drawn(kind, size):
    rows = [np.bincount(connect(kind, size, seed)[0], minlength=size) for seed in range(10)]
    entries = np.array([row.sum() for row in rows])
    # Exact but for orthogonal, where a few paths meet: there within 5 standard errors, and 1 % for
    # the mean-field count.
    tolerance = 5 * entries.std(ddof=1) / np.sqrt(10) + (
        0.01 * entries.mean() if kind.kind == "orthogonal" else 0
    )
    assert abs(entries.mean() - kind.entries(size, 0.0)) <= tolerance


def test_antisymmetric_is_minus_its_transpose_on_a_random_graph():
    """Eigenvalues are imaginary. Over 500 draws every pair of units is joined equally often, and no
    unit to itself."""
    w = dense(Antisymmetric(mean_degree=6), 60)
    assert np.array_equal(w, -w.T) and np.abs(np.linalg.eigvals(w).real).max() < 1e-12
    values = connect(Antisymmetric(mean_degree=6), 4096).value
    assert abs(values.std() - 1) < 5 / np.sqrt(len(values)) and values.sum() == pytest.approx(
        0, abs=1e-2
    )
    rng, hits = np.random.default_rng(0), np.zeros((12, 12))
    for _ in range(500):
        row, column, _ = Antisymmetric(mean_degree=3).connect(12, 0.0, rng)
        hits[row, column] += 1
    p = 3 / 11
    assert np.abs(hits[~np.eye(12, dtype=bool)] / 500 - p).max() < 4 * np.sqrt(p * (1 - p) / 500)
    assert not np.diag(hits).any()


@pytest.mark.parametrize("degree", [1, 2, 4, 5])
def test_fixed_in_degree_draws_every_set_of_columns_equally_often(degree):
    rng, sets, repeated = np.random.default_rng(0), {}, 0
    for _ in range(1000):
        row, column, _ = FixedInDegree(degree=degree).connect(5, 0.0, rng)
        assert np.array_equal(row, np.repeat(np.arange(5), degree))
        rows = [tuple(columns) for columns in column.reshape(5, degree)]
        for columns in rows:
            sets[columns] = sets.get(columns, 0) + 1
        repeated += rows[0] == rows[1]
    classes = {1: 5, 2: 10, 4: 5, 5: 1}[degree]
    assert len(sets) == classes
    deviation = np.abs(np.array(list(sets.values())) - 5000 / classes).max()
    assert deviation <= 4.5 * np.sqrt(5000 / classes * (1 - 1 / classes))
    assert abs(repeated - 1000 / classes) <= 4.5 * np.sqrt(1000 / classes * (1 - 1 / classes))


def test_a_ring_is_one_cycle():
    expected = [[0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]  # unit 3 feeds unit 0
    assert np.array_equal(dense(Ring(), 4), expected)
    assert np.array_equal(dense(Ring(), 1), [[1]])


def test_blocks_do_not_feed_each_other_and_are_full_of_coins():
    rng = np.random.default_rng(0)
    hits = np.zeros((12, 12))
    for _ in range(500):
        row, column, _ = BlockDiagonal(blocks=3, mean_degree=1.5).connect(12, 0.0, rng)
        hits[row, column] += 1
    inside = np.kron(np.eye(3), np.ones((4, 4))) > 0
    assert not hits[~inside].any()
    p = 1.5 / 4
    assert np.abs(hits[inside] / 500 - p).max() < 4 * np.sqrt(p * (1 - p) / 500)


@pytest.mark.parametrize("size, degree", [(1, 1), (64, 1), (101, 2), (64, 16), (101, 16), (64, 64)])
def test_orthogonal_is_orthogonal(size, degree):
    w = dense(Orthogonal(degree=degree), size)
    # Each entry was rounded to float32, by at most eps / 2 of itself; rows have norm 1, so no
    # product moves by more than eps.
    np.testing.assert_allclose(w @ w.T, np.eye(size), atol=np.finfo(np.float32).eps, rtol=0)
    assert np.count_nonzero(w, axis=1).max() <= degree
    np.testing.assert_allclose(np.abs(np.linalg.eigvals(w)), 1, rtol=1e-6)


def statistics(graph):
    """What tells graphs of one size apart: the degrees, the clustering, the paths."""
    degrees = np.array([degree for _, degree in graph.degree()])
    return [
        degrees.mean(), degrees.var(), degrees.max(), (degrees == np.median(degrees)).mean(),
        nx.average_clustering(graph), nx.transitivity(graph), nx.average_shortest_path_length(graph),
    ]  # fmt: skip


def assert_same_mean(samples, others):
    """Means over seeds agree within 5 standard errors; what does not vary agrees to rounding."""
    samples, others = np.array(samples), np.array(others)
    error = np.sqrt(samples.var(0, ddof=1) / len(samples) + others.var(0, ddof=1) / len(others))
    assert (np.abs(samples.mean(0) - others.mean(0)) <= 5 * error + 1e-12).all()


def undirected(w):
    assert np.array_equal(w, w.T) and not np.diag(w).any()
    return nx.from_numpy_array(w)


@pytest.mark.parametrize("rewiring", [0.0, 0.3, 1.0])
def test_small_world_is_the_graph_of_watts_and_strogatz(rewiring):
    ours = [
        undirected(dense(SmallWorld(degree=8, rewiring=rewiring), 80, seed)) for seed in range(20)
    ]
    theirs = [nx.watts_strogatz_graph(80, 8, rewiring, seed=seed) for seed in range(20)]
    assert_same_mean([statistics(graph) for graph in ours], [statistics(graph) for graph in theirs])
    lattice = nx.to_numpy_array(nx.watts_strogatz_graph(80, 8, 0))
    kept = [
        [(lattice * nx.to_numpy_array(graph, nodelist=range(80))).sum() for graph in graphs]
        for graphs in (ours, theirs)
    ]
    assert_same_mean(*kept)


@pytest.mark.parametrize("edges", [1, 4])
def test_scale_free_is_the_graph_of_barabasi_and_albert(edges):
    ours = [undirected(dense(ScaleFree(edges=edges), 80, seed)) for seed in range(20)]
    theirs = [nx.barabasi_albert_graph(80, edges, seed=seed) for seed in range(20)]
    assert_same_mean([statistics(graph) for graph in ours], [statistics(graph) for graph in theirs])
    by_age = [
        [[degree for _, degree in graph.degree()][:12] for graph in graphs]
        for graphs in (ours, theirs)
    ]
    assert_same_mean(*by_age)  # the oldest units are the hubs


def test_erdos_renyi_knows_its_entries():
    """Its density is the reservoir's."""
    row, column, value = ErdosRenyi().connect(4096, 6 / 4096, np.random.default_rng(0))
    assert_sorted_without_duplicates(row, column, 4096, 4096)
    assert value is None
    assert ErdosRenyi().entries(4096, 6 / 4096) == 4096 * 6 and abs(
        len(row) - 4096 * 6
    ) < 5 * np.sqrt(4096 * 6)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [type(kind)() for kind in KINDS], ids=lambda kind: kind.kind)
def test_the_papers_largest_recurrent_matrix_in_every_topology(kind):
    n, d = 65_536, 1 if kind == Ring() else 32
    row, column, value = connect(kind, n)
    assert_sorted_without_duplicates(row, column, n, n)
    assert abs(len(row) - n * d) < 5 * np.sqrt(n * d)
