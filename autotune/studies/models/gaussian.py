"""A Gaussian process for a few hundred points (Rasmussen and Williams, 2006), with a Matern 5/2 kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

Floats = NDArray[np.float64]

_JITTER = 1e-8


@dataclass(frozen=True)
class GaussianProcess:
    """A Gaussian process with mean zero before any data; see `fit`.

    Attributes:
        features: Shape (n, features).
        scales: Length scale of each feature.
        deviation: Standard deviation of the values.
        noise: Standard deviation of a measurement.
    """

    features: Floats
    scales: Floats
    deviation: float
    noise: float
    _factor: Floats
    _weights: Floats

    @classmethod
    def fit(
        cls,
        features: Floats,
        values: Floats,
        groups: Sequence[int],
        *,
        noise: float,
    ) -> GaussianProcess:
        """Returns the most probable process under weak priors.

        Args:
            features: Shape (n, features), each of about unit range.
            values: Shape (n,).
            groups: Group of each feature; features of a group share a length scale.
            noise: Approximate deviation of a measurement. The fitted noise is near it.
        """
        count = max(groups) + 1
        index = np.asarray(groups)
        centre = np.concatenate([np.zeros(count), [math.log(0.2), math.log(noise)]])
        width = np.concatenate([np.full(count, 0.8), [1.0, 0.5]])
        # Squared distances for each group of features, before division by the group's length scale.
        gaps = (features[:, None, :] - features[None, :, :]) ** 2
        squares = np.stack([gaps[:, :, index == g].sum(axis=2) for g in range(count)])

        def cost(x: Floats) -> tuple[float, Floats]:
            """Returns the negative logarithm of the posterior, and its gradient (their equation 5.9)."""
            scaled = squares * np.exp(-2 * x[:count])[:, None, None]
            root = math.sqrt(5) * np.sqrt(scaled.sum(axis=0))
            decay = np.exp(-root)
            signal = math.exp(2 * x[count]) * (1 + root + root**2 / 3) * decay
            ground = np.full(len(values), math.exp(2 * x[-1]))
            try:
                factor = cholesky(signal + np.diag(ground + _JITTER), lower=True)
            except np.linalg.LinAlgError:
                return 1e10, np.zeros_like(x)
            weights = cho_solve((factor, True), values)
            inverse = cho_solve((factor, True), np.eye(len(values)))
            pull = inverse - np.outer(weights, weights)
            slope = math.exp(2 * x[count]) * (5 / 3) * (1 + root) * decay
            gradient = np.concatenate(
                [
                    0.5 * np.einsum("ij,gij->g", pull * slope, scaled),
                    [(pull * signal).sum(), float(np.diag(pull) @ ground)],
                ]
            )
            offset = (x - centre) / width
            value = 0.5 * values @ weights + np.log(np.diag(factor)).sum() + 0.5 * offset @ offset
            return float(value), gradient + offset / width

        x = np.asarray(
            minimize(cost, centre, jac=True, method="L-BFGS-B", options={"maxiter": 30}).x
        )
        scales = np.exp(x[:count])[index]
        deviation, sigma = math.exp(x[count]), math.exp(x[-1])
        kernel = _kernel(features, features, scales) * deviation**2
        factor = cholesky(kernel + (sigma**2 + _JITTER) * np.eye(len(values)), lower=True)
        weights = cho_solve((factor, True), values)
        return cls(features, scales, deviation, sigma, factor, weights)

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """Predicts values without measurement noise: mean and standard deviation, each of shape (m,)."""
        cross = _kernel(features, self.features, self.scales) * self.deviation**2
        half = solve_triangular(self._factor, cross.T, lower=True)
        variance = self.deviation**2 - (half**2).sum(axis=0)
        return cross @ self._weights, np.sqrt(np.maximum(variance, 1e-12))

    def left_out(self) -> Floats:
        """Returns the error of each value when predicted from all others, shape (n,) (their section 5.4.2)."""
        inverse = cho_solve((self._factor, True), np.eye(len(self._weights)))
        return np.asarray(self._weights / np.diag(inverse))


def _kernel(one: Floats, other: Floats, scales: Floats) -> Floats:
    a, b = one / scales, other / scales
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2 * a @ b.T
    distance = math.sqrt(5) * np.sqrt(np.maximum(squares, 0.0))
    return np.asarray((1 + distance + distance**2 / 3) * np.exp(-distance))
