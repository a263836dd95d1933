"""Isotropy of the partition function of a weight matrix."""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from isotropy.covariance import power_of_two
from isotropy.inputs import ArrayLike, as_cloud, like
from isotropy.measures._spec import MeasureSpec, Number
from isotropy.moments import Moments
from isotropy.settings import choice


class PartitionIsotropy(NamedTuple):
    """What `partition_isotropy` gives: I1 = min Z/max Z, and I2 = std Z/mean Z."""

    i1: Any
    i2: Any


def partition_isotropy(
    w: ArrayLike, compat: Literal["none", "paper-c"] = "none"
) -> PartitionIsotropy:
    r"""How constant the partition function is over the eigenvectors of WᵀW.

    $$Z(v) = \sum_i \exp(v^\top w_i), \qquad
      I_1 = \frac{\min_v Z(v)}{\max_v Z(v)}, \qquad I_2 = \frac{\operatorname{std}_v Z(v)}
      {\operatorname{mean}_v Z(v)}$$

    An eigenvector has no sign, so both v and −v are in the set V. Sums are taken as log-sum-exp
    and never overflow.

    Args:
        w: n×d, the rows of a vocabulary matrix, a classifier's head, or any cloud.
        compat: `"paper-c"` gives what the printed tables of Ding et al. follow from: the *rows*
            of the matrix of eigenvectors for v, without −v, and a standard deviation without its
            1/|V|. It depends on the signs of the eigenvectors, and for n < d on the basis of the
            null space, both of which are the solver's choice.

    Returns:
        I1 (1 is isotropic) and I2 (0 is isotropic): tensors for a tensor, floats for an array.

    References:
        Mu & Viswanath 2018, "All-but-the-top"; Ding et al. 2022, "On isotropy calibration of
        transformers", appendix A.

    Example:
        >>> i1, i2 = partition_isotropy(np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]]))
        >>> round(i1, 6), round(i2, 6)
        (1.0, 0.0)
    """
    cloud = as_cloud(w).detach()
    y = (cloud / power_of_two(cloud.abs().max())).double()
    result = _PartitionSums(y.T @ y, compat)
    result.update(cloud)
    return PartitionIsotropy(*(like(w, number.to(cloud.dtype)) for number in result.numbers()))


class _PartitionSums:
    """log Z(v) over the eigenvectors v of a matrix, summed up over blocks of rows."""

    def __init__(self, second: Tensor, compat: str) -> None:
        choice("compat", compat, ("none", "paper-c"))
        self._compat = compat == "paper-c"
        vectors = torch.linalg.eigh(second / power_of_two(second.diagonal().max())).eigenvectors
        self._vectors = vectors.T if self._compat else vectors  # columns are v
        signs = 1 if self._compat else 2
        self._log_sums = vectors.new_full((signs * len(vectors),), -torch.inf)

    def update(self, rows: Tensor) -> None:
        for block in torch.split(rows, max(1, (1 << 22) // rows.shape[1])):
            exponents = block.double() @ self._vectors
            sums = [exponents.logsumexp(dim=0)]
            if not self._compat:
                sums.append((-exponents).logsumexp(dim=0))
            self._log_sums = torch.logaddexp(self._log_sums, torch.cat(sums))

    def numbers(self) -> tuple[Tensor, Tensor]:
        z = (self._log_sums - self._log_sums.max()).exp()
        spread = (z - z.mean()).square()
        deviation = (spread.sum() if self._compat else spread.mean()).sqrt()
        return z.min(), deviation / z.mean()

    def result(self) -> list[float]:
        return [float(number) for number in self.numbers()]


def _second_pass(moments: Moments, *, compat: str) -> _PartitionSums:
    return _PartitionSums(moments.second, compat)


SPEC = MeasureSpec(
    name="partition_isotropy",
    function=partition_isotropy,
    numbers=(
        Number("partition_isotropy_1", low=0, high=1, isotropic=1, more_isotropic="higher"),
        Number("partition_isotropy_2", low=0, isotropic=0, more_isotropic="lower"),
    ),
    summary="how constant the partition function is",
    invariant_to=frozenset({"rotation"}),
    differentiable=False,
    min_rows=2,
    trust=(
        "Trust it on weight matrices, for which it was made, and compare only matrices of the "
        "same scale: it is not scale invariant, and multiplying the rows by ten turns a good "
        "score into 0, while shrinking them towards the origin makes any cloud look isotropic. "
        "The printed I2 of Ding et al. cannot follow from their printed I1 by their definitions; "
        "`compat='paper-c'` computes what they seem to have printed."
    ),
    reference=(
        "Mu & Viswanath 2018, All-but-the-top; Ding et al. 2022, On isotropy calibration of "
        "transformers, appendix A"
    ),
    default=False,
    options={"compat": "none"},
    second_pass=_second_pass,
)
