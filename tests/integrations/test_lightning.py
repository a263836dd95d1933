"""Lightning's trainer with a penalty, beside the same training written out by hand."""

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import Logger
from lightning.pytorch.loggers.logger import DummyExperiment
from torch import Tensor, nn
from torch.utils.data import DataLoader

import isotropy
from isotropy import layers, penalties
from isotropy.errors import SettingError
from isotropy.integrations.lightning import IsotropyCallback
from isotropy.representations import Representations

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
]
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

Batch = tuple[Tensor, Tensor]


def data(count: int, seed: int = 0) -> list[Batch]:
    """Batches of eight points with one of two labels."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for _ in range(count):
        x = torch.randn(8, 6, generator=generator, dtype=torch.float64)
        batches.append((x, (x[:, 0] > 0).long()))
    return batches


class Classifier(LightningModule):
    """Two linear layers, whose hidden layer is the cloud."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.hidden = nn.Linear(6, 5, dtype=torch.float64)
        self.head = nn.Linear(5, 2, dtype=torch.float64)

    def representations(self, batch: Batch) -> Any:
        return self.hidden(batch[0])

    def training_step(self, batch: Batch, batch_idx: int) -> Any:
        x = self.representations(batch)
        loss = nn.functional.cross_entropy(self.head(x), batch[1])
        return {"loss": loss, "representations": Representations.from_cloud(x, batch[1])}

    def validation_step(self, batch: Batch) -> None:
        pass

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Kept(Logger):
    """A logger that keeps what it is given."""

    name = "kept"
    version = "0"

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, dict[str, float]]] = []

    @property
    def experiment(self) -> Any:
        return DummyExperiment()

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        self.seen.append((step or 0, dict(metrics)))

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        pass

    def of(self, key: str) -> list[tuple[int, float]]:
        return [(step, metrics[key]) for step, metrics in self.seen if key in metrics]


@pytest.fixture
def fit(tmp_path: Path) -> Callable[..., Trainer]:
    """Trains a module with the callback, one epoch."""

    def fitted(
        module: LightningModule,
        callback: IsotropyCallback,
        batches: list[Batch],
        *,
        validation: list[Batch] | None = None,
        resume: str | None = None,
        **settings: Any,
    ) -> Trainer:
        common = {
            "max_epochs": 1,
            "accelerator": "cpu",
            "devices": 1,
            "logger": Kept(),
            "log_every_n_steps": 1,
            "num_sanity_val_steps": 0,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "enable_checkpointing": False,
            "default_root_dir": tmp_path,
        }
        trainer = Trainer(**{**common, **settings}, callbacks=callback)
        loaders = [
            None if b is None else DataLoader(b, batch_size=None) for b in (batches, validation)
        ]  # type: ignore[arg-type, var-annotated]
        trainer.fit(module, *loaders, ckpt_path=resume, weights_only=resume is not None or None)
        return trainer

    return fitted


def by_hand(
    module: Classifier, batches: list[Batch], penalty: Callable[[Tensor], Tensor], accumulation: int
) -> Classifier:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for i, (x, labels) in enumerate(batches):
        hidden = module.hidden(x)
        loss = nn.functional.cross_entropy(module.head(hidden), labels) + penalty(hidden)
        (loss / accumulation).backward()
        if (i + 1) % accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
    return module


@pytest.mark.parametrize("accumulation", [1, 2])
def test_the_gradients_are_those_of_a_loop_by_hand(
    fit: Callable[..., Trainer], tiny: SimpleNamespace, accumulation: int
) -> None:
    module, batches = Classifier(), data(4)
    step = type(module).training_step
    start = copy.deepcopy(module)
    callback = IsotropyCallback(penalties.Cosine(2.0))
    trainer = fit(module, callback, batches, accumulate_grad_batches=accumulation)
    expected = by_hand(copy.deepcopy(start), batches, lambda x: 2 * tiny.cosine(x), accumulation)
    plain = by_hand(copy.deepcopy(start), batches, lambda x: x.new_zeros(()), accumulation)
    difference = tiny.distance(module, expected)
    assert difference < 1e-9
    difference = tiny.distance(module, plain)
    assert difference > 1e-3
    assert "training_step" not in vars(module)
    assert module.training_step.__func__ is step  # type: ignore[attr-defined]

    logger: Any = trainer.logger
    hidden = start.hidden(batches[0][0])
    term = 2 * tiny.cosine(hidden)
    task = nn.functional.cross_entropy(start.head(hidden), batches[0][1])
    ratio = gradient_norm(term, start) / gradient_norm(task, start)
    assert logger.of("penalty_gradient_ratio") == [(0, pytest.approx(ratio, rel=1e-9))]
    if accumulation == 1:
        assert logger.of("penalty")[0] == (0, pytest.approx(float(term.detach()), rel=1e-6))
        assert logger.of("task_loss")[0] == (0, pytest.approx(float(task.detach()), rel=1e-6))
        assert len(logger.of("penalty")) == 4


