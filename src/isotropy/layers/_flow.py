"""A normalising flow that makes embeddings Gaussian."""

import math
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import functional_call

from isotropy import ranks
from isotropy.errors import MissingExtraError, SettingError
from isotropy.inputs import COMPUTE_DTYPE, full_precision
from isotropy.layers._layer import Layer
from isotropy.method import MethodSpec
from isotropy.settings import choice, whole_number


class Flow(Layer):
    r"""An invertible map of embeddings to a standard normal distribution, whose z feeds the head.

    $$z = f(x), \qquad -\log p(x) = \tfrac12 \|z\|^2 + \tfrac d2 \log 2\pi
      - \log \left| \det \frac{\partial f}{\partial x} \right|$$

    f is Glow on vectors: each level puts half of its features aside as they are and maps the rest
    by a number of steps; a step scales and shifts every feature, permutes the features, and adds to
    their second half what a network of two hidden layers makes of the first. The first batch of
    training sets scales and shifts so that what leaves them has mean 0 and variance 1; before it,
    the flow only permutes.

    The flow learns from `own_loss`, the mean of −log p(x) over the rows that it saw last in
    training, detached; add it to the loss and give the flow's parameters their own
    `learning_rate`. The gradient of the task goes through z to the encoder, and not to the flow's
    parameters. In a model that writes texts, `attach` gives it the decoder's states of all tokens
    that are no padding. All is computed in float32 (float64 in a flow of float64).

    Args:
        d: number of features, at least 2 for the last level.
        levels: number of levels.
        steps: number of steps in each.
        width: neurons in each hidden layer of a coupling.
        permutation: `"fixed"`, or `"learned"`: a learned linear map follows, which together with
            the permutation is Glow's invertible 1×1 convolution.
        seed: of the permutations.
        group: the process group whose ranks share a batch; all of them by default.

    Shapes:
        x: n×d; z: n×d.

    References:
        Kingma & Dhariwal 2018, "Glow: generative flow with invertible 1×1 convolutions"; Li et al.
        2020, "On the sentence embeddings from pre-trained language models".

    Example:
        >>> flow = Flow(8)
        >>> x = torch.randn(100, 8, generator=torch.Generator().manual_seed(0)) * 5 + 3
        >>> z = flow(x)  # the first batch sets its scales and shifts
        >>> bool(z.std() < 1.1), bool(flow.own_loss() < 30)
        (True, True)
        >>> bool(torch.allclose(flow.inverse(z), x, atol=1e-4))
        True
    """

    in_float32 = True
    learning_rate = 1e-3
    initialised: Tensor

    def __init__(
        self,
        d: int,
        *,
        levels: int = 3,
        steps: int = 3,
        width: int = 32,
        permutation: Literal["fixed", "learned"] = "fixed",
        seed: int = 0,
        group: ranks.Group = None,
    ) -> None:
        super().__init__(
            d, levels=levels, steps=steps, width=width, permutation=permutation, seed=seed
        )
        for name, value in (("levels", levels), ("steps", steps), ("width", width)):
            whole_number(name, value, low=1)
        whole_number("seed", seed, low=0)
        choice("permutation", permutation, ("fixed", "learned"))
        if d >> (levels - 1) < 2:
            raise SettingError(
                f"got d={d} with levels={levels}, expected at least {2**levels} features, as each "
                "level but the last puts half of them aside; use fewer levels"
            )
        try:
            from isotropy.layers._glow import Glow
        except ImportError as error:
            if error.name and error.name.partition(".")[0] == "zuko":
                raise MissingExtraError("zuko", "flow") from None
            raise
        self.group = group
        self.glow = Glow(
            d,
            levels=levels,
            steps=steps,
            width=width,
            linear=permutation == "learned",
            seed=seed,
        )
        self.register_buffer("initialised", torch.zeros((), dtype=torch.bool))
        self._is_initialised = False  # the same on the host, which need not ask the device
        self._last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """The rows' z, n×d.

        Raises:
            InputError: `x` is not n×d.
        """
        self.check(x)
        rows = self._working(x)
        with full_precision(rows):
            if self.training:
                self._initialise(rows.detach())
                self._last = rows.detach()
            # The task shapes the embeddings, not the flow: its parameters are constants here.
            fixed = {name: p.detach() for name, p in self.glow.named_parameters()}
            z: Tensor = functional_call(self.glow, fixed, (rows,)).z
            if self.training:
                z = _reaching(z, self.glow.parameters())
        return z.to(x.dtype)

    def negative_log_likelihood(self, x: Tensor) -> Tensor:
        """−log p of every row, n, with gradients to the flow's parameters and to `x`."""
        self.check(x)
        rows = self._working(x)
        with full_precision(rows):
            z, log_det = self.glow(rows)
            constant = self.d / 2 * math.log(2 * math.pi)
            result: Tensor = z.square().sum(dim=1) / 2 + constant - log_det
        return result

    def own_loss(self) -> Tensor | None:
        """The mean of −log p of the rows seen last in training, detached; None before any."""
        if self._last is None or len(self._last) == 0:
            return None
        return self.negative_log_likelihood(self._last).mean()

    def inverse(self, z: Tensor) -> Tensor:
        """The rows that the flow maps to `z`, n×d."""
        self.check(z)
        with full_precision(z):
            x: Tensor = self.glow.inverse(self._working(z))
        return x.to(z.dtype)

    def _working(self, x: Tensor) -> Tensor:
        dtype = next(self.glow.parameters()).dtype
        return x.to(torch.promote_types(COMPUTE_DTYPE[x.dtype], dtype))

    def _initialise(self, x: Tensor) -> None:
        """Set scales and shifts from the first batch that can; the host waits for it once."""
        if self._is_initialised:
            return
        if not bool(self.initialised) and not self.glow.initialise(x, self.group):
            return
        self.initialised.fill_(True)
        self._is_initialised = True

    def _load_from_state_dict(self, *args: Any, **settings: Any) -> None:
        self._is_initialised = False  # until the loaded buffer has been looked at
        super()._load_from_state_dict(*args, **settings)

    def __getstate__(self) -> dict[str, Any]:
        """A copy does not carry the last batch along."""
        return {**self.__dict__, "_last": None}


def _reaching(z: Tensor, parameters: Iterable[Tensor]) -> Tensor:
    """`z`, from which a graph leads to the parameters, though no gradient comes to them.

    Data-parallel training that looks for unused parameters (as Hugging Face's does) looks for them
    in the model's output, and would take those of the flow for unused: their gradient comes from a
    loss that is computed later.
    """
    result: Tensor = _Reaching.apply(z, *parameters)  # type: ignore[no-untyped-call]
    return result


class _Reaching(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, *parameters: Tensor) -> Tensor:
        return z.view_as(z)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.parameters = len(inputs) - 1

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return grad, *(None,) * ctx.parameters


SPEC = MethodSpec(
    name="flow",
    kind="layer",
    component=Flow,
    summary="normalising flow to a standard normal distribution",
    reference=(
        "Li et al. 2020, On the sentence embeddings from pre-trained language models, EMNLP"
    ),
    differs=(
        "Li et al.'s code also normalises the hidden layers of its couplings and scales their "
        "output, and its loss is in bits a feature; here the hidden layers are plain and the loss "
        "is in nats a row, which is all the same to Adam. That the task's gradient passes the "
        "flow's parameters by is this project's reading of a flow that is trained on the "
        "likelihood. So is where it stands in translation and summarisation, of which Ding et al. "
        "2022 say nothing: at every token, between the decoder's last states and the language "
        "model's head."
    ),
)
