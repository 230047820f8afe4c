"""All fits of a readout by regression, by the kind that a configuration names. A new one is a file and a line here."""

from esnlm.regression.base import Fitter
from esnlm.regression.lms import LeastMeanSquares
from esnlm.regression.ridge import Ridge
from esnlm.regression.rls import RecursiveLeastSquares

FITTERS: dict[str, type[Fitter]] = {fitter.kind: fitter for fitter in (Ridge, RecursiveLeastSquares, LeastMeanSquares)}
