"""Whitening."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotropy.errors import SettingError
from isotropy.method import MethodSpec
from isotropy.settings import whole_number
from isotropy.transforms._reader import Reader
from isotropy.transforms._scatter import principal
from isotropy.transforms._transform import Invertible, centred, share


class Whitening(Invertible):
    r"""Makes the covariance of a cloud the identity, in all directions or in the k largest.

    $$y = \Lambda_k^{-1/2} V_k (x - \mu) \quad \text{(PCA)}, \qquad
      y = V_k^\top \Lambda_k^{-1/2} V_k (x - \mu) \quad \text{(ZCA)}$$

    with V_k the first k eigenvectors (rows) and Λ_k the eigenvalues of the covariance
    (1 − s)·C + s·(tr C/d)·1. PCA gives k features; ZCA gives d, as near to x as a white cloud can
    be. A direction with less variance than a share `floor` of the largest is mapped to 0: there is
    only rounding, which whitening would blow up, and a new row could get any size there. An
    eigenvector has no sign; its largest entry is made positive.

    Args:
        k: how many directions to keep, all by default.
        method: `"pca"` or `"zca"`.
        shrinkage: s, the share of the covariance that is replaced by a round one, from 0 to 1.
        floor: the least eigenvalue, as a share of the largest.

    Attributes:
        mean_: d, μ.
        components_: k×d, V_k.
        variances_: k, Λ_k; 0 for a direction that is mapped to 0.

    References:
        Su et al. 2021, "Whitening sentence representations for better semantics and faster
        retrieval"; Huang et al. 2021, "WhiteningBERT"; with row weights, Yokoi et al. 2024,
        "Zipfian whitening".

    Example:
        >>> x = np.random.default_rng(0).normal(size=(100, 3)) * [1, 5, 20] + 7
        >>> y = Whitening(k=2).fit_transform(x)
        >>> np.cov(y.T).round(6).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """

    arrays = ("mean_", "components_", "variances_")
    mean_: NDArray[np.float64]
    components_: NDArray[np.float64]
    variances_: NDArray[np.float64]

    def __init__(
        self,
        k: int | None = None,
        *,
        method: Literal["pca", "zca"] = "pca",
        shrinkage: float = 0.0,
        floor: float = 1e-6,
    ) -> None:
        self.k = k
        self.method = method
        self.shrinkage = shrinkage
        self.floor = floor

    def as_affine(self) -> tuple[Tensor, Tensor]:
        """The matrix of the map and the mean."""
        return self._matrix(_powers(self.variances_, -0.5)), torch.from_numpy(self.mean_)

    def _check_settings(self) -> None:
        if self.k is not None:
            whole_number("k", self.k, low=1)
        if self.method not in ("pca", "zca"):
            raise SettingError(f"got method={self.method!r}, expected 'pca' or 'zca'")
        share("shrinkage", self.shrinkage)
        share("floor", self.floor, below_one=True)

    def _check_features(self, features: int) -> None:
        if self.k is not None and self.k > features:
            raise SettingError(
                f"got k={self.k} for {features} features, expected {features} at most"
            )

    def _fit(self, reader: Reader) -> Mapping[str, Tensor]:
        scatter = reader.scatter()
        self._check_features(len(scatter.mean))
        k = len(scatter.mean) if self.k is None else self.k
        values, vectors = principal(scatter.covariance)
        values = (1 - self.shrinkage) * values + self.shrinkage * values.mean()
        values = torch.where(values > self.floor * values[0], values, 0)
        return {
            "mean_": scatter.mean,
            "components_": vectors[:k].contiguous(),
            "variances_": values[:k].contiguous(),
        }

    def _map(self, x: Tensor) -> Tensor:
        return centred(x, self.mean_) @ self._matrix(_powers(self.variances_, -0.5)).to(x)

    def _inverse(self, y: Tensor) -> Tensor:
        back = self._matrix(_powers(self.variances_, 0.5)).to(y).T
        return y @ back + self._fitted("mean_", y)

    def _matrix(self, factors: Tensor) -> Tensor:
        """The d×k directions, or the d×d product with themselves, with factors between."""
        directions = torch.from_numpy(self.components_).T
        scaled = directions * factors
        return scaled if self.method == "pca" else scaled @ directions.T

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0 if self.method == "pca" else 1])


def _powers(variances: NDArray[Any], power: float) -> Tensor:
    """Powers of variances; those of 0 are 0."""
    values = torch.from_numpy(variances)
    return torch.where(values > 0, values, 1).pow(power) * (values > 0)


SPEC = MethodSpec(
    name="whitening",
    kind="transform",
    component=Whitening,
    summary="covariance made the identity (PCA or ZCA)",
    reference=(
        "Su et al. 2021, Whitening sentence representations for better semantics and faster "
        "retrieval"
    ),
    differs=(
        "Directions without variance are mapped to 0 and not divided by it. With row weights the "
        "covariance is divided by Σw − Σw²/Σw, which is n − 1 for equal weights, where Zipfian "
        "whitening divides by Σw."
    ),
    measure="iso_score",
    moves="up",
)
