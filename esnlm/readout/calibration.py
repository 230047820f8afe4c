"""From linear scores to log-probabilities, by rules that are affine in the features.

A regression onto one-hot next tokens scores every token v by y_v(h) = w_v h + c_v, an estimate of
p(v | h) that may be negative and need not sum to 1. Each rule gives logits o that are affine in h,
and thus an ordinary readout.

    softmax     o_v = y_v
    calibrated  o_v = log p_v + beta (y_v - f_v - s_v / 2) / p_v^gamma

Both are [ours]; the slides of Fujimaki 2026 give none. Scores lie near 0 .. 1, so softmax is nearly
uniform, with an NLL of about ln V.

In the calibrated rule f_v is the share of v in the training text, p its add-one unigram
probabilities, and s_v the mean of y_v - f_v over the training positions with next token v. beta and
gamma are fitted to the NLL of held-out text. At beta = gamma = 1 this is linear discriminant
analysis with the total covariance S: an exact regression has w_v = p_v S^-1 (mu_v - m), where mu_v
is the mean feature before v, so that o_v = log p_v + (mu_v - m) S^-1 (h - m) - (mu_v - m) S^-1
(mu_v - m) / 2. A gamma below 1 shrinks the means of rare tokens, which are mostly noise.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

LogProbs = Literal["calibrated", "softmax"]  # rules that turn linear scores into log-probabilities
Fitted = tuple[dict[str, np.ndarray], dict]  # a readout, and its record for the summary
PRIOR_MEAN, PRIOR_DEVIATION = (0.0, 0.7), (2.0, 0.5)  # of log beta and gamma
CHUNK = 512  # predictions whose logits exist at once


class HeldOut(NamedTuple):
    """Predictions for fitting a rule."""

    features: np.ndarray  # (n, F) float32
    targets: np.ndarray  # (n,) int


class Scores(NamedTuple):
    """Linear scores y = w h + intercept, with what the rules need of the training text."""

    w: np.ndarray  # (V, F) float32
    intercept: np.ndarray  # (V,)
    at_target: np.ndarray  # (V,): mean of y_v over the training positions with target v
    share: np.ndarray  # (V,): f, share of each token in the training text


@dataclass(frozen=True)
class Rule:
    """A rule with its fitted numbers, and its NLL of the held-out text in nats per token."""

    kind: str
    beta: float = 1.0
    gamma: float = 0.7
    nll: float = np.nan

    def readout(self, scores: Scores, log_p: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the logits as a readout of full rank: {"w" (V, F), "bias" (V,)} float32."""
        if self.kind == "softmax":
            return {"w": scores.w, "bias": scores.intercept.astype(np.float32)}
        scale = self.beta * np.exp(-self.gamma * log_p)
        bias = log_p + scale * _centred(scores)
        return {"w": scores.w * scale[:, None].astype(np.float32), "bias": bias.astype(np.float32)}

    def record(self) -> dict:
        """Returns the record for the summary."""
        numbers = {"beta": self.beta, "gamma": self.gamma} if self.kind == "calibrated" else {}
        return {"log_probs": self.kind, **numbers, "held_out": self.nll}


def linear_scores(
    w: np.ndarray, intercept: np.ndarray, sums: np.ndarray, counts: np.ndarray
) -> Scores:
    """Returns the scores of a regression, w (V, F) and intercept (V,).

    `sums` (V, F) add up the features before each token v, and `counts` (V,) is their number. The
    mean score of a token without any is its intercept.
    """
    at_target = np.einsum("vf,vf->v", w, sums) / np.where(counts > 0, counts, 1) + intercept
    return Scores(np.asarray(w, np.float32), intercept, at_target, counts / counts.sum())


