"""An isotropy layer that is fitted to embeddings without a task."""

from torch import Tensor, nn

from isotropy.layers import IsotropyLayer
from isotropy.layers._isotropy_layer import SPEC as LAYER
from isotropy.method import MethodSpec
from isotropy.settings import whole_number
from isotropy.transforms._trained import Trained
from isotropy.transforms._transform import share

_EPSILON = 1e-6  # keeps the logarithm finite on a line, whose IsoScore is 0


class IsotropyLayerPostHoc(Trained):
    r"""A feed-forward layer that makes a cloud isotropic and moves its rows as little as it can.

    $$L = \alpha \, \frac{\sum_i \|y_i - \tilde x_i\|^2}{\sum_i \|\tilde x_i\|^2}
      + (1 - \alpha) \log \frac{1}{\text{IsoScore}(y)}, \qquad \tilde x = x - \mu$$

    over batches, with y the layer's output, which begins as x̃. In training with a task, as
    `isotropy.layers.SecondStage` does it, the task's loss stands in the first place; here is none.

    Args:
        depth: how many layers of d neurons; 1 is a linear map.
        alpha: α, how much rows are held back, from 0 to 1.
        epochs: how often the sample is gone through.
        batch_size: rows in a batch, about; at fewer than features the IsoScore is too low.
        learning_rate: of Adam.
        sample: how many rows to draw for training; all if there are no more.
        seed: of everything random.

    References:
        "Optimizing the performance of text classification models by improving the isotropy of the
        embeddings using a joint loss function".

    Example:
        >>> from isotropy.measures import iso_score
        >>> x = np.random.default_rng(0).normal(size=(500, 4)) * [1, 2, 5, 10]
        >>> y = IsotropyLayerPostHoc().fit_transform(x)
        >>> round(iso_score(x), 1) < round(iso_score(y), 1)
        True
    """

    def __init__(
        self,
        depth: int = 1,
        *,
        alpha: float = 0.5,
        epochs: int = 20,
        batch_size: int = 1024,
        learning_rate: float = 1e-2,
        sample: int = 50_000,
        seed: int = 0,
    ) -> None:
        self.depth = depth
        self.alpha = alpha
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.sample = sample
        self.seed = seed

    def _check_settings(self) -> None:
        super()._check_settings()
        whole_number("depth", self.depth, low=1)
        share("alpha", self.alpha)

    def _network(self, features: int) -> nn.Module:
        layer = IsotropyLayer(features, depth=self.depth)
        # Rows are centred: a first bias has nothing to do, and Adam would feed it with rounding.
        layer.first.bias.requires_grad_(False)
        return layer

    def _loss(self, network: nn.Module, rows: Tensor, weights: Tensor) -> Tensor:
        w = weights[:, None]
        y = network(rows)
        moved = ((y - rows).square() * w).sum() / (rows.square() * w).sum().clamp(min=_EPSILON)
        y = y - (y * w).sum(dim=0) / w.sum()
        c = y.T @ (y * w) / w.sum()
        d = c.shape[0]
        spread = c.trace().square() / c.square().sum().clamp(min=_EPSILON**2)
        score = (spread - 1) / (d - 1)
        loss: Tensor = self.alpha * moved - (1 - self.alpha) * (score.clamp(min=0) + _EPSILON).log()
        return loss

    def _map(self, x: Tensor) -> Tensor:
        return self._network_of(x) * self._fitted("scale_", x)


SPEC = MethodSpec(
    name="isotropy-layer-post-hoc",
    kind="transform",
    component=IsotropyLayerPostHoc,
    summary="isotropy layer, trained without a task",
    reference=LAYER.reference,
    differs=(
        "The paper trains its layer on a task. Without one, the squared distance from the "
        "embeddings as they were stands for the task's loss, and all settings are this project's."
    ),
    measure="iso_score",
    moves="up",
)