def gradient_norm(term: Tensor, module: nn.Module) -> float:
    found = torch.autograd.grad(
        term, list(module.parameters()), retain_graph=True, allow_unused=True
    )
    return float(torch.cat([g.flatten() for g in found if g is not None]).norm())


@pytest.mark.parametrize("given", [True, False], ids=["given", "validation"])
def test_tracked_measures_are_those_of_the_batches(
    fit: Callable[..., Trainer], given: bool
) -> None:
    module, held_out = Classifier(), data(3, seed=1)
    start = copy.deepcopy(module)
    callback = IsotropyCallback(
        track=["iso_score"], track_steps=2, track_batches=held_out if given else None
    )
    trainer = fit(module, callback, data(5), validation=None if given else held_out)
    logger: Any = trainer.logger
    x = torch.cat([x for x, _ in held_out])
    first, last = (
        float(isotropy.measures.iso_score(m.hidden(x).detach())) for m in (start, at_step(start, 4))
    )
    found = logger.of("iso_score")
    assert [step for step, _ in found] == [0, 2, 4]
    assert found[0][1] == pytest.approx(first, rel=1e-9)
    assert found[-1][1] == pytest.approx(last, rel=1e-9)
    assert float(trainer.callback_metrics["iso_score"]) == pytest.approx(last, rel=1e-6)


def at_step(start: Classifier, steps: int) -> Classifier:
    return by_hand(copy.deepcopy(start), data(5)[:steps], lambda x: x.new_zeros(()), 1)


def test_a_resumed_training_is_the_undisturbed_one(
    fit: Callable[..., Trainer], tiny: SimpleNamespace, tmp_path: Path
) -> None:
    from lightning.pytorch.callbacks import ModelCheckpoint

    def trained(resume: str | None) -> tuple[Classifier, Trainer]:
        module = Classifier()
        callback = IsotropyCallback(penalties.IStar(weight=1, zeta=0.5, tokens=6), compare_steps=1)
        keep = ModelCheckpoint(tmp_path / "kept", "{step}", save_top_k=-1, every_n_train_steps=1)
        trainer = fit(
            module,
            [callback, keep],  # type: ignore[arg-type]
            data(1) * 3,  # alike, as Lightning begins the data anew
            max_epochs=2,
            resume=resume,
            enable_checkpointing=True,
        )
        return module, trainer

    module, trainer = trained(None)
    logger: Any = trainer.logger
    assert [step for step, _ in logger.of("penalty_refresh_seconds")] == [0, 3]
    for step, refreshes in ((4, []), (3, [3]), (2, [3])):
        resumed, again = trained(str(tmp_path / "kept" / f"step={step}.ckpt"))
        difference = tiny.distance(module, resumed)
        assert difference == 0
        after: Any = again.logger
        assert [step for step, _ in after.of("penalty_refresh_seconds")] == refreshes
        assert after.of("penalty") == [entry for entry in logger.of("penalty") if entry[0] >= step]


def test_a_refresh_sees_the_training_data(fit: Callable[..., Trainer]) -> None:
    module, batches = Classifier(), data(4)
    start, penalty = copy.deepcopy(module), penalties.IStar(weight=1)
    fit(module, IsotropyCallback(penalty), batches)
    with torch.no_grad():
        expected = torch.cov(start.hidden(torch.cat([x for x, _ in batches])).T)
    assert penalty.shrinkage is not None
    torch.testing.assert_close(penalty.shrinkage.double(), expected, rtol=1e-5, atol=1e-6)


class WithoutProtocol(Classifier):
    representations = None  # type: ignore[assignment]

    def training_step(self, batch: Batch, batch_idx: int) -> Any:
        return nn.functional.cross_entropy(self.head(self.hidden(batch[0])), batch[1])


class ByItself(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


@pytest.mark.parametrize(
    ("module", "settings", "message"),
    [
        (WithoutProtocol, {"penalty": penalties.Cosine()}, "training_step that returns Tensor"),
        (WithoutProtocol, {"penalty": penalties.IStar()}, r"without a method representations\(b"),
        (WithoutProtocol, {"track": "iso_score"}, r"without a method representations\(batch\)"),
        (ByItself, {"penalty": penalties.Cosine()}, "a module that optimizes by itself"),
        (Classifier, {"track": "iso_score"}, "neither track_batches nor data for validation"),
        (Classifier, {"track": "iso_score", "track_batches": []}, "got no batches to track"),
    ],
    ids=["step", "refresh", "track", "manual", "no data", "empty"],
)
def test_modules_that_do_not_keep_the_protocol_are_errors(
    fit: Callable[..., Trainer], module: Any, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        fit(module(), IsotropyCallback(**settings), data(2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"penalty": 3.0}, "got a penalty of type float"),
        ({"track": ["isoscore"]}, "got measure 'isoscore'.*did you mean 'iso_score'"),
        ({"track_steps": 0}, "got track_steps=0"),
        ({"refresh_points": 1}, "got refresh_points=1, expected a whole number from 2 up"),
        ({"track_site": "tokns"}, "got site 'tokns'"),
    ],
    ids=["penalty", "track", "track_steps", "refresh_points", "track_site"],
)
def test_settings_that_make_no_sense_are_errors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        IsotropyCallback(**settings)


