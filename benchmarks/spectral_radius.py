"""Accuracy and cost of esnlm.reservoir.spectrum on random reservoirs: M * V, M ~ Bernoulli(degree / N), V ~ N(0, 1).

    OMP_NUM_THREADS=1 python benchmarks/spectral_radius.py --sizes 1024 2048 4096 --degrees 32 --seeds 20
    OMP_NUM_THREADS=1 python benchmarks/spectral_radius.py --arpack-sizes 65536 --degrees 32 --seeds 2

They are compared with all dense eigenvalues (numpy.linalg.eigvals) and with ARPACK (ncv 256, relative residual 1e-6).
Rows go to spectral_radius.json and .md under --out. A row that is measured again replaces the old one; the others stay.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

import measure
import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import eigs

from esnlm.io.atomic import write_files
from esnlm.reservoir.spectrum import spectral_radius
from esnlm.reservoir.topology.erdos_renyi import ErdosRenyi


def main() -> None:
    parser = measure.arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[], help="N compared with dense eigenvalues")
    parser.add_argument("--arpack-sizes", type=int, nargs="*", default=[], help="N compared with ARPACK")
    parser.add_argument("--degrees", type=float, nargs="+", default=[32], help="mean nonzeros per row")
    parser.add_argument("--seeds", type=int, default=20)
    args = parser.parse_args()
    cases = [(n, dense_radius) for n in args.sizes] + [(n, arpack_radius) for n in args.arpack_sizes]
    for n, reference in cases:
        for degree in args.degrees:
            row = measure_radius(n, degree, args.seeds, reference)
            print(json.dumps(row), flush=True)
            write(row, args.out)


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
    """Returns one row of the table. Where the radius found is 0 the error is the reference itself."""
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
    methods, machine = [f.method for f in found], measure.machine()
    return {
        "n": n,
        "degree": degree,
        "reference": reference.__name__.removesuffix("_radius"),
        "seeds": seeds,
        "median_relative_error": float(np.median(errors)),
        "max_relative_error": max(errors),
        "max_disagreement": max(f.disagreement for f in found),
        "max_residual": max(f.residual for f in found),
        "methods": {method: methods.count(method) for method in sorted(set(methods))},
        "median_products": float(np.median([f.products for f in found])),
        "max_products": max(f.products for f in found),
        "median_cpu_seconds": float(np.median(seconds)),
        "max_cpu_seconds": max(seconds),
        "median_reference_cpu_seconds": float(np.median(reference_seconds)),
        "command": measure.command(),
        "versions": machine["versions"],
        "machine": f"{measure.describe(machine)}, threads: {machine['threads'] or 'all'}",
    }


def write(row: dict, out: Path) -> None:
    """Puts a row among those of the result files."""
    path = out / "spectral_radius.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    key = ("reference", "n", "degree")
    rows = [old for old in rows if [old[k] for k in key] != [row[k] for k in key]] + [row]
    rows.sort(key=lambda r: (r["reference"] != "dense", r["n"], r["degree"]))
    out.mkdir(parents=True, exist_ok=True)
    write_files({path: json.dumps(rows, indent=1) + "\n", path.with_suffix(".md"): "\n".join(markdown(rows)) + "\n"})


def markdown(rows: list[dict]) -> list[str]:
    head = "against | N | d | seeds | median error | worst error | growth off | methods | products | s | against: s"
    cells = [
        [r["reference"], str(r["n"]), f"{r['degree']:g}", r["seeds"]]
        + [f"{r[key]:.1e}" for key in ("median_relative_error", "max_relative_error", "max_disagreement")]
        + [", ".join(f"{name} {count}" for name, count in r["methods"].items()), f"{r['median_products']:g}"]
        + [f"{r['median_cpu_seconds']:.2f}", f"{r['median_reference_cpu_seconds']:.1f}"]
        for r in rows
    ]
    lines = [
        "# Spectral radius: accuracy and cost",
        "",
        "M * V, M ~ Bernoulli(d / N), V ~ N(0, 1). Errors are relative to the reference (dense: numpy.linalg.eigvals; arpack:",
        "ncv 256, tol 1e-6), absolute where the radius is exactly 0 (nilpotent). Growth is the cross-check: its largest",
        "deviation from the Ritz value. Products and CPU seconds are medians.",
        "",
        *measure.table(head.split(" | "), cells),
    ]
    for title, field in (("Commands", "command"), ("Machine", "machine"), ("Versions", "versions")):
        values = [r[field] if isinstance(r[field], str) else json.dumps(r[field]) for r in rows]
        lines += ["", f"{title}:", "", *(f"- `{value}`" for value in dict.fromkeys(values))]
    return lines


if __name__ == "__main__":
    measure.as_command(main)
