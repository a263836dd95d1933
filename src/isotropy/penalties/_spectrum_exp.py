"""Singular values near a falling exponential, as a penalty."""

from typing import Any

from torch import Tensor

from isotropy.method import MethodSpec
from isotropy.penalties import _spectrum_pol
from isotropy.penalties._spectrum import Spectrum
from isotropy.settings import number


class SpectrumExp(Spectrum):
    r"""Guides singular values towards a stretched exponential.

    $$\lambda \sum_{k=1}^{\min(N, d)} (\sigma_k - c_1 e^{-c_2 k^\gamma})^2$$

    The papers print none of λ, c1, c2 and γ; the defaults are ours. With them the 768th target is
    about a quarter of the first.

    The gradient is finite and right where singular values repeat or vanish; one that is 0 stays
    so. PyTorch's derivatives of singular vectors (`torch.linalg.svd`) are NaN where values repeat,
    zeros among them, and those of eigenvalues' roots where one is 0; those of
    `torch.linalg.svdvals` are finite, too.

    Args:
        weight: λ.
        c1: the scale; without one, that which keeps the energy of the first batch.
        c2: how fast the curve falls.
        gamma: γ.
        site: which rows.
        settings: see `Penalty`.

    References:
        Wang et al. 2020, "Improving neural language generation with spectrum control"; Ding et al.
        2022, "On isotropy calibration of transformers".

    Example:
        >>> import torch
        >>> from isotropy import Representations
        >>> x = Representations.from_cloud(torch.diag(torch.tensor([3.0, 4.0])))
        >>> round(float(SpectrumExp(c1=4, c2=0)(x)), 6)
        1.0
    """

    def __init__(
        self,
        weight: float = 1.0,
        *,
        c1: float | None = None,
        c2: float = 0.05,
        gamma: float = 0.5,
        site: str = "vocabulary",
        **settings: Any,
    ) -> None:
        super().__init__(weight, c1, site, **settings)
        self.c2 = number("c2", c2, low=0)
        self.gamma = number("gamma", gamma)

    def curve(self, k: Tensor) -> Tensor:
        """exp(−c2·k^γ)."""
        return (-self.c2 * k**self.gamma).exp()


SPEC = MethodSpec(
    name="spectrum-exp",
    kind="penalty",
    component=SpectrumExp,
    summary="singular values near a falling exponential",
    reference=_spectrum_pol.SPEC.reference,
    differs=_spectrum_pol.SPEC.differs.replace("c1 and", "c1, c2 and"),
    measure="participation_ratio",
    moves="up",
)
