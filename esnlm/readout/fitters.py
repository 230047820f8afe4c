"""The regressions by their name in `training.kind`."""

from esnlm.readout.base import Fitter
from esnlm.readout.lms import LeastMeanSquares
from esnlm.readout.ridge import Ridge
from esnlm.readout.rls import RecursiveLeastSquares

FITTERS: dict[str, type[Fitter]] = {
    "ridge": Ridge,
    "rls": RecursiveLeastSquares,
    "lms": LeastMeanSquares,
}
