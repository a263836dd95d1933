"""Standard scores of every feature."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin
from torch import Tensor

from isotropy.method import MethodSpec
from isotropy.transforms._reader import Reader
from isotropy.transforms._transform import Invertible, centred

# A deviation of this share of the largest value of a feature is nothing but rounding.
_ROUNDING = 1e-14


class Standardize(OneToOneFeatureMixin, Invertible):  # type: ignore[misc] # scikit-learn has no types
    r"""Gives every feature mean 0 and standard deviation 1.

    $$y_j = (x_j - \mu_j) / \sigma_j, \qquad \sigma_j^2 = \tfrac{1}{n-1} \sum_i (x_{ij} - \mu_j)^2$$

    It takes the largest features' dominance away, and leaves their correlations. A constant feature
    becomes 0.

    Attributes:
        mean_: d, μ.
        deviations_: d, σ; 0 for a constant feature.

    References:
        Timkey & van Schijndel 2021, "All bark and no bite: rogue dimensions in transformer language
        models obscure representational quality".

    Example:
        >>> Standardize().fit_transform(np.array([[1.0, 5.0], [3.0, 5.0], [5.0, 5.0]])).tolist()
        [[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
    """

    arrays = ("mean_", "deviations_")
    mean_: NDArray[np.float64]
    deviations_: NDArray[np.float64]

    def as_affine(self) -> tuple[Tensor, Tensor]:
        """The matrix of the map and the mean."""
        return torch.diag(self._factors()), torch.from_numpy(self.mean_)

    def _check_settings(self) -> None:
        pass

    def _fit(self, reader: Reader) -> Mapping[str, Tensor]:
        scatter = reader.scatter(diagonal=True)
        deviations = scatter.covariance.clamp(min=0).sqrt()
        varies = deviations > _ROUNDING * scatter.mean.abs()
        return {"mean_": scatter.mean, "deviations_": torch.where(varies, deviations, 0)}

    def _map(self, x: Tensor) -> Tensor:
        return centred(x, self.mean_) * self._factors().to(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return y * self._fitted("deviations_", y) + self._fitted("mean_", y)

    def _factors(self) -> Tensor:
        deviations = torch.from_numpy(self.deviations_)
        return torch.where(deviations > 0, deviations, torch.inf).reciprocal()

    @property
    def _n_features_out(self) -> int:
        return len(self.mean_)


SPEC = MethodSpec(
    name="standardize",
    kind="transform",
    component=Standardize,
    summary="every feature to mean 0 and standard deviation 1",
    reference=(
        "Timkey & van Schijndel 2021, All bark and no bite: rogue dimensions in transformer "
        "language models obscure representational quality"
    ),
    measure="iso_score",
    moves="up",
)
