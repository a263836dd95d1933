"""Isotropy inside clusters beside that of the whole cloud."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotropy.errors import InputError, IsotropyWarning, UndefinedError
from isotropy.inputs import ArrayLike, as_cloud, like
from isotropy.measures._iso_score_unbiased import iso_score_unbiased
from isotropy.measures._spec import MeasureSpec, Number
from isotropy.neighbours import centre_and_scale
from isotropy.settings import seed_number, whole_number

_MIN_ROWS = 4  # of a cluster, for the unbiased IsoScore


class LocalIsotropy(NamedTuple):
    """What `local_isotropy` gives.

    Attributes:
        inside: the mean unbiased IsoScore inside clusters, weighted by their rows.
        whole: the unbiased IsoScore of the whole cloud.
    """

    inside: Any
    whole: Any


def local_isotropy(
    x: ArrayLike,
    *,
    clusters: int = 10,
    labels: Sequence[Any] | NDArray[Any] | Tensor | None = None,
    seed: int = 0,
) -> LocalIsotropy:
    r"""Isotropy inside clusters, and of the whole: is a cloud anisotropic only by its clusters?

    $$\text{inside} = \frac{\sum_c n_c \, \text{IsoScore}(X_c)}{\sum_c n_c}, \qquad
    \text{whole} = \text{IsoScore}(X)$$

    with the unbiased IsoScore of `iso_score_unbiased`, of each cluster about its own mean.
    Clusters of fewer than 4 rows, or of rows that are all equal, are left out and counted in a
    warning. The clusters are k-means', from one start drawn with `seed`, or the given labels'.

    Args:
        x: n×d cloud, n ≥ 4 · clusters, or n ≥ 4 with labels. A gradient flows, through the scores
            and not through the choice of clusters.
        clusters: how many clusters k-means makes.
        labels: n labels of any kind, the clusters to take instead.
        seed: of k-means.

    Returns:
        Inside and whole: 0-d tensors for a tensor, floats for an array.

    References:
        Cai et al. 2021, "Isotropy in the contextual embedding space: clusters and manifolds".

    Example:
        Two round clusters, far from each other:

        >>> import torch
        >>> round_one = torch.randn(500, 8, generator=torch.Generator().manual_seed(0))
        >>> both = torch.cat((round_one, round_one + 20))
        >>> found = local_isotropy(both, clusters=2)
        >>> round(found.inside.item(), 1), round(found.whole.item(), 1)
        (1.0, 0.0)
    """
    whole_number("clusters", clusters, low=1)
    seed_number("seed", seed)
    cloud = as_cloud(x, min_rows=_MIN_ROWS * (clusters if labels is None else 1))
    groups = _k_means(cloud.detach(), clusters, seed) if labels is None else _numbered(labels)
    if len(groups) != len(cloud):
        raise InputError(
            f"got {len(groups)} labels for {len(cloud)} rows, expected one label a row"
        )

    scores, sizes = [], []
    left_out = 0
    order = torch.argsort(groups, stable=True)
    for rows in torch.split(order, torch.bincount(groups).tolist()):
        if not len(rows):  # of fewer different rows than clusters
            continue
        try:
            scores.append(iso_score_unbiased(cloud[rows.to(cloud.device)]))
            sizes.append(len(rows))
        except (InputError, UndefinedError):  # too few rows, or equal ones
            left_out += 1
    if not scores:
        raise UndefinedError(
            f"got {left_out} clusters, expected one with at least {_MIN_ROWS} rows that are not "
            "all equal; ask for fewer clusters"
        )
    if left_out:
        warnings.warn(
            f"local_isotropy left out {left_out} of {left_out + len(scores)} clusters "
            f"({len(cloud) - sum(sizes)} of {len(cloud)} rows), of fewer than {_MIN_ROWS} rows or "
            "of equal rows",
            IsotropyWarning,
            stacklevel=2,
        )
    values = torch.stack(scores)
    inside = values @ values.new_tensor(sizes) / sum(sizes)
    return LocalIsotropy(like(x, inside), like(x, iso_score_unbiased(cloud)))


def _k_means(cloud: Tensor, clusters: int, seed: int) -> Tensor:
    """N cluster numbers, on the CPU."""
    from sklearn.cluster import KMeans  # here: importing it takes longer than torch's share
    from sklearn.exceptions import ConvergenceWarning

    centre, scale = centre_and_scale(cloud)
    rows = ((cloud.to(torch.float64) - centre) / scale).to(cloud.dtype).cpu().numpy()
    with warnings.catch_warnings():
        # Of fewer different rows than clusters: then some clusters stay empty.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = KMeans(clusters, n_init=1, random_state=seed).fit(rows)
    return torch.from_numpy(fitted.labels_).long()


def _numbered(labels: Sequence[Any] | NDArray[Any] | Tensor) -> Tensor:
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.ndim != 1:
        raise InputError(f"got labels with shape {values.shape}, expected one label a row")
    try:
        return torch.from_numpy(np.unique(values, return_inverse=True)[1])
    except TypeError:
        raise InputError(
            "got labels of several types, expected labels that can be sorted; make them strings"
        ) from None


def _from_rows(rows: Tensor, clusters: int, seed: int) -> tuple[float, float]:
    found = local_isotropy(rows, clusters=clusters, seed=seed)
    return float(found.inside), float(found.whole)


SPEC = MeasureSpec(
    name="local_isotropy",
    function=local_isotropy,
    numbers=(
        Number("local_isotropy", low=0, isotropic=1, more_isotropic="higher"),
        Number("local_isotropy_global", low=0, isotropic=1, more_isotropic="higher"),
    ),
    summary="isotropy inside clusters, beside that of the whole",
    invariant_to=frozenset({"rotation", "scale", "translation"}),
    differentiable=True,
    min_rows=40,
    trust=(
        "Read both numbers together: a high one inside and a low one of the whole mean that the "
        "clusters make the cloud anisotropic. K-means cuts even a cloud without clusters, and "
        "thereby changes the shape inside; compare with the same number of clusters. Clusters of "
        "few rows make it noisy, and as the score is unbiased it can exceed 1 there."
    ),
    reference=(
        "Cai et al. 2021, Isotropy in the contextual embedding space: clusters and manifolds"
    ),
    options={"clusters": 10, "seed": 0},
    from_rows=_from_rows,
)
