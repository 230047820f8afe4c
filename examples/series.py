"""Real-valued benchmark sequences for echo state networks, and their error measure."""

import math

import numpy as np


def sine(steps: int, rate: float = 0.2, power: int = 1) -> np.ndarray:
    """Returns y(n) = 1/2 sin(rate n)^power, (steps, 1). The first examples of Jaeger 2001 have rate
    1/5 and power 7."""
    return 0.5 * np.sin(rate * np.arange(steps))[:, None] ** power


def mackey_glass(steps: int, tau: float = 17.0, discard: int = 1000) -> np.ndarray:
    """Returns the Mackey-Glass sequence at t = discard, discard + 1, ..., (steps, 1) float64.

        dy/dt = 0.2 y(t - tau) / (1 + y(t - tau)^10) - 0.1 y(t)

    It is integrated from y(t) = 1.2, t <= 0, by fourth-order Runge-Kutta in steps of 0.1. y(t -
    tau) at half a step is the cubic through its neighbours and their slopes, so that the whole
    stays of fourth order. The sequence is chaotic above tau 16.8.

    Args:
        steps: how many numbers.
        tau: the delay, a multiple of 0.1.
        discard: units of time before the first that is returned.
    """
    step, every = 0.1, 10
    lag = round(tau * every)

    def production(y: float) -> float:
        return 0.2 * y / (1 + y**10)

    # y[i] is y(i step - tau), halfway[i] lies between it and the next.
    y, halfway = [1.2] * (lag + 1), [1.2] * lag
    for i in range((discard + steps - 1) * every):
        now, early, middle, late = (
            y[-1],
            production(y[i]),
            production(halfway[i]),
            production(y[i + 1]),
        )
        k1 = early - 0.1 * now
        k2 = middle - 0.1 * (now + step / 2 * k1)
        k3 = middle - 0.1 * (now + step / 2 * k2)
        k4 = late - 0.1 * (now + step * k3)
        following = now + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        y.append(following)
        halfway.append((now + following) / 2 + step / 8 * (k1 - (late - 0.1 * following)))
    return np.array(y[lag + discard * every :: every])[:steps, None]


def narma10(steps: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the input and the output of a nonlinear system of order 10: (u, y), each (steps, 1)
    float64 (Atiya and Parlos 2000).

        y(n+1) = 0.3 y(n) + 0.05 y(n) (y(n) + ... + y(n-9)) + 1.5 u(n-9) u(n) + 0.1,   u ~ U(0, 0.5)

    Row n has u(n) and y(n+1), the first output that depends on u(n). The sequence starts from y =
    0.

    Raises:
        ValueError: the sequence of this seed diverges, which happens for few seeds.
    """
    u = np.random.default_rng(seed).uniform(0, 0.5, steps + 9)
    y = [0.0] * 10
    for n in range(9, steps + 9):
        y.append(0.3 * y[-1] + 0.05 * y[-1] * sum(y[-10:]) + 1.5 * u[n - 9] * u[n] + 0.1)
        if not math.fabs(y[-1]) < 10:
            raise ValueError(
                f"narma10: the sequence of seed {seed} diverges at step {n - 9}; choose another"
                " seed"
            )
    return u[9:, None], np.array(y[10:])[:, None]


def nrmse(found: np.ndarray, target: np.ndarray, variance: float | None = None) -> float:
    """Returns sqrt(mean (found - target)^2 / variance), which has no unit. Predicting the mean
    scores 1.

    Args:
        found, target: (T,) or (T, L), of one shape.
        variance: variance of the signal, for a short target; None: the target's variance, averaged
            over its L columns.

    Raises:
        ValueError: the shapes differ, or the target does not vary.
    """
    found, target = np.asarray(found), np.asarray(target)
    if found.shape != target.shape:
        raise ValueError(
            f"nrmse: found has shape {found.shape}, but target has {target.shape}: give equal"
            " shapes"
        )
    variance = float(np.var(target, axis=0).mean()) if variance is None else variance
    if not variance > 0:
        raise ValueError(
            f"nrmse: the variance is {variance:g}: it must be above 0; give that of a longer signal"
        )
    return float(np.sqrt(np.mean((found - target) ** 2) / variance))
