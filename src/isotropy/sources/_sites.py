"""Sites: which states of a model become embeddings, written `mean@last`."""

from dataclasses import dataclass
from typing import Literal, Self, get_args

import torch
from torch import Tensor

from isotropy.errors import SettingError, unknown_name

Pool = Literal["cls", "mean", "tokens"]

_POOLS: tuple[Pool, ...] = get_args(Pool)


@dataclass(frozen=True)
class Site:
    """What to take of a text's states, and at which layers.

    Attributes:
        pool: `cls`: the first token of an encoder, the last of a decoder-only model and of XLNet;
            `mean`: the mean over all tokens, special ones included, as sentence encoders take it;
            `tokens`: every token, special ones included.
        layer: `last`; `all` is every layer from 1 to the last, not the lookup layer; a number is
            one layer, where 0 is the lookup layer, the input of layer 1, and -1 the last.

    Example:
        >>> Site.parse("mean@all").layers(3)
        (1, 2, 3)
        >>> Site.parse("tokens@-1").layers(3)
        (3,)
    """

    pool: Pool
    layer: int | Literal["last", "all"]

    @classmethod
    def parse(cls, text: str) -> Self:
        """The site that `text` names; without a layer it is the last one.

        Raises:
            SettingError: there is no such site.
        """
        named, at, where = text.partition("@")
        pool = next((known for known in _POOLS if known == named), None)
        if pool is None:
            names = [f"{known}@{layer}" for known in _POOLS for layer in ("last", "all")]
            raise unknown_name("site", text, names)
        if not at or where == "last":
            return cls(pool, "last")
        if where == "all":
            return cls(pool, "all")
        try:
            return cls(pool, int(where))
        except ValueError:
            raise SettingError(
                f"got site {text!r}, expected {pool}@last, {pool}@all or a layer's number such as "
                f"{pool}@3"
            ) from None

    def __str__(self) -> str:
        return f"{self.pool}@{self.layer}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that its rows need beside the text's row to say what they are."""
        layer = ("layer",) if self.layer == "all" else ()
        token = ("token",) if self.pool == "tokens" else ()
        return (*layer, *token)

    def layers(self, depth: int) -> tuple[int, ...]:
        """The numbers of its layers in a model with `depth` layers.

        Raises:
            SettingError: the model has no such layer.
        """
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


def pool_states(states: Tensor, mask: Tensor, pool: Pool, *, causal: bool) -> Tensor:
    """One vector a text, b×d, for `cls` and `mean`.

    Args:
        states: b×t×d, the states of one layer.
        mask: b×t, 1 for a token and 0 for padding, which stands on the right.
        pool: `cls` or `mean`.
        causal: whether `cls` is the last token, not the first.
    """
    lengths = mask.sum(dim=1)
    if pool == "mean":
        padding = mask.unsqueeze(-1) == 0  # whose states may be anything, NaN too
        return states.masked_fill(padding, 0).sum(dim=1) / lengths.unsqueeze(-1)
    position = lengths - 1 if causal else torch.zeros_like(lengths)
    return states[torch.arange(len(states), device=states.device), position]
