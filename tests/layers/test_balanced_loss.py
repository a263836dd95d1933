import pytest
import torch

from isotropy.errors import SettingError
from isotropy.layers import BalancedLoss

VALUES = [(0.7, 4.0), (0.9, 3.0), (0.4, 3.5), (0.2, 0.5), (0.1, 2.0)]


def by_hand(values: list[tuple[float, float]], s: float) -> list[float]:
    """Equation 3 and what follows it, in Python's own numbers."""
    mean_1, mean_2 = values[0]
    losses = []
    for k, (one, two) in enumerate(values):
        if k > 0:
            mean_1 = one * s / (1 + k) + mean_1 * (1 - s / (1 + k))
            mean_2 = two * s / (1 + k) + mean_2 * (1 - s / (1 + k))
        both = (mean_1 + mean_2) / 2
        losses.append((one * both / mean_1 + two * both / mean_2) / 2)
    return losses


@pytest.mark.parametrize("s", [0.15, 0.6, 0.0])
def test_it_is_the_printed_formula(s: float) -> None:
    balanced = BalancedLoss(s)
    found = [
        float(balanced(*(torch.tensor(x, dtype=torch.float64) for x in pair))) for pair in VALUES
    ]
    assert found == pytest.approx(by_hand(VALUES, s), rel=1e-12)


def test_the_first_step_by_hand() -> None:
    # Averages 1 and 3 with mean 2: both losses count as 2. Then with s = .5 and k = 1 a quarter of
    # the new values: 1.25 and 2.5 with mean 1.875, so (2·1.875/1.25 + 1·1.875/2.5)/2.
    balanced = BalancedLoss(0.5)
    assert float(balanced(torch.tensor(1.0), torch.tensor(3.0))) == pytest.approx(2.0)
    second = float(balanced(torch.tensor(2.0), torch.tensor(1.0)))
    assert second == pytest.approx((3.0 + 0.75) / 2)


def test_the_weights_carry_no_gradient() -> None:
    balanced = BalancedLoss()
    balanced(torch.tensor(1.0), torch.tensor(4.0))
    one, two = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)
    balanced(one, two).backward()
    first, second = balanced.averages.tolist()
    mean = (first + second) / 2
    assert float(one.grad) == pytest.approx(mean / first / 2)
    assert float(two.grad) == pytest.approx(mean / second / 2)


def test_evaluation_leaves_the_averages() -> None:
    balanced = BalancedLoss()
    assert float(balanced.eval()(torch.tensor(1.0), torch.tensor(3.0))) == 2.0  # the plain mean
    balanced.train()(torch.tensor(1.0), torch.tensor(3.0))
    before = {name: value.clone() for name, value in balanced.state_dict().items()}
    balanced.eval()(torch.tensor(9.0), torch.tensor(9.0))
    after = balanced.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_state_goes_on_where_it_was() -> None:
    whole, first = BalancedLoss(), BalancedLoss()
    pairs = [(torch.tensor(a), torch.tensor(b)) for a, b in VALUES]
    expected = [whole(*pair) for pair in pairs]
    for pair in pairs[:2]:
        first(*pair)
    second = BalancedLoss()
    second.load_state_dict(first.state_dict())
    assert [second(*pair) for pair in pairs[2:]] == expected[2:]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_broken_value_does_not_stay(bad: float) -> None:
    balanced, other = BalancedLoss(), BalancedLoss()
    pairs = [(torch.tensor(a), torch.tensor(b)) for a, b in VALUES]
    balanced(torch.tensor(bad), torch.tensor(1.0))
    for module in (balanced, other):
        for pair in pairs:
            module(*pair)
    assert balanced.averages.isfinite().all()
    assert torch.equal(balanced.averages[0], other.averages[0])


def test_a_loss_of_zero_keeps_its_scale() -> None:
    balanced = BalancedLoss()
    zero = torch.tensor(0.0, requires_grad=True)
    value = balanced(torch.tensor(2.0), zero)
    assert value.isfinite()
    value.backward()
    assert float(zero.grad) == 0.5


@pytest.mark.parametrize("s", [-0.1, 1.5, float("nan"), "much"])
def test_bad_settings(s: float) -> None:
    with pytest.raises(SettingError, match=r"got s=.*expected a number from 0 to 1"):
        BalancedLoss(s)
