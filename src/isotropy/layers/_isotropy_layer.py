"""The isotropy layer: a feed-forward layer that is trained after everything else."""

from typing import Literal

import torch
from torch import Tensor, nn

from isotropy.layers._layer import Layer
from isotropy.method import MethodSpec
from isotropy.settings import choice, whole_number

_REFERENCE = (
    "Optimizing the performance of text classification models by improving the isotropy of the "
    "embeddings using a joint loss function"
)


class IsotropyLayer(Layer):
    r"""A feed-forward layer between a fine-tuned encoder and its head, both frozen.

    $$y = h_k, \qquad h_1 = W_1 x + b_1, \qquad h_i = h_{i-1} + \mathrm{GELU}(W_i h_{i-1} + b_i)$$

    Depth k = 1, one linear map, is the paper's. It is trained in a second stage, on the embeddings
    that the fine-tuned encoder gives, computed once: see `SecondStage`.

    Args:
        d: number of features.
        depth: k, how many layers of d neurons.
        start: `"identity"`: the model begins as the fine-tuned one; `"random"`: as torch
            initialises linear layers.

    Shapes:
        x: n×d; y: n×d.

    References:
        "Optimizing the performance of text classification models by improving the isotropy of the
        embeddings using a joint loss function".

    Example:
        >>> layer = IsotropyLayer(2, depth=3)
        >>> layer(torch.tensor([[1.0, 2.0]])).tolist()
        [[1.0, 2.0]]
    """

    def __init__(
        self, d: int, depth: int = 1, *, start: Literal["identity", "random"] = "identity"
    ) -> None:
        super().__init__(d, depth=whole_number("depth", depth, low=1), start=start)
        choice("start", start, ("identity", "random"))
        self.first = nn.Linear(d, d)
        self.further = nn.ModuleList(nn.Linear(d, d) for _ in range(depth - 1))
        if start == "identity":
            nn.init.eye_(self.first.weight)
            nn.init.zeros_(self.first.bias)
            for linear in self.further.modules():
                if isinstance(linear, nn.Linear):
                    nn.init.zeros_(linear.weight)
                    nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """The transformed embeddings.

        Raises:
            InputError: `x` is not n×d.
        """
        self.check(x)
        kind = x.device.type
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            return self._layers(x)
        return self._layers(x.to(self.first.weight.dtype)).to(x.dtype)

    def _layers(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for linear in self.further:
            x = x + nn.functional.gelu(linear(x))
        return x


SPEC = MethodSpec(
    name="isotropy-layer",
    kind="layer",
    component=IsotropyLayer,
    summary="linear layer, trained on a balanced joint loss",
    reference=_REFERENCE,
    differs=(
        "The paper says neither how the layer starts nor how a deeper one is built: here it starts "
        "as the identity, and further layers add to what comes in. It does not say that the "
        "embeddings are computed once, which gives the same as both encoder and head are frozen."
    ),
    measure="iso_score",
    moves="up",
)
