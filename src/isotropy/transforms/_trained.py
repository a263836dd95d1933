"""What transforms share whose map is a neural network, trained on a sample of the rows."""

import threading
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from isotropy.inputs import require_rows
from isotropy.sampling import RowSample
from isotropy.settings import number, seed_number, whole_number
from isotropy.transforms._reader import Reader, equal_rows
from isotropy.transforms._transform import Transform, centred

_LARGEST_GRADIENT = 1.0


class _Kept(threading.local):
    """Each transform's network as it was used last, and what it was made of.

    It is beside the transforms, so that copies, pickles and files do not hold it; and each thread
    has its own, as a flow puts other parameters in its place while it maps.
    """

    def __init__(self) -> None:
        self.networks: WeakKeyDictionary[Trained, tuple[Any, Any, nn.Module]] = WeakKeyDictionary()


_KEPT = _Kept()


class Trained(Transform):
    """A network that maps (x − μ)/s, with μ the mean and s the root of the mean variance.

    It is trained by Adam in shuffled batches of a random sample of the rows, which is held in
    memory; in float64, as Adam takes steps of one size, and rounding would else soon decide where
    they lead. Equal settings and rows give equal results.

    Attributes:
        mean_: d, μ of the sample.
        scale_: 1, s.
        parameters_: all that the network has learned, in one vector.
    """

    arrays = ("mean_", "scale_", "parameters_")
    mean_: NDArray[np.float64]
    scale_: NDArray[np.float64]
    parameters_: NDArray[np.float64]

    epochs: int
    batch_size: int
    learning_rate: float
    sample: int
    seed: int

    @abstractmethod
    def _network(self, features: int) -> nn.Module:
        """The network before it is trained."""

    @abstractmethod
    def _loss(self, network: nn.Module, rows: Tensor, weights: Tensor) -> Tensor:
        """The loss of a batch whose rows have weights with mean 1."""

    def _check_settings(self) -> None:
        whole_number("epochs", self.epochs, low=1)
        whole_number("batch_size", self.batch_size, low=2)
        whole_number("sample", self.sample, low=2)
        seed_number("seed", self.seed)
        number("learning_rate", self.learning_rate, low=0, open=True)

    def _fit(self, reader: Reader) -> Mapping[str, Tensor]:
        rows, weights = self._sampled(reader)
        share = weights[:, None] / weights.sum()
        # The first row is subtracted first, so that a mean far from the origin loses no digit.
        mean = rows[0] + ((rows - rows[0]) * share).sum(dim=0)
        rows = rows - mean
        size = rows.abs().max()
        scale = size * ((rows / size).square() * share).sum().div(rows.shape[1]).sqrt()
        network = self._seeded(rows.shape[1]).to(rows.device)
        with torch.enable_grad():
            self._train(network, rows / scale, weights / weights.mean(), reader)
        return {"mean_": mean, "scale_": scale[None], "parameters_": _vector(network)}

    def _sampled(self, reader: Reader) -> tuple[Tensor, Tensor]:
        """A random sample of the rows in float64, and their weights."""
        sample = RowSample(self.sample, self.seed)
        for rows, numbers, weights, _ in reader.chunks("reading"):
            rows = rows.double()
            one = torch.ones_like(rows[:, 0]) if weights is None else weights
            sample.update(torch.cat((rows, one[:, None]), dim=1), numbers)
        require_rows(sample.seen, 2, name=reader.source.name)
        drawn = sample.rows()
        rows, weights = drawn[:, :-1], drawn[:, -1]
        if torch.equal(rows.amin(dim=0), rows.amax(dim=0)):
            raise equal_rows(sample.seen, reader.source.name)
        return rows, weights

    def _train(self, network: nn.Module, rows: Tensor, weights: Tensor, reader: Reader) -> None:
        """Minimise the loss; a step that leads to what is not finite is not taken."""
        weights = weights.to(rows)
        parameters = [p for p in network.parameters() if p.requires_grad]
        optimizer = torch.optim.Adam(parameters, lr=self.learning_rate)
        generator = torch.Generator().manual_seed(self.seed)
        reader.progress("training", 0, self.epochs)
        for epoch in range(self.epochs):
            order = torch.randperm(len(rows), generator=generator).to(rows.device)
            # Batches of one size, so that none is left with a row or two.
            for batch in order.tensor_split(max(1, len(rows) // self.batch_size)):
                optimizer.zero_grad()
                loss = self._loss(network, rows[batch], weights[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                norm = nn.utils.clip_grad_norm_(parameters, _LARGEST_GRADIENT)
                if bool(norm.isfinite()):
                    optimizer.step()
            reader.progress("training", epoch + 1, self.epochs)

    def _seeded(self, features: int) -> nn.Module:
        """A new network, the same every time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return self._network(features).double()

    def _trained(self, like: Tensor) -> Any:
        """The trained network in the dtype and on the device of some rows."""
        terms = (like.dtype, like.device, self.get_params(deep=False))
        kept = _KEPT.networks.get(self)
        if kept is not None and kept[0] is self.parameters_ and kept[1] == terms:
            return kept[2]
        with torch.inference_mode(False):  # it may be used with gradients later
            network = self._filled().to(like.device, like.dtype)
        _KEPT.networks[self] = (self.parameters_, terms, network)
        return network

    def _filled(self) -> nn.Module:
        """A new network with what was learned, to map rows with."""
        network = self._seeded(len(self.mean_))
        state = network.state_dict()
        sizes = [tensor.numel() for tensor in state.values()]
        parts = torch.split(torch.from_numpy(self.parameters_), sizes)
        for tensor, part in zip(state.values(), parts, strict=True):
            tensor.copy_(part.view_as(tensor))
        network.load_state_dict(state)
        return network.requires_grad_(False).eval()

    def _network_of(self, x: Tensor) -> Tensor:
        """What the trained network makes of rows, n×d."""
        y: Tensor = self._trained(x)(self._standard(x))
        return y

    def _standard(self, x: Tensor) -> Tensor:
        return centred(x, self.mean_) / self._fitted("scale_", x)

    @property
    def _n_features_out(self) -> int:
        return len(self.mean_)


def _vector(network: nn.Module) -> Tensor:
    """Parameters and buffers in one vector of float64, which holds whole numbers exactly too."""
    return torch.cat([tensor.flatten().double() for tensor in network.state_dict().values()])