class QuickFlow(layers.Flow):
    """A flow with a rate of its own, at which plain gradient descent does not diverge."""

    learning_rate = 0.002


class WithFlow(Classifier):
    """A flow of the hidden layer feeds the head."""

    def __init__(self, optimizer: str = "plain") -> None:
        super().__init__()
        self.hidden = nn.Linear(6, 8, dtype=torch.float64)
        self.flow = QuickFlow(8).double()
        self.head = nn.Linear(8, 2, dtype=torch.float64)
        self.optimizer = optimizer

    def training_step(self, batch: Batch, batch_idx: int) -> Any:
        x = self.representations(batch)
        loss = nn.functional.cross_entropy(self.head(self.flow(x)), batch[1])
        return {"loss": loss, "representations": x} if self.optimizer != "bare" else loss

    def configure_optimizers(self) -> Any:
        if self.optimizer in ("plain", "bare"):
            return torch.optim.SGD(self.parameters(), lr=0.1)
        own = layers.parameter_groups(self)
        optimizer = torch.optim.SGD(own if self.optimizer == "apart" else self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def flow_by_hand(
    module: WithFlow, batches: list[Batch], penalty: Callable[[Tensor], Tensor]
) -> tuple[WithFlow, list[float]]:
    rest = [*module.hidden.parameters(), *module.head.parameters()]
    optimizers = [
        torch.optim.SGD(rest, lr=0.1),
        torch.optim.SGD(module.flow.parameters(), lr=QuickFlow.learning_rate),
    ]
    losses = []
    for x, labels in batches:
        hidden = module.hidden(x)
        task = nn.functional.cross_entropy(module.head(module.flow(hidden)), labels)
        own = module.flow.negative_log_likelihood(hidden.detach()).mean()
        losses.append(float(own.detach()))
        module.zero_grad()
        (task + penalty(hidden) + own).backward()
        for optimizer in optimizers:
            optimizer.step()
    return module, losses


@pytest.mark.parametrize(
    ("optimizer", "with_penalty"),
    [("plain", True), ("plain", False), ("bare", False), ("apart", True)],
)
def test_a_flow_learns_from_its_own_loss_at_its_own_rate(
    fit: Callable[..., Trainer], tiny: SimpleNamespace, optimizer: str, with_penalty: bool
) -> None:
    module, batches = WithFlow(optimizer), data(4)
    start = copy.deepcopy(module)
    callback = IsotropyCallback(penalties.Cosine(2.0) if with_penalty else None)
    trainer = fit(module, callback, batches)
    expected, losses = flow_by_hand(
        copy.deepcopy(start),
        batches,
        lambda x: 2 * tiny.cosine(x) if with_penalty else x.new_zeros(()),
    )
    difference = tiny.distance(module, expected)
    assert difference < 1e-9
    difference = tiny.distance(module.flow, start.flow)
    assert difference > 1e-3
    logger: Any = trainer.logger
    assert [value for _, value in logger.of("layer_loss")] == pytest.approx(losses, rel=1e-6)
    assert len(logger.of("task_loss")) == 4


def test_a_schedule_that_knows_no_group_for_the_layer_is_an_error(
    fit: Callable[..., Trainer],
) -> None:
    message = r"got a schedule for .*'QuickFlow'.*AdamW\(layers.parameter_groups\(self\)"
    with pytest.raises(SettingError, match=message):
        fit(WithFlow("mixed"), IsotropyCallback(), data(2))


def test_a_flow_in_a_resumed_training(
    fit: Callable[..., Trainer], tiny: SimpleNamespace, tmp_path: Path
) -> None:
    from lightning.pytorch.callbacks import ModelCheckpoint

    def trained(resume: str | None) -> WithFlow:
        module = WithFlow()
        keep = ModelCheckpoint(tmp_path / "kept", "{step}", save_top_k=-1, every_n_train_steps=1)
        fit(
            module,
            [IsotropyCallback(), keep],  # type: ignore[arg-type]
            data(1) * 3,
            max_epochs=2,
            resume=resume,
            enable_checkpointing=True,
        )
        return module

    module = trained(None)
    difference = tiny.distance(module, trained(str(tmp_path / "kept" / "step=4.ckpt")))
    assert difference == 0
