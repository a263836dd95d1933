"""A normalising flow that is fitted to embeddings."""

from typing import cast

import torch
from torch import Tensor, nn

from isotropy.layers import Flow
from isotropy.method import MethodSpec
from isotropy.settings import whole_number
from isotropy.transforms._trained import Trained
from isotropy.transforms._transform import Invertible


class FlowPostHoc(Trained, Invertible):
    r"""Maps a cloud to a standard normal distribution by an invertible network f.

    $$y = f\Big(\frac{x - \mu}{s}\Big), \qquad \min_f \; \frac{1}{n} \sum_i \tfrac12 \|y_i\|^2
      - \log \left| \det f' \right|$$

    with μ the mean and s² the mean variance. The network is that of `isotropy.layers.Flow` (Glow on
    vectors); it is trained to give the rows of the cloud the highest likelihood, after the encoder,
    which stays as it is.

    Args:
        levels: number of levels, fewer where there are not enough features to halve.
        steps: number of steps in each.
        width: neurons in each hidden layer of a coupling.
        epochs: how often the sample is gone through.
        batch_size: rows in a batch, about.
        learning_rate: of Adam.
        sample: how many rows to draw for training; all if there are no more.
        seed: of everything random.

    References:
        Li et al. 2020, "On the sentence embeddings from pre-trained language models".

    Example:
        >>> x = np.random.default_rng(0).normal(size=(200, 4)) * [1, 5, 20, 50] + 7
        >>> flow = FlowPostHoc(epochs=2).fit(x)
        >>> z = flow.transform(x)
        >>> bool(abs(z.std(axis=0) - 1).max() < 0.2), np.allclose(flow.inverse_transform(z), x)
        (True, True)
    """

    def __init__(
        self,
        *,
        levels: int = 3,
        steps: int = 3,
        width: int = 32,
        epochs: int = 10,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        sample: int = 50_000,
        seed: int = 0,
    ) -> None:
        self.levels = levels
        self.steps = steps
        self.width = width
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.sample = sample
        self.seed = seed

    def _check_settings(self) -> None:
        super()._check_settings()
        for name in ("levels", "steps", "width"):
            whole_number(name, getattr(self, name), low=1)

    def _network(self, features: int) -> nn.Module:
        # Half of the features at every level but the last, which needs two.
        levels = min(self.levels, features.bit_length() - 1)
        return Flow(features, levels=levels, steps=self.steps, width=self.width, seed=self.seed)

    def _loss(self, network: nn.Module, rows: Tensor, weights: Tensor) -> Tensor:
        flow = cast(Flow, network)
        with torch.no_grad():
            flow(rows)  # the first batch sets scales and shifts
        return (flow.negative_log_likelihood(rows) * weights).mean()

    def _map(self, x: Tensor) -> Tensor:
        return self._network_of(x)

    def _inverse(self, y: Tensor) -> Tensor:
        x: Tensor = self._trained(y).inverse(y)
        return x * self._fitted("scale_", y) + self._fitted("mean_", y)


SPEC = MethodSpec(
    name="flow-post-hoc",
    kind="transform",
    component=FlowPostHoc,
    summary="normalising flow, fitted to embeddings as they are",
    reference=(
        "Li et al. 2020, On the sentence embeddings from pre-trained language models, EMNLP"
    ),
    differs=(
        "Number of epochs, batch size and the size of the sample are this project's. As in the "
        "flow layer every z has the standard normal prior."
    ),
    measure="iso_score",
    moves="up",
)
