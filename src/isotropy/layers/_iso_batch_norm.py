"""Isotropic batch normalisation."""

from typing import Literal

import torch
from torch import Tensor

from isotropy import ranks
from isotropy.inputs import COMPUTE_DTYPE, full_precision
from isotropy.layers._layer import Layer
from isotropy.method import MethodSpec
from isotropy.settings import choice, number


class IsoBatchNorm(Layer):
    r"""Scales down the features that vary most and say what others say.

    $$y_i = \theta_i x_i, \qquad \theta_i = m \, (\gamma_i \sigma_i + \epsilon)^{-\beta}, \qquad
      \gamma_i = \tfrac1d \sum_j \rho_{ij}^2, \qquad
      m = \sqrt{\frac{\sum_i c_{ii}}{\sum_i c_{ii} \theta_i'^2 + \epsilon}}$$

    with θ′ the scale before m, σ and C the running standard deviations and the running covariance
    of the batches (both over n), and ρ_ij = c_ij/(σ_i σ_j) clamped to ±1, 0 for a feature that does
    not vary. Rows are not centred, and no gradient flows through the scale. On several ranks the
    moments are those of the global batch. All is computed in float32 (float64 in a
    layer of float64).

    The running moments are corrected for their start at 0, kept in the state, and left alone by a
    batch of one row or with a value that is not finite. Before the first batch, and where no
    feature varies, the layer is the identity.

    Args:
        d: number of features.
        momentum: the share of a new batch in the running moments.
        eps: ε.
        beta: β, how strongly features are evened out, from 0 to 1.
        compat: `"released"` for the released code's moments, which are not corrected for their
            start at 0, so that correlations are too large during the first tens of batches, and in
            which a batch of one row counts.
        group: the process group whose ranks share a batch; all of them by default.

    Shapes:
        x: n×d; y: n×d.

    References:
        Zhou et al. 2021, "IsoBN: Fine-tuning BERT with isotropic batch normalization".

    Example:
        >>> layer = IsoBatchNorm(2)
        >>> x = torch.tensor([[4.0, 1.0], [-4.0, 1.0], [4.0, -1.0], [-4.0, -1.0]])
        >>> layer(x)[0]  # 4 : 1 becomes 2 : 1, with the same total variance
        tensor([3.6882, 1.8427])
    """

    in_float32 = True
    covariance: Tensor
    std: Tensor
    weight: Tensor

    def __init__(
        self,
        d: int,
        *,
        momentum: float = 0.05,
        eps: float = 1e-3,
        beta: float = 0.5,
        compat: Literal["released"] | None = None,
        group: ranks.Group = None,
    ) -> None:
        super().__init__(d, momentum=momentum, eps=eps, beta=beta, compat=compat)
        self.momentum = number("momentum", momentum, low=0, high=1, open=True)
        self.eps = number("eps", eps, low=0, open=True)
        self.beta = number("beta", beta, low=0, high=1)
        self.compat = choice("compat", compat, (None, "released"))
        self.group = group
        self.register_buffer("covariance", torch.zeros(d, d))
        self.register_buffer("std", torch.zeros(d))
        # How much of the running moments are batches, the rest being the zeros of the start.
        self.register_buffer("weight", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """The scaled embeddings; in training the running moments take in the batch first.

        Raises:
            InputError: `x` is not n×d.
        """
        self.check(x)
        rows = x.to(COMPUTE_DTYPE[x.dtype])
        with full_precision(rows):
            if self.training:
                self._take_in(rows.detach())
            return (rows * self.scale().to(rows.dtype)).to(x.dtype)

    @torch.no_grad()
    def scale(self) -> Tensor:
        """θ, d: what each feature is multiplied by."""
        weight = torch.where(self.weight > 0, self.weight, 1)
        if self.compat == "released":
            weight = torch.ones_like(weight)
        covariance, std = self.covariance / weight, self.std / weight
        spread = std.where(std > 0, 1)
        correlation = (covariance / spread[:, None] / spread).clamp(-1, 1)
        gamma = correlation.square().mean(dim=1)
        scale = (gamma * std + self.eps) ** -self.beta
        variances = covariance.diagonal()
        total = variances.sum()
        scale = scale * (total / ((variances * scale.square()).sum() + self.eps)).sqrt()
        return torch.where((self.weight > 0) & (total > 0), scale, 1)

    @torch.no_grad()
    def _take_in(self, x: Tensor) -> None:
        """Move the running moments towards those of the batch on all ranks."""
        sums = ranks.total(torch.cat((x.sum(dim=0), x.new_full((1,), len(x)))), self.group)
        n = sums[-1].clamp(min=1)
        y = x - sums[:-1] / n
        covariance = (ranks.total(y.T @ y, self.group) / n).to(self.covariance.dtype)
        usable = covariance.diagonal().sum().isfinite() & (n > (self.compat != "released"))
        for running, new in (
            (self.covariance, covariance),
            (self.std, covariance.diagonal().clamp(min=0).sqrt()),
            (self.weight, torch.ones_like(self.weight)),
        ):
            running.lerp_(torch.where(usable, new, running), self.momentum)


SPEC = MethodSpec(
    name="iso-batch-norm",
    kind="layer",
    component=IsoBatchNorm,
    summary="features scaled by running spreads and correlations",
    reference=(
        "Zhou et al. 2021, IsoBN: Fine-tuning BERT with isotropic batch normalization, AAAI"
    ),
    differs=(
        "The released code keeps its moments outside of the state, so that a saved model loses "
        'them; does not correct them for their start at 0 (`compat="released"`); gives NaN for a '
        "feature that does not vary, and NaN in evaluation before training. Here the state holds "
        "them, they are corrected, such a feature correlates with nothing, and an untrained layer "
        "is the identity."
    ),
)
