"""Linear discriminant analysis of a regression's scores: class probabilities by Bayes' rule.

If the scores s of a row of class k are normal with the mean m_k and a covariance S that all classes
share, then with the shares p_k of the classes and the mean m of all rows

    log p(k | s) = log p_k + (m_k - m) S^-1 (s - m) - (m_k - m) S^-1 (m_k - m) / 2 + const(s)

(Hastie, Tibshirani and Friedman, The Elements of Statistical Learning, section 4.3), which is
affine in s. Rare classes are smoothed [ours]: m_k - m and p_k have one more row, of the mean of all
scores, and S has one row's worth of the covariance of all scores, so that classes that are never
confused get finite log-probabilities.
"""

import numpy as np

from esnlm.readout.least_squares import Moments, RidgeSums, Solution


class DiscriminantSums(RidgeSums):
    """Sums of a ridge regression onto one-hot classes whose outputs become log-probabilities.

    The moments of the scores are those of held-out folds, if the other folds have their classes,
    too.
    """

    def _solve(self) -> Solution:
        """Returns W and b of log p of each class, up to a term common to all classes."""
        relative_penalty, w, intercept = super()._solve()
        slopes, constants = linear_discriminant(self.held_out_moments(relative_penalty))
        return Solution(relative_penalty, slopes @ w, slopes @ intercept + constants)


def linear_discriminant(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Returns A (C, C) and c (C,) of log p(k | s) = A s + c, up to a term common to all classes.

    `moments` are those of rows (s, d), (2 C,), with scores s and one-hot classes d. The scores
    should be those of rows that the regression has not seen.
    """
    n_rows, classes = moments.n_rows, len(moments.mean) // 2
    mean_score, share = np.split(moments.mean, 2)
    total_scatter = moments.scatter[:classes, :classes]
    class_sums = moments.scatter[classes:, :classes]  # sums of s - m over the rows of each class
    class_rows = share * n_rows
    offsets = class_sums / (class_rows + 1)[:, None]  # m_k - m
    between = class_sums.T @ offsets + offsets.T @ class_sums - (class_rows * offsets.T) @ offsets
    covariance = (total_scatter - between + total_scatter / n_rows) / n_rows
    slopes = offsets @ np.linalg.pinv(covariance, rcond=1e-9, hermitian=True)
    log_prior = np.log((class_rows + 1) / (n_rows + classes))
    return slopes, log_prior - np.sum(slopes * offsets, axis=1) / 2 - slopes @ mean_score
