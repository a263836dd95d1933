"""Singular values near a power law, as a penalty."""

from typing import Any

from torch import Tensor

from isotropy.method import MethodSpec
from isotropy.penalties._spectrum import Spectrum
from isotropy.settings import number


class SpectrumPol(Spectrum):
    r"""Guides singular values towards a power law.

    $$\lambda \sum_{k=1}^{\min(N, d)} (\sigma_k - c_1 k^\gamma)^2$$

    The papers print none of λ, c1 and γ; the defaults are ours. With γ = −0.2 the 768th target is
    about a quarter of the first.

    The gradient is finite and right where singular values repeat or vanish; one that is 0 stays
    so. PyTorch's derivatives of singular vectors (`torch.linalg.svd`) are NaN where values repeat,
    zeros among them, and those of eigenvalues' roots where one is 0; those of
    `torch.linalg.svdvals` are finite, too.

    Args:
        weight: λ.
        c1: the scale; without one, that which keeps the energy of the first batch.
        gamma: γ, negative for a spectrum that falls.
        site: which rows.
        settings: see `Penalty`.

    References:
        Wang et al. 2020, "Improving neural language generation with spectrum control"; Ding et al.
        2022, "On isotropy calibration of transformers".

    Example:
        >>> import torch
        >>> from isotropy import Representations
        >>> x = Representations.from_cloud(torch.diag(torch.tensor([3.0, 4.0])))
        >>> round(float(SpectrumPol(c1=4, gamma=0)(x)), 6)
        1.0
    """

    def __init__(
        self,
        weight: float = 1.0,
        *,
        c1: float | None = None,
        gamma: float = -0.2,
        site: str = "vocabulary",
        **settings: Any,
    ) -> None:
        super().__init__(weight, c1, site, **settings)
        self.gamma = number("gamma", gamma)

    def curve(self, k: Tensor) -> Tensor:
        """k^γ."""
        return k**self.gamma


SPEC = MethodSpec(
    name="spectrum-pol",
    kind="penalty",
    component=SpectrumPol,
    summary="singular values near a power law",
    reference="Wang et al. 2020, Improving neural language generation with spectrum control",
    differs=(
        "None of λ, c1 and γ is printed by Ding et al. or known from elsewhere: the defaults are "
        "this project's. Ding et al. say that they regularise the vocabulary, while the isotropy "
        "that they print fits the classifier's head."
    ),
    measure="participation_ratio",
    moves="up",
)
