"""Removal of the mean and the top directions of every cluster."""

import warnings
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotropy.covariance import power_of_two
from isotropy.errors import InputError
from isotropy.method import MethodSpec
from isotropy.sampling import RowSample
from isotropy.settings import seed_number, whole_number
from isotropy.transforms._reader import Reader, equal_rows
from isotropy.transforms._scatter import Scatter, principal
from isotropy.transforms._transform import Transform, centred, directions_to_remove


class ClusterAllButTheTop(Transform):
    r"""Finds clusters, and removes the mean and the D top directions of each from its rows.

    $$y = \tilde x - \sum_{i \le D} (u_{c,i}^\top \tilde x)\, u_{c,i}, \qquad \tilde x = x - \mu_c$$

    with c the cluster whose centre is nearest to x, μ_c the mean of its rows and u_{c,i} the
    eigenvectors of their covariance. As every cluster's mean becomes 0, what the clusters stand for
    is lost. It cannot be undone.

    The centres are those of k-means on a random sample of the rows; means and directions come from
    all rows, in a second pass. A cluster has at most as many directions as its rows span.

    Args:
        clusters: how many; fewer if there are fewer different rows.
        d: D; by default one for every hundred features, and at least one.
        sample: how many rows to draw for k-means; all if there are no more.
        seed: of the sample and of k-means.

    Attributes:
        centers_: c×d, of k-means.
        means_: c×d, μ_c.
        components_: c×D×d, the directions; zeros where a cluster spans fewer.

    References:
        Rajaee & Pilehvar 2021, "A cluster-based approach for improving isotropy in contextual
        embedding space".

    Example:
        >>> x = np.array([[0.0, 1.0], [0.0, -1.0], [50.0, 2.0], [50.0, -2.0]])
        >>> ClusterAllButTheTop(clusters=2, d=0).fit_transform(x).tolist()
        [[0.0, 1.0], [0.0, -1.0], [0.0, 2.0], [0.0, -2.0]]
    """

    arrays = ("centers_", "means_", "components_")
    centers_: NDArray[np.float64]
    means_: NDArray[np.float64]
    components_: NDArray[np.float64]

    def __init__(
        self, clusters: int = 10, d: int | None = None, *, sample: int = 20_000, seed: int = 0
    ) -> None:
        self.clusters = clusters
        self.d = d
        self.sample = sample
        self.seed = seed

    def _check_settings(self) -> None:
        whole_number("clusters", self.clusters, low=1)
        if self.d is not None:
            whole_number("d", self.d, low=0)
        whole_number("sample", self.sample, low=2)
        seed_number("seed", self.seed)

    def _check_features(self, features: int) -> None:
        directions_to_remove(self.d, features)

    def _fit(self, reader: Reader) -> Mapping[str, Tensor]:
        centers = self._centers(reader)
        d = directions_to_remove(self.d, centers.shape[1])
        parts: dict[int, Scatter] = {}
        for chunk in reader.chunks("reading again"):
            nearest = _nearest(chunk.rows, centers)
            for cluster in nearest.bincount().nonzero()[:, 0].tolist():
                chosen = nearest == cluster
                weights = None if chunk.weights is None else chunk.weights[chosen]
                part = Scatter.of(chunk.rows[chosen], weights)
                parts[cluster] = parts[cluster] + part if cluster in parts else part
        # A cluster that has no row of its own has nothing to remove either.
        kept = sorted(parts)
        components = torch.zeros(len(kept), d, centers.shape[1], dtype=torch.float64)
        for i, cluster in enumerate(kept):
            if d and parts[cluster].products.any():
                values, vectors = principal(parts[cluster].products)
                spans = values[:d] > values[0] * 1e-12
                components[i] = torch.where(spans[:, None], vectors[:d], 0).cpu()
        return {
            "centers_": centers[kept],
            "means_": torch.stack([parts[cluster].mean for cluster in kept]),
            "components_": components,
        }

    def _centers(self, reader: Reader) -> Tensor:
        """The centres of k-means on a sample of the rows, c×d in float64."""
        from sklearn.cluster import KMeans  # here: importing it takes as long as torch
        from sklearn.exceptions import ConvergenceWarning

        sample = RowSample(self.sample, self.seed)
        for rows, numbers, weights, _ in reader.chunks("reading"):
            rows = rows.double()
            one = torch.ones_like(rows[:, 0]) if weights is None else weights
            sample.update(torch.cat((rows, one[:, None]), dim=1).cpu(), numbers)
        if sample.seen < max(2, self.clusters):
            raise InputError(
                f"got {reader.source.name} with {sample.seen} row{'s' * (sample.seen != 1)}, "
                f"expected at least {max(2, self.clusters)} for clusters={self.clusters}"
            )
        drawn = sample.rows()
        rows, weights = drawn[:, :-1], drawn[:, -1]
        middle = rows[0] + (rows - rows[0]).mean(dim=0)
        if torch.equal(rows.amin(dim=0), rows.amax(dim=0)):
            raise equal_rows(sample.seen, reader.source.name)
        rows = rows - middle
        scale = power_of_two(rows.abs().max())
        with warnings.catch_warnings():
            # Of fewer different rows than clusters: then there are fewer clusters.
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = KMeans(self.clusters, n_init=1, random_state=self.seed).fit(
                (rows / scale).numpy(), sample_weight=(weights / weights.max()).numpy()
            )
        centers = np.unique(found.cluster_centers_, axis=0)
        return torch.from_numpy(centers) * scale + middle

    def _map(self, x: Tensor) -> Tensor:
        nearest = _nearest(x, torch.from_numpy(self.centers_))
        y = torch.empty_like(x)
        for cluster in nearest.bincount().nonzero()[:, 0].tolist():
            chosen = (nearest == cluster).nonzero()[:, 0]
            rows = centred(x[chosen], self.means_[cluster])
            u = torch.from_numpy(self.components_[cluster]).to(x)
            y = y.index_copy(0, chosen, rows - (rows @ u.T) @ u)
        return y

    @property
    def _n_features_out(self) -> int:
        return int(self.means_.shape[1])


def _nearest(x: Tensor, centers: Tensor) -> Tensor:
    """The number of the nearest centre of every row."""
    middle = centers.mean(dim=0)
    apart = centers.to(x.device) - middle.to(x.device)
    scale = power_of_two(apart.abs().max())
    apart = (apart / scale).to(x)
    y = centred(x.detach(), middle.cpu().numpy()) / scale.to(x)
    return torch.addmm(apart.square().sum(dim=1), y, apart.T, alpha=-2).argmin(dim=1)


SPEC = MethodSpec(
    name="cluster-all-but-the-top",
    kind="transform",
    component=ClusterAllButTheTop,
    summary="mean and top directions of every cluster removed",
    reference=(
        "Rajaee & Pilehvar 2021, A cluster-based approach for improving isotropy in contextual "
        "embedding space"
    ),
    differs=(
        "New rows go to the cluster whose centre is nearest, where the released code clusters "
        "whatever it maps anew. Defaults are this project's: the paper tunes both numbers for each "
        "model."
    ),
    measure="iso_score",
    moves="up",
)
