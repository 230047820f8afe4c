"""The eigenvalues of W_rec in the plane, or for a large reservoir the radii that are known."""

import numpy as np

from esnlm.models.echo_state import EchoStateConfig
from esnlm.reporting.html.charts import plane, side_by_side
from esnlm.reporting.html.markup import Html, ask, join, note
from esnlm.reporting.html.material import Material
from esnlm.reservoir.arrays import as_scipy
from esnlm.reservoir.cell import Reservoir
from esnlm.reservoir.linearisation import describe_linearisation, is_known, linearise

PLACE = 65
TITLE = "Spectrum"
MOST_UNITS = 1024  # N: LAPACK takes seconds for the eigenvalues of so many, and eight times as long for twice as many
UNIT = {"unit circle": (1.0, "reference")}
EMPTY = np.empty(0, complex)


def render(run: Material) -> Html | None:
    model = run.experiment.model
    if not isinstance(model, EchoStateConfig):
        return None
    size, layers = model.reservoir.state_size, model.reservoir.layers
    if size * layers > MOST_UNITS:
        return _radii(run, f"The eigenvalues of more than {MOST_UNITS:,} units are not computed for a page.")
    if isinstance(run.loaded, Html):
        return run.loaded
    decay, rule, activation = model.reservoir.decay, model.reservoir.update_rule, model.reservoir.activation
    known = is_known(activation, rule)
    found = [_layer(layer, i, layers, decay, known) for i, layer in enumerate(run.loaded.model.reservoir.layers)]  # type: ignore[attr-defined]
    explained = (
        "Eigenvalues in the complex plane. Beside W_rec stands what a time step does near the state 0, where the leaks a"
        f" count: {describe_linearisation(rule, decay)}. An eigenvalue close to 1 is a slow memory."
        if known
        else f"Eigenvalues in the complex plane. What a time step does near the state 0 is not known of {activation} under {rule}."
    )
    return join(*found, note(explained))


def eigenvalues(layer: Reservoir, decay: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the eigenvalues of W_rec and of the linearisation at 0 (reservoir/linearisation.py), (N,) each."""
    w, linear = (
        each if isinstance(each, np.ndarray) else each.toarray()
        for each in (as_scipy(layer.stored_w_rec), linearise(layer, decay))
    )
    return np.linalg.eigvals(w), np.linalg.eigvals(linear)


def _layer(layer: Reservoir, number: int, layers: int, decay: float, known: bool) -> Html:
    of = f" of layer {number + 1}" if layers > 1 else ""
    figures = []
    w, linear = eigenvalues(layer, decay)
    for name, values in {"W_rec": w, **({"Linearisation at 0": linear} if known else {})}.items():
        radius = float(np.abs(values).max())
        says = f"{len(values):,} eigenvalues of {name}{of} in the complex plane, within a radius of {radius:.4g}"
        figures.append(plane(values, UNIT | {"spectral radius": (radius, "s0")}, says, name + of))
    return side_by_side(*figures)


def _radii(run: Material, reason: str) -> Html:
    """Returns the circles that `esnlm diagnose` knows."""
    if run.diagnostics is None:
        return ask(f"{reason} Radii and the largest singular value come with", f"esnlm diagnose --run {run.path}")
    theory = run.diagnostics["reservoirs"][0]["theory"]
    circles = {
        "spectral radius of W_rec": (float(theory["radius"]), "s0"),
        "largest singular value": (float(theory["sigma_max"]), "s1"),
    }
    if theory["linear_radius"] is not None:
        circles["radius of the linearisation at 0"] = float(theory["linear_radius"]), "s2"
    says = "; ".join(f"{name} {radius:.4g}" for name, (radius, _) in circles.items())
    return join(side_by_side(plane(EMPTY, UNIT | circles, says, "Radii")), note(reason))