def fit_rule(
    scores: Scores, held_out: HeldOut, log_p: np.ndarray, rule: Rule, gamma_too: bool = True
) -> Rule:
    """Fits beta, and gamma if `gamma_too`, to held-out text, starting from `rule`.

    log_p (V,) is the unigram model. log beta and gamma have a normal prior [ours], of PRIOR_MEAN
    and PRIOR_DEVIATION, with about the weight of one held-out token. Without it they would diverge
    if the scores predict every held-out token correctly. If scores are not finite, the NLL of the
    rule is nan.
    """
    softmax = rule.kind == "softmax"
    offset = jnp.asarray(scores.intercept if softmax else _centred(scores), jnp.float32)
    base = jnp.zeros(len(log_p), jnp.float32) if softmax else jnp.asarray(log_p, jnp.float32)
    w, count = jnp.asarray(scores.w), len(held_out.targets)
    chunks = [slice(start, start + CHUNK) for start in range(0, count, CHUNK)]
    parts = [
        (_scores(held_out.features[c], w, offset), held_out.targets[c].astype(np.int32))
        for c in chunks
    ]

    def mean_nll(numbers: np.ndarray | list[float]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the NLL at (log beta, gamma), and its gradient."""
        at = jnp.asarray(numbers, jnp.float32)
        results = [_nll_and_gradient(at, *part, base) for part in parts]
        loss = np.sum([np.float64(nll) for nll, _ in results])
        gradient = np.sum([np.asarray(slope, np.float64) for _, slope in results], axis=0)
        return loss / count, gradient / count

    if softmax:
        return Rule("softmax", nll=float(mean_nll([0.0, 0.0])[0]))
    start = np.array([np.log(rule.beta), rule.gamma])
    if not np.isfinite(mean_nll(start)[0]):
        return replace(rule, nll=np.nan)
    free = slice(0, 2 if gamma_too else 1)
    mean, deviation = np.array(PRIOR_MEAN)[free], np.array(PRIOR_DEVIATION)[free]

    def penalty(numbers: np.ndarray) -> float:
        """Returns -log of the prior's density up to a constant, divided by the number of tokens."""
        return float(np.sum(((numbers - mean) / deviation) ** 2)) / 2 / count

    def penalized_nll(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        loss, gradient = mean_nll([*numbers, *start[len(numbers) :]])
        slope = (numbers - mean) / deviation**2 / count
        return loss + penalty(numbers), gradient[free] + slope

    from scipy import optimize  # takes a tenth of a second

    fit = optimize.minimize(
        penalized_nll,
        start[free],
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 30, "ftol": 1e-7},
    )
    log_beta, gamma = np.concatenate([fit.x, start[len(fit.x) :]])
    return Rule(
        "calibrated", float(np.exp(log_beta)), float(gamma), float(fit.fun - penalty(fit.x))
    )


def calibrate(kind: str, scores: Scores, held_out: HeldOut, log_p: np.ndarray) -> Fitted:
    """Returns the readout from scores under a rule fitted to held-out text, and its record."""
    rule = fit_rule(scores, held_out, log_p, Rule(kind))
    return rule.readout(scores, log_p), rule.record()


def _centred(scores: Scores) -> np.ndarray:
    """Returns c_v - f_v - s_v / 2, (V,), with s_v = at_target_v - f_v."""
    return scores.intercept - (scores.at_target + scores.share) / 2


@jax.jit
def _scores(features: jax.Array, w: jax.Array, offset: jax.Array) -> jax.Array:
    return jnp.dot(features, w.T, precision=jax.lax.Precision.HIGHEST) + offset  # (C, V)


@jax.jit
@jax.value_and_grad
def _nll_and_gradient(
    numbers: jax.Array, scores: jax.Array, targets: jax.Array, base: jax.Array
) -> jax.Array:
    """Returns the sum of -log p of the targets; base is log p_v, or 0 for softmax."""
    o = base + scores * jnp.exp(numbers[0] - numbers[1] * base)
    return jnp.sum(
        jax.nn.logsumexp(o, axis=1) - jnp.take_along_axis(o, targets[:, None], axis=1)[:, 0]
    )
