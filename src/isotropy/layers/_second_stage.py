"""The second stage of the isotropy layer: it is trained after encoder and head."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from isotropy.errors import InputError, SettingError
from isotropy.layers._balanced_loss import BalancedLoss
from isotropy.layers._layer import Layer
from isotropy.penalties import LogIsoScore, Penalty
from isotropy.representations import Representations
from isotropy.settings import choice, number, whole_number

HeadTraining = Literal["frozen", "alternating", "joint"]
Rows = Tensor | Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Epoch:
    """One epoch of a second stage.

    Attributes:
        loss: the mean joint loss of its batches.
        task: the mean loss of the task.
        isotropy: the mean loss of isotropy.
        score: the task's score on the rows that are held out.
    """

    loss: float
    task: float
    isotropy: float
    score: float


@dataclass(frozen=True)
class Trained:
    """What a second stage did; the layer has the state of the best epoch.

    Attributes:
        epochs: all of them, in order.
        best: the number of the one with the highest score, counted from 0, and
            among equals that with the lowest loss of isotropy.
        held_out: the numbers of the rows that were held out.
    """

    epochs: tuple[Epoch, ...]
    best: int
    held_out: Tensor


@dataclass(frozen=True, kw_only=True)
class SecondStage:
    r"""Trains an isotropy layer on the embeddings of a fine-tuned encoder, computed once.

    The first stage is an ordinary fine-tuning of encoder and head. In the second both are frozen,
    so that the embeddings never change: they are computed once, and an epoch is a matter of small
    matrix products. The loss is that of `BalancedLoss`, or with `alpha`

    $$L = \alpha L_1 + (1 - \alpha) L_2, \qquad L_2 = \log \frac{1}{\text{IsoScore}}$$

    with L₁ the task's loss. AdamW; early stopping by the task's score on a share of the rows. The
    head is in evaluation mode while it is frozen. Equal settings give equal results.

    Args:
        alpha: α, from 0 to 1; None for the balanced loss.
        isotropy: L₂, `LogIsoScore` by default.
        loss: L₁ of logits and labels; by default the cross-entropy for labels that are whole
            numbers and the mean squared error for others.
        score: of logits and labels, the higher the better; by default the accuracy, and minus the
            mean squared error.
        head: `"frozen"`, the paper's; `"alternating"`: after each epoch of the layer the head is
            trained for one, on the task's loss; `"joint"`: both are trained on the joint loss.
        epochs: the most there may be.
        patience: after how many epochs without a better score training stops.
        validation: the share of rows that is held out.
        batch_size: rows in a batch.
        learning_rate: AdamW's.
        weight_decay: AdamW's.
        seed: of the split, the order of batches and the head's dropout.

    References:
        "Optimizing the performance of text classification models by improving the isotropy of the
        embeddings using a joint loss function".

    Example:
        >>> from isotropy.layers import IsotropyLayer
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = torch.randn(200, 4, generator=generator) * torch.tensor([9.0, 1, 1, 1])
        >>> labels = (x[:, 0] > 0).long()
        >>> head = nn.Linear(4, 2)
        >>> head.weight.data = torch.tensor([[-1.0, 0, 0, 0], [1, 0, 0, 0]])
        >>> layer = IsotropyLayer(4)
        >>> trained = SecondStage(epochs=3, learning_rate=0.01).train(layer, head, x, labels)
        >>> trained.epochs[-1].isotropy < trained.epochs[0].isotropy
        True
    """

    alpha: float | None = None
    isotropy: Penalty | None = None
    loss: Callable[[Tensor, Tensor], Tensor] | None = None
    score: Callable[[Tensor, Tensor], float] | None = None
    head: HeadTraining = "frozen"
    epochs: int = 50
    patience: int = 5
    validation: float = 0.3
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        if self.alpha is not None:
            number("alpha", self.alpha, low=0, high=1)
        if self.isotropy is not None and not isinstance(self.isotropy, Penalty):
            raise SettingError(
                f"got isotropy={self.isotropy!r}, expected one of isotropy.penalties, such as "
                "isotropy.penalties.LogIsoScore()"
            )
        for name in ("loss", "score"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise SettingError(
                    f"got {name}={function!r}, expected a function of logits and labels"
                )
        choice("head", self.head, get_args(HeadTraining))
        for name, low in (("epochs", 1), ("patience", 1), ("batch_size", 2), ("seed", 0)):
            whole_number(name, getattr(self, name), low=low)
        if number("validation", self.validation, low=0, high=1, open=True) == 1:
            raise SettingError("got validation=1, expected a share below 1; the rest is trained on")
        number("learning_rate", self.learning_rate, low=0, open=True)
        number("weight_decay", self.weight_decay, low=0)

    def train(
        self,
        layer: Layer,
        head: nn.Module,
        rows: Rows,
        labels: Tensor,
        *,
        held_out: Tensor | None = None,
    ) -> Trained:
        """Train the layer in place, and the head with it where the settings say so.

        Args:
            layer: of as many features as the rows.
            head: from the layer's output to logits; of a Hugging Face classifier, `layers.Head`.
            rows: n×d, the embeddings, such as `layers.embeddings` gives; or a function from the
                numbers of some rows to these rows, where they do not fit into memory or are to be
                made anew each time.
            labels: n of them.
            held_out: the numbers of the rows that are held out, such as those that the first stage
                was not trained on either; by default a share `validation` is drawn.

        Returns:
            The epochs; layer and head are left with the best one's parameters.

        Raises:
            InputError: rows, labels and head do not fit together, or there are fewer than 4 rows.
            SettingError: a layer that has nothing to learn here.
        """
        _require_trainable(layer)
        if not isinstance(head, nn.Module):
            raise InputError(
                f"got a head of type {type(head).__name__}, expected a module from embeddings to "
                "logits, such as layers.Head(model)"
            )
        held_out, kept = self._split(layer, rows, labels, held_out)
        task = self.loss or (_squares if labels.is_floating_point() else _cross_entropy)
        state = _Run(
            settings=self,
            layer=layer,
            head=head,
            task=task,
            score=self.score or (_minus_squares if labels.is_floating_point() else _accuracy),
            isotropy=self.isotropy or LogIsoScore(),
            balanced=BalancedLoss().to(labels.device),
            fetch=rows if callable(rows) else rows.detach().__getitem__,
            labels=labels,
        )
        devices = [labels.device.index or 0] if labels.device.type == "cuda" else []
        with torch.random.fork_rng(devices), _as_it_was(layer, head):
            state.require_fit(kept[:2])
            torch.manual_seed(self.seed)
            epochs, best = state.run(kept, held_out)
        return Trained(tuple(epochs), best, held_out)

    def split(self, n: int) -> tuple[Tensor, Tensor]:
        """The numbers of the rows that are held out, and of those that are trained on.

        In the order of the first, `score` is given logits and labels.

        Raises:
            InputError: there are fewer than 4 rows.

        Example:
            >>> held_out, kept = SecondStage().split(10)
            >>> len(held_out), len(kept)
            (3, 7)
        """
        if n < 4:
            raise InputError(f"got {n} rows, expected at least 4, of which some are held out")
        order = torch.randperm(n, generator=torch.Generator().manual_seed(self.seed))
        count = min(max(1, round(self.validation * n)), n - 2)
        return order[:count], order[count:]

    def _split(
        self, layer: Layer, rows: Rows, labels: Tensor, given: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        for name, what, known in (
            ("rows", rows, callable(rows) or isinstance(rows, Tensor)),
            ("labels", labels, isinstance(labels, Tensor) and labels.ndim > 0),
        ):
            if not known:
                raise InputError(
                    f"got {name} of type {type(what).__name__}, expected a tensor with one entry "
                    "a text; make one of a numpy array with torch.from_numpy"
                )
        n = len(labels)
        if isinstance(rows, Tensor):
            layer.check(rows)
            if len(rows) != n:
                raise InputError(
                    f"got {n} labels for {len(rows)} rows, expected one label a row; "
                    "compute the embeddings of exactly the texts that have labels"
                )
        held_out, kept = self.split(n) if given is None else _parted(given, n)
        return held_out.to(labels.device), kept.to(labels.device)


@dataclass
class _Run:
    """A second stage under way."""

    settings: SecondStage
    layer: Layer
    head: nn.Module
    task: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor], float]
    isotropy: Penalty
    balanced: BalancedLoss
    fetch: Callable[[Tensor], Tensor]
    labels: Tensor

    @torch.no_grad()
    def require_fit(self, some: Tensor) -> None:
        """Raise an InputError unless the head reads what the layer gives, and has all classes."""
        self._set_modes(layer=False, head=False)
        mapped = self.layer(self.fetch(some))
        try:
            logits = self.head(mapped)
        except RuntimeError as error:
            said = next(iter(str(error).splitlines()), type(error).__name__)
            raise InputError(
                f"got a head that fails on embeddings with shape {tuple(mapped.shape)} "
                f"({said}), expected one that reads the {self.layer.d} features of the "
                "layer, such as layers.Head(model)"
            ) from error
        if self.settings.loss is not None:
            return
        shape, labels = tuple(logits.shape), self.labels
        if labels.is_floating_point():
            if logits.numel() != labels[some].numel():
                raise InputError(
                    f"got logits with shape {shape} for labels with shape "
                    f"{tuple(labels[some].shape)}, expected a number for each; give another head, "
                    "or loss="
                )
            return
        low, high = labels.min(), labels.max()
        if logits.ndim != 2 or labels.ndim != 1 or low < 0 or high >= shape[1]:
            raise InputError(
                f"got labels with shape {tuple(labels.shape)} from {int(low)} to {int(high)} for "
                f"logits with shape {shape}, expected n class numbers from 0 and a logit for each "
                "class; give another head, or loss="
            )

    def run(self, kept: Tensor, held_out: Tensor) -> tuple[list[Epoch], int]:
        """Epochs until the score rises no more; the best one's parameters are put back."""
        with_layer = [*self.layer.parameters()]
        trains_head = self.settings.head != "frozen"
        of_head = [*self.head.parameters()] if trains_head else []
        joint = self.settings.head == "joint"
        optimizer = self._optimizer(with_layer + (of_head if joint else []))
        of_alone = self._optimizer(of_head) if self.settings.head == "alternating" else None
        order = torch.Generator().manual_seed(self.settings.seed)
        epochs: list[Epoch] = []
        best, risen, states = 0, 0, self._states()
        for epoch in range(self.settings.epochs):
            self._set_modes(layer=True, head=joint)
            losses = self._pass(self._batches(kept, order), optimizer, joint_loss=True)
            if of_alone is not None:
                self._set_modes(layer=False, head=True)
                self._pass(self._batches(kept, order), of_alone, joint_loss=False)
            epochs.append(Epoch(*losses, self._scored(held_out)))
            new, old = epochs[epoch], epochs[best]
            if epoch == 0 or new.score > old.score:
                risen = epoch
            if risen == epoch or (new.score == old.score and new.isotropy < old.isotropy):
                best, states = epoch, self._states()
            if epoch - risen >= self.settings.patience:
                break
        for module, state in states:
            module.load_state_dict(state)
        return epochs, best

    def _states(self) -> list[tuple[nn.Module, dict[str, Any]]]:
        """What the best epoch's parameters are."""
        trained = [self.layer] if self.settings.head == "frozen" else [self.layer, self.head]
        return [(module, copy.deepcopy(module.state_dict())) for module in trained]

    def _optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            parameters, lr=self.settings.learning_rate, weight_decay=self.settings.weight_decay
        )

    def _set_modes(self, *, layer: bool, head: bool) -> None:
        for module, trains in ((self.layer, layer), (self.head, head)):
            module.train(trains)
            module.requires_grad_(trains)

    def _batches(self, kept: Tensor, order: torch.Generator) -> Iterator[Tensor]:
        """All rows in a new order; a last batch of one row, which has no isotropy, is left out."""
        shuffled = kept[torch.randperm(len(kept), generator=order).to(kept.device)]
        batches = torch.split(shuffled, self.settings.batch_size)
        yield from (batch for batch in batches if len(batch) > 1)

    def _pass(
        self, batches: Iterator[Tensor], optimizer: torch.optim.Optimizer, *, joint_loss: bool
    ) -> tuple[float, float, float]:
        """One epoch; the means of the joint loss, the task's and that of isotropy."""
        sums, count = torch.zeros(3, dtype=torch.float64, device=self.labels.device), 0
        for batch in batches:
            mapped = self.layer(self.fetch(batch))
            task = self.task(self.head(mapped), self.labels[batch])
            loss = isotropy = task
            if joint_loss:
                isotropy = self.isotropy(Representations.from_cloud(mapped))
                loss = self._joint(task, isotropy)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            sums += torch.stack([loss, task, isotropy]).detach()
            count += 1
        joint, of_task, of_isotropy = (sums / count).tolist()
        return joint, of_task, of_isotropy

    def _joint(self, task: Tensor, isotropy: Tensor) -> Tensor:
        alpha = self.settings.alpha
        if alpha is None:
            joint: Tensor = self.balanced(task, isotropy)
            return joint
        return alpha * task + (1 - alpha) * isotropy

    @torch.no_grad()
    def _scored(self, held_out: Tensor) -> float:
        self._set_modes(layer=False, head=False)
        parts = torch.split(held_out, max(self.settings.batch_size, 1024))
        logits = torch.cat([self.head(self.layer(self.fetch(part))) for part in parts])
        return float(self.score(logits, self.labels[held_out]))


