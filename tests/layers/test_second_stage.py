import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from isotropy import layers, measures
from isotropy.errors import InputError, SettingError
from isotropy.layers import IsotropyLayer, SecondStage

D = 6


def fine_tuned(n: int = 300) -> tuple[Tensor, Tensor, nn.Linear]:
    """Embeddings in a narrow cone, with two classes that a head tells apart."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % 2
    x = torch.randn(n, D, generator=generator) * torch.tensor([1.0, 0.5, 0.3, 0.2, 0.1, 0.1]) + 2
    x[:, 0] += 3.0 * labels
    head = nn.Linear(D, 2)
    with torch.no_grad():
        head.weight.zero_()
        head.weight[:, 0] = torch.tensor([-1.0, 1.0])
        head.bias.copy_(torch.tensor([3.5, -3.5]))
    return x, labels, head


def test_it_makes_embeddings_isotropic_and_keeps_the_task() -> None:
    x, labels, head = fine_tuned()
    layer = IsotropyLayer(D)
    trained = SecondStage(epochs=40, patience=40, learning_rate=0.02).train(layer, head, x, labels)
    with torch.no_grad():
        after = layer(x)
        accuracy = float((head(after).argmax(dim=1) == labels).double().mean())
        before = float((head(x).argmax(dim=1) == labels).double().mean())
    assert trained.epochs[-1].isotropy < trained.epochs[0].isotropy
    assert float(measures.iso_score(after)) > 3 * float(measures.iso_score(x))
    assert accuracy >= before - 0.01


def by_hand(
    x: np.ndarray, labels: np.ndarray, kept: np.ndarray, order: list[np.ndarray], alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    """A linear layer under AdamW in float64, with gradients by central differences of the loss."""
    weight, bias = np.eye(D), np.zeros(D)
    head = np.zeros((2, D))
    head[:, 0] = (-1, 1)
    shift = np.array([3.5, -3.5])

    def loss(flat: np.ndarray, rows: np.ndarray) -> float:
        y = x[rows] @ flat[: D * D].reshape(D, D).T + flat[D * D :]
        logits = y @ head.T + shift
        logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        task = -logs[np.arange(len(rows)), labels[rows]].mean()
        cov = np.cov(y.T)
        score = (np.trace(cov) ** 2 / (cov**2).sum() - 1) / (D - 1)
        return alpha * task + (1 - alpha) * np.log(1 / score)

    flat = np.concatenate((weight.ravel(), bias))
    first, second = np.zeros_like(flat), np.zeros_like(flat)
    for step, rows in enumerate(order, start=1):
        grad = np.empty_like(flat)
        for i in range(len(flat)):
            up, down = flat.copy(), flat.copy()
            up[i] += 1e-6
            down[i] -= 1e-6
            grad[i] = (loss(up, kept[rows]) - loss(down, kept[rows])) / 2e-6
        grad[np.abs(grad) < 1e-8] = 0  # rounding, to which Adam would give a full step
        flat = flat * (1 - 0.01 * 0.05)
        first = 0.9 * first + 0.1 * grad
        second = 0.999 * second + 0.001 * grad**2
        flat -= 0.01 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return flat[: D * D].reshape(D, D), flat[D * D :]


def test_one_epoch_is_adamw_on_the_joint_loss() -> None:
    x, labels, head = fine_tuned(40)
    x, head = x.double(), head.double()
    layer = IsotropyLayer(D).double()
    settings = SecondStage(
        alpha=0.3, epochs=1, batch_size=10, learning_rate=0.01, weight_decay=0.05, seed=4
    )
    trained = settings.train(layer, head, x, labels)
    kept = np.setdiff1d(np.arange(40), trained.held_out.numpy())
    assert len(trained.held_out) == 12  # 30 %
    # The order in which rows come is the seed's; that every row comes once is checked here.
    seen: list[np.ndarray] = []

    def rows(numbers: Tensor) -> Tensor:
        seen.append(numbers.numpy())
        return x[numbers]

    again = IsotropyLayer(D).double()
    settings.train(again, head, rows, labels)
    assert len(seen.pop(0)) == 2  # whether layer and head fit together is tried first
    batches = seen[:3]
    assert [len(batch) for batch in batches] == [10, 10, 8]
    assert sorted(np.concatenate(batches)) == sorted(kept)
    np.testing.assert_array_equal(np.sort(seen[3]), np.sort(trained.held_out.numpy()))
    weight, bias = by_hand(x.numpy(), labels.numpy(), np.arange(40), batches, 0.3)
    for found in (layer, again):
        np.testing.assert_allclose(found.first.weight.detach(), weight, atol=1e-6)
        np.testing.assert_allclose(found.first.bias.detach(), bias, atol=1e-6)


def test_without_alpha_the_losses_are_balanced() -> None:
    # A row a batch of the same rows: the losses of the first epoch are those of the start.
    x, labels, head = fine_tuned(40)
    settings = SecondStage(epochs=1, batch_size=1000, learning_rate=1e-9)
    trained = settings.train(IsotropyLayer(D), head, x, labels)
    found = trained.epochs[0]
    assert found.loss == pytest.approx((found.task + found.isotropy) / 2)  # both as their mean
    kept = np.setdiff1d(np.arange(40), trained.held_out.numpy())
    logits = head(x[kept]).detach()
    expected = nn.functional.cross_entropy(logits, labels[kept])
    assert found.task == pytest.approx(float(expected))
    assert found.isotropy == pytest.approx(-np.log(float(measures.iso_score(x[kept]))), rel=1e-5)
    held = trained.held_out
    accuracy = (head(x[held]).argmax(dim=1) == labels[held]).double().mean()
    assert found.score == pytest.approx(float(accuracy))


def test_frozen_means_frozen() -> None:
    x, labels, head = fine_tuned()
    head = nn.Sequential(nn.Dropout(0.5), head).train()
    head[1].bias.requires_grad_(False)
    before = copy.deepcopy(head.state_dict())
    layer = IsotropyLayer(D).eval()
    first = SecondStage(epochs=2).train(layer, head, x, labels)
    assert all(torch.equal(before[name], value) for name, value in head.state_dict().items())
    assert head.training
    assert head[0].training
    assert not layer.training
    assert head[1].weight.requires_grad
    assert not head[1].bias.requires_grad
    assert all(p.grad is None for p in (*head.parameters(), *layer.parameters()))
    # Its dropout is off: without it the numbers are the same.
    assert SecondStage(epochs=2).train(IsotropyLayer(D), head[1], x, labels).epochs == first.epochs


@pytest.mark.parametrize("kind", ["alternating", "joint"])
def test_the_head_can_be_trained_too(kind: Any) -> None:
    x, labels, head = fine_tuned()
    with torch.no_grad():
        head.bias += 3.0  # a head that has something to learn
    start = copy.deepcopy(head.state_dict())
    settings = SecondStage(head=kind, epochs=15, patience=15, learning_rate=0.02)
    layer = IsotropyLayer(D)
    trained = settings.train(layer, head, x, labels)
    assert not torch.equal(head.weight, start["weight"])
    frozen = SecondStage(epochs=15, patience=15, learning_rate=0.02)
    other = nn.Linear(D, 2)
    other.load_state_dict(start)
    alone = frozen.train(IsotropyLayer(D), other, x, labels)
    assert trained.epochs[0] != alone.epochs[0]
    assert max(e.score for e in trained.epochs) >= max(e.score for e in alone.epochs)
    assert trained.epochs[-1].isotropy < trained.epochs[0].isotropy


def test_alternating_trains_the_head_on_the_task_alone() -> None:
    # With the layer's rate at next to nothing, what moves the head is the cross-entropy.
    x, labels, head = fine_tuned(60)
    settings = SecondStage(
        head="alternating", epochs=1, batch_size=1000, learning_rate=0.01, weight_decay=0.0
    )
    expected = copy.deepcopy(head)
    layer = IsotropyLayer(D)
    trained = settings.train(layer, head, x, labels)
    kept = np.setdiff1d(np.arange(60), trained.held_out.numpy())
    with torch.no_grad():
        mapped = layer(x[kept])
    optimizer = torch.optim.Adam(expected.parameters(), lr=0.01)
    nn.functional.cross_entropy(expected(mapped), labels[kept]).backward()
    optimizer.step()
    torch.testing.assert_close(head.weight, expected.weight)
    torch.testing.assert_close(head.bias, expected.bias)


def test_the_best_epoch_is_kept_and_training_stops() -> None:
    x, labels, head = fine_tuned()
    scores = iter([0.1, 0.5, 0.4, 0.5, 0.3, 0.2, 0.9])
    states: list[Tensor] = []
    layer = IsotropyLayer(D)

    def score(logits: Tensor, truth: Tensor) -> float:
        assert logits.shape == (90, 2)
        assert len(truth) == 90
        states.append(layer.first.weight.detach().clone())
        return next(scores)

    trained = SecondStage(epochs=50, patience=4, score=score).train(layer, head, x, labels)
    assert [epoch.score for epoch in trained.epochs] == [0.1, 0.5, 0.4, 0.5, 0.3, 0.2]
    # Of the two with .5 the second is the more isotropic one; patience counts from the first.
    assert trained.epochs[3].isotropy < trained.epochs[1].isotropy
    assert trained.best == 3
    assert torch.equal(layer.first.weight, states[3])


def test_equal_seeds_give_equal_results_and_others_do_not() -> None:
    x, labels, head = fine_tuned()
    results = []
    for seed in (0, 0, 1):
        layer = IsotropyLayer(D)
        settings = SecondStage(epochs=3, seed=seed, head="joint")
        results.append((settings.train(layer, copy.deepcopy(head), x, labels), layer))
    (one, layer_1), (two, layer_2), (three, layer_3) = results
    assert one.epochs == two.epochs
    assert torch.equal(layer_1.first.weight, layer_2.first.weight)
    assert not torch.equal(one.held_out, three.held_out)
    assert not torch.equal(layer_1.first.weight, layer_3.first.weight)
    assert len(set(one.held_out.tolist())) == 90
    noise, layer = torch.random.get_rng_state(), IsotropyLayer(D)
    torch.random.set_rng_state(noise)
    expected = torch.rand(1)
    torch.random.set_rng_state(noise)
    SecondStage(epochs=1).train(layer, head, x, labels)
    assert torch.equal(torch.rand(1), expected)  # the caller's random numbers are untouched


def test_real_labels_are_regressed() -> None:
    x, _, _ = fine_tuned()
    target = x[:, 0] * 2 - x[:, 1]
    head = nn.Linear(D, 1)
    settings = SecondStage(epochs=1, learning_rate=1e-9, batch_size=1000)
    trained = settings.train(IsotropyLayer(D), head, x, target)
    held = trained.held_out
    expected = (head(x[held])[:, 0] - target[held]).square().mean()
    assert trained.epochs[0].score == pytest.approx(-float(expected.detach()), rel=1e-4)


def test_a_loss_of_ones_own() -> None:
    x, labels, head = fine_tuned()
    settings = SecondStage(epochs=1, loss=lambda logits, _: logits.square().mean() * 0 + 2.5)
    trained = settings.train(IsotropyLayer(D), head, x, labels)
    assert trained.epochs[0].task == 2.5


def classifier_and_texts(kind: Any, n: int = 40) -> tuple[Any, dict[str, Tensor], Tensor]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 30, (n, 8), generator=generator)
    ids[::3, 5:] = 0
    return kind, {"input_ids": ids, "attention_mask": (ids != 0).long()}, torch.arange(n) % 3


@pytest.mark.parametrize("kind", ["Bert", "Roberta", "Llama"])
def test_embeddings_computed_once_give_what_the_encoder_gives(classifier: Any, kind: str) -> None:
    _, texts, labels = classifier_and_texts(kind)
    model = classifier(kind)
    head = layers.Head(model)
    settings = SecondStage(epochs=3, batch_size=8, learning_rate=0.01)
    batches = [{key: value[i : i + 10] for key, value in texts.items()} for i in range(0, 40, 10)]
    once, each = IsotropyLayer(16), IsotropyLayer(16)
    settings.train(once, head, layers.embeddings(model, batches), labels)

    def through_the_encoder(rows: Tensor) -> Tensor:
        return layers.embeddings(model, [{key: value[rows] for key, value in texts.items()}])

    settings.train(each, head, through_the_encoder, labels)
    assert not torch.equal(once.first.weight, IsotropyLayer(16).first.weight)
    torch.testing.assert_close(once.first.weight, each.first.weight, rtol=0, atol=1e-5)
    torch.testing.assert_close(once.first.bias, each.first.bias, rtol=0, atol=1e-5)


def test_the_two_stages_end_to_end(classifier: Any, tmp_path: Path) -> None:
    kind, texts, labels = classifier_and_texts("Bert")
    model = classifier(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)  # the first stage is the user's own
    model.train()
    for _ in range(5):
        optimizer.zero_grad()
        model(**texts, labels=labels).loss.backward()
        optimizer.step()
    model.eval()
    layer = IsotropyLayer(16)
    rows = layers.embeddings(model, [texts])
    encoder = copy.deepcopy(model.state_dict())
    SecondStage(epochs=5, learning_rate=0.01).train(layer, layers.Head(model), rows, labels)
    layers.attach(model, layer)
    with torch.no_grad():
        logits = model(**texts).logits
        torch.testing.assert_close(logits, layers.Head(model)(layer(rows)))
    assert all(torch.equal(model.state_dict()[name], value) for name, value in encoder.items())
    model.save_pretrained(tmp_path)
    loaded = layers.load(type(model), tmp_path).eval()
    with torch.no_grad():
        assert torch.equal(loaded(**texts).logits, logits)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 1.2}, r"got alpha=1.2, expected a number from 0 to 1"),
        ({"head": "thawed"}, r"got head='thawed', expected 'frozen' or 'alternating' or 'joint'"),
        ({"epochs": 0}, r"got epochs=0, expected a whole number from 1 up"),
        ({"patience": 0}, r"got patience=0"),
        ({"batch_size": 1}, r"got batch_size=1, expected a whole number from 2 up"),
        ({"validation": 0.0}, r"got validation=0.0"),
        ({"validation": 1.0}, r"got validation=1"),
        ({"learning_rate": -1.0}, r"got learning_rate=-1.0"),
        ({"weight_decay": -1.0}, r"got weight_decay=-1.0"),
        ({"seed": -1}, r"got seed=-1"),
        ({"isotropy": "x"}, "got isotropy='x', expected one of isotropy.penalties, such as"),
        ({"loss": "x"}, "got loss='x', expected a function of logits and labels"),
        ({"score": 1}, "got score=1, expected a function of logits and labels"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        SecondStage(**settings)


def test_bad_input() -> None:
    x, labels, head = fine_tuned(20)
    for rows, names, message in (
        (x[:, :4], labels, r"got embeddings of shape \(20, 4\), expected an n×6"),
        (x, labels[:19], r"got 19 labels for 20 rows, expected one label a row"),
        (x[:3], labels[:3], r"got 3 rows, expected at least 4"),
    ):
        with pytest.raises(InputError, match=message):
            SecondStage().train(IsotropyLayer(D), head, rows, names)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (layers.IsoBatchNorm(D), "type IsoBatchNorm, which has no parameters to train, expected"),
        (
            layers.Flow(D, levels=1),
            "got a layer of type Flow, which learns from a loss of",
        ),
        (nn.Linear(D, D), "got a layer of type Linear, expected one of isotropy.layers"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_layer_that_has_nothing_to_learn(layer: Any, message: str) -> None:
    x, labels, head = fine_tuned(20)
    with pytest.raises(SettingError, match=message):
        SecondStage().train(layer, head, x, labels)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rows": np.ones((20, D))}, "got rows of type ndarray, expected .* with torch.from_numpy"),
        ({"labels": np.ones(20)}, "got labels of type ndarray, expected a tensor with one entry"),
        ({"labels": [0, 1] * 10}, "got labels of type list, expected a tensor with one entry a"),
        ({"head": "linear"}, "got a head of type str, expected a module from embeddings to logits"),
        (
            {"head": nn.Linear(D + 1, 2)},
            r"got a head that fails on embeddings with shape \(2, 6\) \(mat1 and mat2 .*\), exp.*"
            "one that reads the 6 features of the layer, such as",
        ),
        (
            {"labels": torch.arange(20)},
            r"got labels with shape \(20,\) from 0 to 19 for logits with shape \(2, 2\), exp",
        ),
        (
            {"labels": torch.arange(20) % 2 - 1},
            r"from -1 to 0 for logits with shape \(2, 2\), ex",
        ),
        (
            {"labels": torch.rand(20)},
            r"got logits with shape \(2, 2\) for labels with shape \(2,\), expected a number f",
        ),
    ],
)
def test_what_does_not_fit_together(given: dict[str, Any], message: str) -> None:
    x, labels, head = fine_tuned(20)
    layer = IsotropyLayer(D)
    with pytest.raises(InputError, match=message):
        SecondStage().train(**{"layer": layer, "head": head, "rows": x, "labels": labels, **given})
    assert layer.training
    assert all(parameter.requires_grad for parameter in layer.parameters())


def test_classes_of_any_whole_dtype() -> None:
    x, labels, head = fine_tuned(20)
    found = [
        SecondStage(epochs=2).train(IsotropyLayer(D), head, x, labels.to(dtype)).epochs
        for dtype in (torch.int64, torch.int32, torch.uint8, torch.bool)
    ]
    assert all(epochs == found[0] for epochs in found)


def test_rows_to_hold_out_can_be_named() -> None:
    x, labels, head = fine_tuned(40)
    chosen = torch.tensor([39, 3, 20])
    trained = SecondStage(epochs=1).train(IsotropyLayer(D), head, x, labels, held_out=chosen)
    assert torch.equal(trained.held_out, chosen)


@pytest.mark.parametrize("chosen", [[], [40], [-1], [1, 1], [0.5], list(range(39))])
def test_rows_that_cannot_be_held_out(chosen: list[float]) -> None:
    x, labels, head = fine_tuned(40)
    with pytest.raises(InputError, match="numbers of rows to hold out of 40, expected different"):
        SecondStage().train(IsotropyLayer(D), head, x, labels, held_out=torch.tensor(chosen))
