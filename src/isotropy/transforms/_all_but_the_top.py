"""Removal of the mean and the top directions."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotropy.method import MethodSpec
from isotropy.settings import whole_number
from isotropy.transforms._reader import Reader
from isotropy.transforms._scatter import principal
from isotropy.transforms._transform import Transform, centred, directions_to_remove


class AllButTheTop(Transform):
    r"""Subtracts the mean and what lies along the D directions of the largest variance.

    $$y = \tilde x - \sum_{i \le D} (u_i^\top \tilde x)\, u_i, \qquad \tilde x = x - \mu$$

    with u_i the eigenvectors of the covariance. It cannot be undone.

    Args:
        d: D; by default one for every hundred features, as the paper advises, and at least one.

    Attributes:
        mean_: d, μ.
        components_: D×d, the directions.

    References:
        Mu & Viswanath 2018, "All-but-the-top: simple and effective postprocessing for word
        representations".

    Example:
        >>> x = np.array([[9.0, 1.0], [-9.0, 1.0], [0.0, 2.0], [0.0, 0.0]])
        >>> AllButTheTop(d=1).fit_transform(x).round(6).tolist()
        [[0.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
    """

    arrays = ("mean_", "components_")
    mean_: NDArray[np.float64]
    components_: NDArray[np.float64]

    def __init__(self, d: int | None = None) -> None:
        self.d = d

    def as_affine(self) -> tuple[Tensor, Tensor]:
        """The projection and the mean."""
        u = torch.from_numpy(self.components_)
        one = torch.eye(u.shape[1], dtype=u.dtype)
        return one - u.T @ u, torch.from_numpy(self.mean_)

    def _check_settings(self) -> None:
        if self.d is not None:
            whole_number("d", self.d, low=0)

    def _check_features(self, features: int) -> None:
        directions_to_remove(self.d, features)

    def _fit(self, reader: Reader) -> Mapping[str, Tensor]:
        scatter = reader.scatter()
        d = directions_to_remove(self.d, len(scatter.mean))
        _, vectors = principal(scatter.covariance)
        return {"mean_": scatter.mean, "components_": vectors[:d].contiguous()}

    def _map(self, x: Tensor) -> Tensor:
        y = centred(x, self.mean_)
        u = self._fitted("components_", x)
        return y - (y @ u.T) @ u

    @property
    def _n_features_out(self) -> int:
        return len(self.mean_)


SPEC = MethodSpec(
    name="all-but-the-top",
    kind="transform",
    component=AllButTheTop,
    summary="mean and top directions removed",
    reference=(
        "Mu & Viswanath 2018, All-but-the-top: simple and effective postprocessing for word "
        "representations"
    ),
    measure="iso_score",
    moves="up",
)
