"""Accuracy and cost of esnlm.reservoir.spectrum on random reservoirs: M * V, M ~ Bernoulli(degree / N), V ~ N(0, 1).

    OMP_NUM_THREADS=1 python benchmarks/spectral_radius.py --sizes 1024 2048 4096 --degrees 32 --seeds 20
    OMP_NUM_THREADS=1 python benchmarks/spectral_radius.py --arpack-sizes 65536 --degrees 32 --seeds 2

They are compared with all dense eigenvalues (numpy.linalg.eigvals) and with ARPACK (ncv 256, relative residual 1e-6).
Writes spectral_radius.json and .md under --out.
"""

import time
from collections import Counter
from collections.abc import Callable

import measure
import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import eigs

from esnlm.reservoir.spectrum import spectral_radius
from esnlm.reservoir.topology.erdos_renyi import ErdosRenyi


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[], help="N compared with dense eigenvalues")
    parser.add_argument("--arpack-sizes", type=int, nargs="*", default=[], help="N compared with ARPACK")
    parser.add_argument("--degrees", type=float, nargs="+", default=[32], help="mean nonzeros per row")
    parser.add_argument("--seeds", type=int, default=20)
    args = parser.parse_args(arguments)
    record = measure.begin() | {"rows": []}
    cases = [("dense", n, dense_radius) for n in args.sizes] + [("arpack", n, arpack_radius) for n in args.arpack_sizes]
    for name, n, reference in cases:
        for degree in args.degrees:
            row = {"against": name, "N": n, "d": degree, "seeds": args.seeds}
            record["rows"].append(row | measure_radius(n, degree, args.seeds, reference))
            print(record["rows"][-1], flush=True)
            measure.write(args.out, "spectral_radius", "Spectral radius: accuracy and cost", markdown(record), record)
    return record


def dense_radius(matrix: sparse.csr_array) -> float:
    """Returns the spectral radius by all eigenvalues."""
    return float(np.abs(np.linalg.eigvals(matrix.toarray())).max())


def arpack_radius(matrix: sparse.csr_array) -> float:
    """Returns the spectral radius by ARPACK."""
    start = np.random.default_rng(0).standard_normal(matrix.shape[0])
    return float(np.abs(eigs(matrix, k=2, ncv=256, tol=1e-6, v0=start, return_eigenvectors=False)).max())


def random_matrix(n: int, degree: float, seed: int) -> sparse.csr_array:
    """Draws the W_rec of Ueda et al. 2025a before it is scaled."""
    rng = np.random.default_rng([seed, n])
    connections = ErdosRenyi().connect(n, degree / n, rng)
    return sparse.csr_array((connections.values(rng), (connections.row, connections.column)), shape=(n, n))


def measure_radius(n: int, degree: float, seeds: int, reference: Callable[[sparse.csr_array], float]) -> dict:
    """Returns the figures of a row. Where the radius found is 0 the error is the reference itself."""
    errors, found, seconds, reference_seconds = [], [], [], []
    for seed in range(seeds):
        matrix = random_matrix(n, degree, seed)
        start = time.process_time()
        result = spectral_radius(matrix, seed=seed)
        halfway = time.process_time()
        expected = reference(matrix)
        reference_seconds.append(time.process_time() - halfway)
        seconds.append(halfway - start)
        found.append(result)
        errors.append(abs(result.radius / expected - 1) if result.radius > 0 else expected)
    methods = Counter(each.method for each in found)
    return {
        "median error": f"{np.median(errors):.1e}",
        "worst error": f"{max(errors):.1e}",
        "growth off": f"{max(each.disagreement for each in found):.1e}",
        "methods": ", ".join(f"{name} {count}" for name, count in sorted(methods.items())),
        "products": float(np.median([each.products for each in found])),
        "s": float(np.median(seconds)),
        "against: s": float(np.median(reference_seconds)),
    }


def markdown(record: dict) -> list[str]:
    return [
        "M * V, M ~ Bernoulli(d / N), V ~ N(0, 1). Errors are relative to the reference (dense: numpy.linalg.eigvals; arpack:",
        "ncv 256, tol 1e-6), absolute where the radius is exactly 0 (nilpotent). Growth is the cross-check: its largest",
        "deviation from the Ritz value. Products and CPU seconds are medians.",
        "",
        *measure.table(list(record["rows"][0]), [row.values() for row in record["rows"]]),
    ]


if __name__ == "__main__":
    measure.as_command(main)