def _parted(held_out: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The numbers of rows that are held out, and of all others."""
    chosen = held_out.flatten().tolist()
    if not all(isinstance(i, int) and 0 <= i < n for i in chosen) or not (
        1 <= len(set(chosen)) == len(chosen) <= n - 2
    ):
        raise InputError(
            f"got {len(chosen)} numbers of rows to hold out of {n}, expected different whole ones "
            f"from 0 to {n - 1}, at least one and so few that two rows are left to train on"
        )
    others = sorted(set(range(n)) - set(chosen))
    return held_out.flatten(), torch.tensor(others)


def _require_trainable(layer: Any) -> None:
    """Raise a SettingError unless a joint loss can train the layer."""
    name = type(layer).__name__
    if not isinstance(layer, Layer):
        raise SettingError(f"got a layer of type {name}, expected one of isotropy.layers")
    if type(layer).own_loss is not Layer.own_loss:
        raise SettingError(
            f"got a layer of type {name}, which learns from a loss of its own, expected one "
            "without, such as IsotropyLayer; a trainer of isotropy.integrations trains it"
        )
    if not any(True for _ in layer.parameters()):
        raise SettingError(
            f"got a layer of type {name}, which has no parameters to train, expected one that has, "
            "such as IsotropyLayer; attach it and fine-tune encoder and head with it"
        )


@contextmanager
def _as_it_was(*modules: nn.Module) -> Iterator[None]:
    """Afterwards every part is in its mode, and what was to be trained still is."""
    modes = [(part, part.training) for module in modules for part in module.modules()]
    grads = [(p, p.requires_grad) for module in modules for p in module.parameters()]
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
        for parameter, requires_grad in grads:
            parameter.requires_grad_(requires_grad)
            parameter.grad = None


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits, labels.long())


def _squares(logits: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.mse_loss(logits.reshape(labels.shape), labels)


def _minus_squares(logits: Tensor, labels: Tensor) -> float:
    return -float(_squares(logits, labels))


def _accuracy(logits: Tensor, labels: Tensor) -> float:
    return float((logits.argmax(dim=-1) == labels).double().mean())
