import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from isotropy.layers import IsoBatchNorm

Array = NDArray[np.float64]


def batches(count: int, n: int = 40, d: int = 6) -> list[Array]:
    """Batches with spread and correlated features, far from the origin."""
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(d, d)) * np.linspace(0.1, 3, d)
    return [rng.normal(size=(n, d)) @ mix + 5 for _ in range(count)]


def by_hand(
    seen: list[Array],
    x: Array,
    momentum: float = 0.05,
    eps: float = 1e-3,
    beta: float = 0.5,
    *,
    corrected: bool = True,
) -> Array:
    """The printed formulas, feature by feature, with weights of the batches written out."""
    d = x.shape[1]
    weights = [momentum * (1 - momentum) ** (len(seen) - 1 - k) for k in range(len(seen))]
    if corrected:
        weights = [w / sum(weights) for w in weights]
    cov = sum(w * np.cov(b.T, bias=True) for w, b in zip(weights, seen, strict=True))
    std = sum(w * b.std(axis=0) for w, b in zip(weights, seen, strict=True))
    scale = np.empty(d)
    for i in range(d):
        rho = [np.clip(cov[i, j] / (std[i] * std[j]), -1, 1) for j in range(d)]
        gamma = sum(r**2 for r in rho) / d
        scale[i] = (gamma * std[i] + eps) ** -beta
    energy = sum(cov[i, i] for i in range(d))
    after = sum(cov[i, i] * scale[i] ** 2 for i in range(d))
    return x * scale * np.sqrt(energy / (after + eps))


def trained(seen: list[Array], **settings: float | str) -> IsoBatchNorm:
    layer = IsoBatchNorm(seen[0].shape[1], **settings).double()
    for batch in seen:
        layer(torch.from_numpy(batch))
    return layer.eval()


@pytest.mark.parametrize("count", [1, 2, 30])
def test_it_is_the_printed_formula(count: int) -> None:
    seen = batches(count)
    x = torch.from_numpy(batches(31)[-1])
    found = trained(seen)(x)
    np.testing.assert_allclose(found, by_hand(seen, x.numpy()), rtol=1e-10)


def test_other_settings() -> None:
    seen = batches(4)
    settings = {"momentum": 0.3, "eps": 0.1, "beta": 0.9}
    found = trained(seen, **settings)(torch.from_numpy(seen[0]))
    np.testing.assert_allclose(found, by_hand(seen, seen[0], **settings), rtol=1e-10)


def test_the_released_code_is_not_corrected_for_its_start() -> None:
    for count in (1, 3, 100):
        seen = batches(count)
        found = trained(seen, compat="released")(torch.from_numpy(seen[0]))
        expected = by_hand(seen, seen[0], corrected=False)
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    early = trained(batches(1), compat="released").scale() / trained(batches(1)).scale()
    late = trained(batches(200), compat="released").scale() / trained(batches(200)).scale()
    assert (early / early[0] - 1).abs().max() > 0.02  # features are weighed in another way
    torch.testing.assert_close(late, torch.ones_like(late), rtol=1e-3, atol=0)


def test_training_scales_a_batch_by_moments_that_hold_it() -> None:
    seen = batches(3)
    layer = IsoBatchNorm(6).double()
    for k, batch in enumerate(seen):
        found = layer(torch.from_numpy(batch))
        np.testing.assert_allclose(found, by_hand(seen[: k + 1], batch), rtol=1e-10)


def test_the_total_variance_stays_and_evens_out() -> None:
    x = torch.from_numpy(batches(1)[0]) * 10
    before = x.var(dim=0)
    after = trained([x.numpy()])(x).var(dim=0)
    assert float(after.sum() / before.sum()) == pytest.approx(1, abs=1e-3)
    assert after.max() / after.min() < before.max() / before.min()


def test_before_training_evaluation_is_the_identity() -> None:
    x = torch.from_numpy(batches(1)[0])
    assert torch.equal(IsoBatchNorm(6).double().eval()(x), x)


def test_a_feature_that_does_not_vary_correlates_with_nothing() -> None:
    x = torch.from_numpy(batches(1)[0])
    x[:, 2] = 7.0
    scale = trained([x.numpy()]).scale()
    others = [0, 1, 3, 4, 5]
    # γ is 0 for it, and the others' γ is that among themselves, over d = 6 features.
    cov = np.cov(x[:, others].T, bias=True)
    rho = np.corrcoef(x[:, others].T)
    inner = (
        (rho**2).sum(axis=1) / 6 * x[:, others].std(dim=0, correction=0).numpy() + 1e-3
    ) ** -0.5
    m = np.sqrt(np.trace(cov) / ((np.diag(cov) * inner**2).sum() + 1e-3))
    np.testing.assert_allclose(scale[others], inner * m, rtol=1e-10)
    assert float(scale[2]) == pytest.approx(m * 1e-3**-0.5)


def test_equal_rows_alone_leave_it_the_identity() -> None:
    layer = IsoBatchNorm(3)
    x = torch.ones(5, 3) * torch.tensor([1.0, 2.0, 3.0])
    assert torch.equal(layer(x), x)
    assert torch.equal(layer.eval()(x), x)


def test_a_batch_of_one_row_says_nothing() -> None:
    seen = batches(2)
    layer, other = trained(seen), trained(seen)
    layer.train()(torch.from_numpy(seen[0][:1]))
    assert torch.equal(layer.scale(), other.scale())
    released = trained(seen, compat="released")
    before = released.scale()
    released.train()(torch.from_numpy(seen[0][:1]))
    assert not torch.equal(released.scale(), before)


def test_the_scale_carries_no_gradient() -> None:
    layer = IsoBatchNorm(6).double()
    x = torch.from_numpy(batches(1)[0]).requires_grad_()
    layer(x).sum().backward()
    torch.testing.assert_close(x.grad, layer.scale().expand_as(x))


def test_far_from_the_origin_float32_keeps_its_digits() -> None:
    x = batches(1, n=256)[0]
    layer = IsoBatchNorm(6)
    layer(torch.from_numpy(x + 1e3).float())
    expected = trained([(x + 1e3).astype(np.float32).astype(np.float64)]).scale()
    torch.testing.assert_close(layer.scale().double(), expected, rtol=1e-4, atol=0)
