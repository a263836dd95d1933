"""IsoScore* of the batch as a penalty."""

import math
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from isotropy import ranks
from isotropy.errors import InputError, SettingError
from isotropy.inputs import ArrayLike, as_symmetric
from isotropy.method import MethodSpec
from isotropy.penalties._penalty import Penalty
from isotropy.penalties._sampled import token_sample
from isotropy.penalties._shrinkage import sample_covariance
from isotropy.pooled import pooled_invariants
from isotropy.representations import Rows
from isotropy.settings import number


class IStar(Penalty):
    r"""Moves the isotropy of all token states, up with a positive weight and down with a negative.

    $$\lambda \, (1 - \text{IsoScore}^*(\tilde X, \zeta, \Sigma_S)), \qquad
      \Sigma_\zeta = (1 - \zeta)\, C + \zeta\, \Sigma_S$$

    with X̃ the union of the tokens of all layers, whose moments are added up layer by layer. Σ_S
    comes from `refresh`, at every epoch's start; before the first one the batch's own covariance
    stands in, without gradient.

    Args:
        weight: λ. The paper tries −5, −3, −1, 1, 3, 5, and mostly finds negative ones better.
        zeta: ζ, from 0 to 1; the paper tries .2, .4, .6, .8.
        shrinkage: Σ_S, d×d, instead of what `refresh` finds; or `"identity"`.
        tokens: how many tokens to draw at random in every step and on every rank; all by default.
        seed: of the draw, and of the tokens that `refresh` takes of a batch.
        site: which rows.
        settings: see `Penalty`; `include_padding=True` is the released code.

    References:
        Rudman & Eickhoff 2024, "Stable anisotropic regularization".

    Example:
        >>> from isotropy import Representations
        >>> round_cloud = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        >>> IStar(weight=-1, shrinkage="identity")(Representations.from_cloud(round_cloud))
        tensor(-0.)
    """

    shrinkage: Tensor | None

    def __init__(
        self,
        weight: float = -1.0,
        *,
        zeta: float = 0.2,
        shrinkage: ArrayLike | Literal["identity"] | None = None,
        tokens: int | None = None,
        seed: int = 0,
        site: str = "tokens@all",
        **settings: Any,
    ) -> None:
        super().__init__(weight=weight, site=site, **settings)
        self.zeta = number("zeta", zeta, low=0, high=1)
        self.is_identity = isinstance(shrinkage, str)
        if isinstance(shrinkage, str) and shrinkage != "identity":
            raise SettingError(f"got shrinkage={shrinkage!r}, expected 'identity' or a d×d matrix")
        self.is_fixed = shrinkage is not None
        given = None if isinstance(shrinkage, str) or shrinkage is None else _covariance(shrinkage)
        self.register_buffer("shrinkage", given)
        self.tokens, self.seed = tokens, seed
        self.sample = token_sample(tokens, seed)

    def value(self, rows: Rows) -> Tensor:
        """1 − IsoScore*."""
        if self.sample is not None and not rows.shared:
            rows = self.sample(rows)
        d, x = rows.d, rows.blocks[0]
        shrinkage = self.shrinkage
        if self.is_identity:
            shrinkage = torch.eye(d, dtype=x.dtype, device=x.device)
        elif shrinkage is not None and len(shrinkage) != d:
            raise SettingError(
                f"got shrinkage of {len(shrinkage)} features for rows of {d}, expected {d}×{d}; "
                "refresh it with this model"
            )
        zeta = 0.0 if shrinkage is None else self.zeta
        _, (trace, norm, _) = pooled_invariants(
            rows.blocks,
            rows.masks,
            shrinkage,
            zeta,
            group=ranks.ALONE if rows.shared else self.group,
        )
        value = 1 - (trace.square() / norm - 1) / (d - 1)
        if shrinkage is None and self.zeta:
            # Σ_S = C without gradient: the same value, and (1 − ζ) of the gradient.
            value = torch.lerp(value, value.detach(), self.zeta)
        return value

    def refresh(self, model: nn.Module, batches: Iterable[Any], points: int = 250_000) -> None:
        """Take Σ_S from the states of some batches of training data, in evaluation mode.

        Batches are read until there are enough points and no further, as the paper's partial
        forward pass: they are to come in random order, as the trainers give them. A batch that has
        too many gives some of its tokens, drawn at random of all of its texts, so that one large
        batch is a sample of no fewer texts than small ones are. Every rank gives its part of the
        points and every layer the same tokens. All ranks get the same matrix. Does nothing if
        `shrinkage` was given.

        Args:
            model: a Hugging Face model; it is left in the mode that it was in.
            batches: its inputs as dicts, in random order; labels are not looked at.
            points: how many rows to take, of all layers together.

        Raises:
            SettingError: no rows, or too few points.
        """
        if not self.is_fixed:
            self.shrinkage = sample_covariance(
                model, batches, self.site, points, self.include_padding, self.group, self.seed
            )

    def extra_repr(self) -> str:
        """What `print` shows."""
        return super().extra_repr() + (", shrinkage='identity'" if self.is_identity else "")

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # A fresh penalty has no matrix yet, of whatever size.
        stored = state_dict.get(f"{prefix}shrinkage")
        if stored is not None and self.shrinkage is None:
            self.shrinkage = torch.empty_like(stored)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _covariance(given: ArrayLike) -> Tensor:
    """A matrix that can be a covariance, within the rounding of its dtype.

    Raises:
        InputError: it is no symmetric matrix of finite numbers, or has a negative variance.
    """
    matrix = as_symmetric(given, name="shrinkage")
    if isinstance(given, Tensor):
        eps = torch.finfo(given.dtype).eps
    else:
        eps = float(np.finfo(given.dtype).eps)
    slack = max(1e-4, 4 * math.sqrt(len(matrix)) * eps) * matrix.abs().max()
    raised = (matrix + slack * torch.eye(len(matrix)).to(matrix)).double()
    if torch.linalg.cholesky_ex(raised).info:
        raise InputError(
            "got shrinkage with a negative variance in some direction, expected a covariance "
            "matrix, such as torch.cov(x.T); see torch.linalg.eigvalsh(shrinkage)"
        )
    return matrix


SPEC = MethodSpec(
    name="i-star",
    kind="penalty",
    component=IStar,
    summary="IsoScore* of all layers' tokens",
    reference="Rudman & Eickhoff 2024, Stable anisotropic regularization",
    differs=(
        "ζ is the share of Σ_S, as in the paper's algorithm and code; its prose prints the "
        "reverse. Padding is masked out, as the text says; the released code counts it "
        "(`include_padding=True`)."
    ),
    measure="iso_score",
    moves="down",
)
