"""Sites: which rows of a model's states, or which of its weights, a method looks at."""

from dataclasses import dataclass
from typing import Literal, Self, get_args

import torch
from torch import Tensor

from isotropy.errors import SettingError, unknown_name

Pool = Literal["cls", "mean", "first-last-mean", "tokens", "vocabulary", "head"]

POOLS: tuple[Pool, ...] = get_args(Pool)
WEIGHTS: tuple[Pool, ...] = ("vocabulary", "head")
_WITHOUT_LAYER: tuple[Pool, ...] = ("first-last-mean", *WEIGHTS)
_DECODER = "decoder-"


@dataclass(frozen=True)
class Site:
    """What to take of a text's states, and at which layers; or a matrix of weights.

    Written `mean@last`, `tokens@all`, `cls@3`, `vocabulary`, and `decoder-mean@last` for the
    decoder of an encoder-decoder model, whose encoder is meant otherwise.

    Attributes:
        pool: `cls`: the first token of an encoder, the last of a decoder-only model and of XLNet;
            `mean`: the mean over all tokens, special ones included, as sentence encoders take it;
            `first-last-mean`: that of the first and the last layer's states; `tokens`: every
            token, special ones included; `vocabulary`: the rows of the input embeddings; `head`:
            those of the classifier's last matrix.
        layer: `last`; `all` is every layer from 1 to the last, not the lookup layer; a number is
            one layer, where 0 is the lookup layer, the input of layer 1, and -1 the last.
        decoder: whether the decoder's states are meant.

    Example:
        >>> Site.parse("mean@all").layers(3)
        (1, 2, 3)
        >>> Site.parse("tokens@-1").layers(3)
        (3,)
        >>> Site.parse("vocabulary").is_weight
        True
    """

    pool: Pool
    layer: int | Literal["last", "all"] = "last"
    decoder: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """The site that `text` names; without a layer it is the last one.

        Raises:
            SettingError: there is no such site.
        """
        decoder = text.startswith(_DECODER)
        named, at, where = text.removeprefix(_DECODER).partition("@")
        pool = next((known for known in POOLS if known == named), None)
        if pool is None or (decoder and pool in WEIGHTS):
            raise unknown_name("site", text, _names())
        if at and pool in _WITHOUT_LAYER:
            raise SettingError(f"got site {text!r}, expected {pool!r}, which has no layer")
        if not at or where == "last":
            return cls(pool, "last", decoder)
        if where == "all":
            return cls(pool, "all", decoder)
        try:
            return cls(pool, int(where), decoder)
        except ValueError:
            raise SettingError(
                f"got site {text!r}, expected {pool}@last, {pool}@all or a layer's number such as "
                f"{pool}@3"
            ) from None

    def __str__(self) -> str:
        layer = "" if self.pool in _WITHOUT_LAYER else f"@{self.layer}"
        return f"{_DECODER if self.decoder else ''}{self.pool}{layer}"

    @property
    def is_weight(self) -> bool:
        """Whether it is a matrix of weights, the same for every batch and on every rank."""
        return self.pool in WEIGHTS

    def layers(self, depth: int) -> tuple[int, ...]:
        """The numbers of its layers in a model with `depth` layers.

        Raises:
            SettingError: the model has no such layer.
        """
        if self.pool == "first-last-mean":
            return (1, depth)
        if self.layer == "all":
            return tuple(range(1, depth + 1))
        if self.layer == "last":
            return (depth,)
        layer = self.layer + (depth + 1 if self.layer < 0 else 0)
        if not 0 <= layer <= depth:
            raise SettingError(
                f"got site {str(self)!r}, expected a layer from 0 (the lookup layer) to {depth}, "
                f"the model's last, or from {-depth - 1} to -1"
            )
        return (layer,)


def _names() -> list[str]:
    return [
        name
        for pool in POOLS
        for name in ([pool] if pool in _WITHOUT_LAYER else [f"{pool}@last", f"{pool}@all"])
    ]


def pool_states(states: Tensor, mask: Tensor, pool: Pool, *, causal: bool) -> Tensor:
    """One vector a text, b×d, for `cls` and `mean`; of a text without tokens, some finite one.

    Args:
        states: b×t×d, the states of one layer.
        mask: b×t, 1 or True for a token and 0 for padding, on either side.
        pool: `cls` or `mean`.
        causal: whether a token sees only those before it, so that the last one has seen the text.

    Example:
        >>> states = torch.tensor([[[1.0], [3.0], [float("nan")]]])
        >>> pool_states(states, torch.tensor([[1, 1, 0]]), "mean", causal=False)
        tensor([[2.]])
    """
    tokens = mask.bool()
    if pool == "mean":
        kept = states.masked_fill(~tokens[..., None], 0)  # padding may be anything, NaN too
        return kept.sum(dim=1) / tokens.sum(dim=1, keepdim=True).clamp(min=1)
    positions = torch.arange(states.shape[1], device=states.device)
    if causal:
        place = torch.where(tokens, positions, 0).amax(dim=1)
    else:
        place = torch.where(tokens, positions, states.shape[1] - 1).amin(dim=1)
    chosen = states[torch.arange(len(states), device=states.device), place]
    return chosen.masked_fill(~tokens.any(dim=1, keepdim=True), 0)
