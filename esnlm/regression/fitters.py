"""All fits of a readout by regression that `training.kind` can name, one line each."""

from pkgutil import resolve_name

from esnlm.regression.base import Fitter

FITTERS: dict[str, type[Fitter]] = {
    kind: resolve_name(fitter)
    for kind, fitter in {
        "ridge": "esnlm.regression.ridge:Ridge",
        "rls": "esnlm.regression.rls:RecursiveLeastSquares",
        "lms": "esnlm.regression.lms:LeastMeanSquares",
    }.items()
}
