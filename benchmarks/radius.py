"""The spectral radius of random matrices, and its time, against all eigenvalues computed densely
and, above --dense-up-to units, against six of ARPACK (of two it may miss the largest).

    OMP_NUM_THREADS=1 python benchmarks/radius.py --sizes 1024 2048 4096 65536 --seeds 5

The matrices are W_rec before scaling: N d entries drawn from N(0, 1). Writes radius.json and
.md under --out.
"""

import statistics
import time

import measure
import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import eigs

from esnlm.reservoir.spectrum import spectral_radius


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 2048])
    parser.add_argument("--degrees", type=int, nargs="+", default=[32])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--dense-up-to", type=int, default=4096)
    args = parser.parse_args(arguments)
    record = measure.begin() | {"rows": []}
    for size, degree in ((size, degree) for size in args.sizes for degree in args.degrees):
        reference = dense if size <= args.dense_up_to else arpack
        errors, seconds, reference_seconds = [], [], []
        for seed in range(args.seeds):
            matrix = sparse.random_array(
                (size, size),
                density=degree / size,
                format="csr",
                rng=seed,
                data_sampler=np.random.default_rng(seed).standard_normal,
            )
            began = time.perf_counter()
            radius = spectral_radius(matrix, seed=seed).radius
            seconds.append(time.perf_counter() - began)
            began = time.perf_counter()
            expected = reference(matrix)
            reference_seconds.append(time.perf_counter() - began)
            errors.append(abs(radius / expected - 1))
        row = {
            "reference": reference.__name__,
            "N": size,
            "d": degree,
            "seeds": args.seeds,
            "median error": f"{statistics.median(errors):.1e}",
            "worst error": f"{max(errors):.1e}",
            "s": f"{statistics.median(seconds):.2f}",
            "s of the reference": f"{statistics.median(reference_seconds):.1f}",
        }
        record["rows"].append(row)
        print(row, flush=True)
    table = measure.table(list(row), [list(row.values()) for row in record["rows"]])
    measure.write(args.out, "radius", "The spectral radius", table, record)
    return record


def dense(matrix: sparse.csr_array) -> float:
    return np.abs(np.linalg.eigvals(matrix.toarray())).max()


def arpack(matrix: sparse.csr_array) -> float:
    start = np.random.default_rng(1).standard_normal(matrix.shape[0])
    largest = eigs(matrix, k=6, ncv=256, v0=start, tol=1e-6, return_eigenvectors=False)
    return np.abs(largest).max()


if __name__ == "__main__":
    measure.as_command(main)
