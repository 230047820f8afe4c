"""Accuracy and cost of esnlm.reservoir.spectrum on random reservoirs: M * V, M ~ Bernoulli(degree / N), V ~ N(0, 1).

    OMP_NUM_THREADS=1 python benchmarks/spectral_radius.py --sizes 1024 2048 4096 --degrees 32 --seeds 20
    OMP_NUM_THREADS=1 python benchmarks/spectral_radius.py --arpack-sizes 65536 --degrees 32 --seeds 2

Against all dense eigenvalues (numpy.linalg.eigvals) and against ARPACK (ncv 256, relative residual 1e-6). Rows go to
spectral_radius.json and .md under --out; a row measured again replaces the old one, the others stay.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy
import scipy.sparse as sparse
from scipy.sparse.linalg import eigs

from esnlm.reservoir.spectrum import spectral_radius


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[], help="N compared with dense eigenvalues")
    parser.add_argument("--arpack-sizes", type=int, nargs="*", default=[], help="N compared with ARPACK")
    parser.add_argument("--degrees", type=float, nargs="+", default=[32], help="mean nonzeros per row")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results")
    args = parser.parse_args()
    cases = [(n, dense_radius) for n in args.sizes] + [(n, arpack_radius) for n in args.arpack_sizes]
    for n, reference in cases:
        for degree in args.degrees:
            row = measure(n, degree, args.seeds, reference)
            print(json.dumps(row), flush=True)
            write(row, args.out)


def dense_radius(matrix: sparse.csr_array) -> float:
    return float(np.abs(np.linalg.eigvals(matrix.toarray())).max())


def arpack_radius(matrix: sparse.csr_array) -> float:
    start = np.random.default_rng(0).standard_normal(matrix.shape[0])
    return float(np.abs(eigs(matrix, k=2, ncv=256, tol=1e-6, v0=start, return_eigenvectors=False)).max())


def reservoir(n: int, degree: float, seed: int) -> sparse.csr_array:
    rng = np.random.default_rng([seed, n])
    positions = rng.choice(n * n, size=rng.binomial(n * n, degree / n), replace=False, shuffle=False)
    return sparse.csr_array((rng.standard_normal(positions.size), np.divmod(positions, n)), shape=(n, n))


def measure(n: int, degree: float, seeds: int, reference: Callable[[sparse.csr_array], float]) -> dict:
    """One table row. Where the radius found is 0 the error is the reference itself."""
    errors, found, seconds, reference_seconds = [], [], [], []
    for seed in range(seeds):
        matrix = reservoir(n, degree, seed)
        start = time.process_time()
        result = spectral_radius(matrix, seed=seed)
        halfway = time.process_time()
        expected = reference(matrix)
        reference_seconds.append(time.process_time() - halfway)
        seconds.append(halfway - start)
        found.append(result)
        errors.append(abs(result.radius / expected - 1) if result.radius > 0 else expected)
    methods = [f.method for f in found]
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
        "command": " ".join(["python", "benchmarks/spectral_radius.py", *sys.argv[1:]]),
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__},
        "machine": f"{cpu_model()}, {os.cpu_count()} cores, BLAS threads: {os.environ.get('OMP_NUM_THREADS', 'all')}",
    }


def cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def write(row: dict, out: Path) -> None:
    path = out / "spectral_radius.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    key = ("reference", "n", "degree")
    rows = [old for old in rows if [old[k] for k in key] != [row[k] for k in key]] + [row]
    rows.sort(key=lambda r: (r["reference"] != "dense", r["n"], r["degree"]))
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1) + "\n")
    path.with_suffix(".md").write_text(markdown(rows))


def markdown(rows: list[dict]) -> str:
    lines = [
        "# Spectral radius: accuracy and cost",
        "",
        "M * V, M ~ Bernoulli(d / N), V ~ N(0, 1), in float64. Errors are relative to the reference (dense:",
        "numpy.linalg.eigvals; arpack: ncv 256, tol 1e-6), absolute where the radius is exactly 0 (nilpotent).",
        "Growth is the cross-check: its largest deviation from the Ritz value. Products and CPU seconds are medians.",
        "",
        "| against | N | d | seeds | median error | worst error | growth off | methods | products | s | against: s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in rows:
        methods = ", ".join(f"{name} {count}" for name, count in r["methods"].items())
        lines.append(
            f"| {r['reference']} | {r['n']} | {r['degree']:g} | {r['seeds']} | {r['median_relative_error']:.1e} "
            f"| {r['max_relative_error']:.1e} | {r['max_disagreement']:.1e} | {methods} | {r['median_products']:g} "
            f"| {r['median_cpu_seconds']:.2f} | {r['median_reference_cpu_seconds']:.1f} |"
        )
    for title, field in (("Commands", "command"), ("Machine", "machine"), ("Versions", "versions")):
        values = [r[field] if isinstance(r[field], str) else json.dumps(r[field]) for r in rows]
        lines += ["", f"{title}:", "", *(f"- `{value}`" for value in dict.fromkeys(values))]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
