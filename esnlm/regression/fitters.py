"""The regressions by their name in `training.kind`."""

from esnlm.regression.base import Fitter
from esnlm.regression.lms import LeastMeanSquares
from esnlm.regression.ridge import Ridge
from esnlm.regression.rls import RecursiveLeastSquares

FITTERS: dict[str, type[Fitter]] = {
    "ridge": Ridge,
    "rls": RecursiveLeastSquares,
    "lms": LeastMeanSquares,
}
