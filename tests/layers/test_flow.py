import math
import sys

import pytest
import torch

from isotropy.errors import MissingExtraError, SettingError
from isotropy.layers import Flow

KINDS = [
    {"d": 8},
    {"d": 13},
    {"d": 8, "permutation": "learned"},
    {"d": 5, "levels": 1, "steps": 2, "width": 4},
]


def cloud(n: int, d: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return x @ torch.randn(d, d, generator=generator, dtype=torch.float64) + 4


def trained(steps: int = 20, **settings: object) -> Flow:
    """A flow whose couplings are no longer zero."""
    torch.manual_seed(0)
    flow = Flow(**settings).double()
    optimizer = torch.optim.Adam(flow.parameters(), lr=0.02)
    for step in range(steps):
        flow(cloud(50, flow.d, seed=step))
        optimizer.zero_grad()
        flow.own_loss().backward()
        optimizer.step()
    flow.zero_grad()
    return flow.eval()


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_the_inverse_gives_the_rows_back(settings: dict) -> None:
    flow = trained(**settings)
    x = cloud(30, settings["d"], seed=99)
    z = flow(x)
    assert (z - x).abs().max() > 0.1
    torch.testing.assert_close(flow.inverse(z), x, rtol=0, atol=1e-10)
    torch.testing.assert_close(flow(flow.inverse(x)), x, rtol=0, atol=1e-10)


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_the_log_determinant_is_that_of_the_jacobian(settings: dict) -> None:
    flow = trained(**settings)
    x = cloud(4, settings["d"], seed=99)
    for row in x:
        jacobian = torch.autograd.functional.jacobian(lambda r: flow(r[None])[0], row)
        log_det = flow.glow(row[None]).log_det.detach()
        assert float(log_det) == pytest.approx(float(torch.linalg.slogdet(jacobian).logabsdet))
        # and so −log p is what the change of variables makes of the normal density
        z = flow(row[None]).detach()
        normal = torch.distributions.MultivariateNormal(
            torch.zeros(settings["d"]).double(), torch.eye(settings["d"]).double()
        )
        expected = -normal.log_prob(z[0]) - torch.linalg.slogdet(jacobian).logabsdet
        found = flow.negative_log_likelihood(row[None]).detach()
        assert float(found) == pytest.approx(float(expected.detach()))


def test_the_first_batch_sets_scales_and_shifts() -> None:
    flow = Flow(8).double()
    x = cloud(200, 8) * 5
    z = flow(x)
    torch.testing.assert_close(z.mean(dim=0), torch.zeros(8).double(), rtol=0, atol=1e-9)
    torch.testing.assert_close(
        z.var(dim=0, correction=0), torch.ones(8).double(), rtol=0, atol=1e-9
    )
    before = {name: value.clone() for name, value in flow.state_dict().items()}
    flow(x * 3 + 1)
    after = flow.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_loaded_flow_is_not_set_again() -> None:
    flow = trained(d=8)
    other = Flow(8).double()
    other.load_state_dict(flow.state_dict())
    other.train()(cloud(50, 8) * 7)
    assert all(torch.equal(a, b) for a, b in zip(flow.parameters(), other.parameters()))  # noqa: B905


def test_a_batch_that_cannot_set_them_is_let_go() -> None:
    x = cloud(50, 8)
    for bad in (x[:1], x[:0], x[:1].expand(5, -1), x * math.nan):
        flow = Flow(8).double()
        flow(bad)
        assert not flow.initialised
        flow(x)
        assert flow.initialised


def test_a_feature_that_does_not_vary_is_not_blown_up() -> None:
    x = cloud(50, 8)
    x[:, 3] = 2.0
    flow = Flow(8).double()
    assert flow(x).abs().max() < 20
    x[:, 3] += 1e-3
    assert flow.eval()(x).isfinite().all()


def test_before_the_first_batch_it_permutes() -> None:
    x = cloud(5, 8)
    z = Flow(8).double().eval()(x)
    torch.testing.assert_close(z.sort(dim=1).values, x.sort(dim=1).values)
    assert not Flow(8).double().glow(x).log_det.any()


def test_its_own_loss_falls_and_makes_the_rows_isotropic() -> None:
    generator = torch.Generator().manual_seed(0)
    # A curved cloud: the second half of the features is the square of the first, with noise.
    a = torch.randn(600, 4, generator=generator, dtype=torch.float64)
    noise = torch.randn(600, 4, generator=generator, dtype=torch.float64)
    x = torch.cat((a, a.square() + 0.1 * noise), dim=1)
    torch.manual_seed(0)
    flow = Flow(8).double()
    optimizer = torch.optim.Adam(flow.parameters(), lr=5e-3)
    losses = []
    for _ in range(200):
        flow(x)
        loss = flow.own_loss()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    # A normal distribution fitted to the cloud, which no linear map can better.
    linear = torch.distributions.MultivariateNormal(x.mean(dim=0), torch.cov(x.T))
    assert losses[-1] < -float(linear.log_prob(x).mean()) < losses[0]


def test_the_task_shapes_the_rows_and_the_likelihood_the_flow() -> None:
    flow = trained(d=8).train()
    x = cloud(20, 8).requires_grad_()
    flow(x).square().sum().backward()
    assert x.grad.any()
    assert all(p.grad is None or not p.grad.any() for p in flow.parameters())
    x.grad = None
    flow(x)
    flow.own_loss().backward()
    assert x.grad is None
    assert all(p.grad.any() for p in flow.parameters())


def test_own_loss_needs_a_batch_of_training() -> None:
    flow = trained(d=8)
    assert Flow(8).own_loss() is None
    flow.train()(cloud(7, 8))
    expected = flow.negative_log_likelihood(cloud(7, 8)).mean()
    flow.eval()(cloud(3, 8, seed=1))  # what evaluation shows is not learned from
    assert torch.equal(flow.own_loss(), expected)


def test_learned_maps_are_learned() -> None:
    torch.manual_seed(0)
    flow, fixed = Flow(8, permutation="learned"), Flow(8)
    more = sum(p.numel() for p in flow.parameters()) - sum(p.numel() for p in fixed.parameters())
    assert more == 3 * (8**2 + 4**2 + 2**2)


def test_the_seed_is_that_of_the_permutations() -> None:
    x = cloud(3, 64).float()
    one, same, other = (Flow(64, seed=seed).eval() for seed in (1, 1, 2))
    assert torch.equal(one(x), same(x))
    assert not torch.equal(one(x), other(x))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d": 7}, r"got d=7 with levels=3, expected at least 8 features"),
        ({"d": 8, "levels": 0}, r"got levels=0, expected a whole number from 1 up"),
        ({"d": 8, "width": 2.5}, r"got width=2.5, expected a whole number from 1 up"),
        ({"d": 8, "permutation": "none"}, r"got permutation='none', expected 'fixed' or 'learned'"),
    ],
)
def test_bad_settings(settings: dict, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Flow(**settings)


def test_without_zuko_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "isotropy.layers._glow", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "zuko"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "zuko.flows.coupling", None)
    monkeypatch.setitem(sys.modules, "zuko", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'isotropy\[flow\]'"):
        Flow(8)
