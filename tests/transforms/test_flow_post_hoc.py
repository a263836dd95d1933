import numpy as np
import pytest
import torch

from isotropy.errors import SettingError
from isotropy.layers import Flow
from isotropy.transforms import FlowPostHoc, Standardize


@pytest.fixture
def banana(rng: np.random.Generator) -> np.ndarray:
    x = rng.normal(size=(2000, 4))
    x[:, 3] += 2 * x[:, 0] ** 2
    return x * [1, 3, 10, 5] + 20


def test_it_straightens_what_no_linear_map_can(banana: np.ndarray) -> None:
    """The square of the first feature tells the last one; in z it tells nothing."""
    bent = Standardize().fit_transform(banana)
    z = FlowPostHoc(epochs=60, learning_rate=5e-3).fit_transform(banana)

    def told(x: np.ndarray) -> float:
        return max(abs(np.corrcoef(x[:, 0] ** 2, x[:, j])[0, 1]) for j in (1, 2, 3))

    squares = [
        np.corrcoef(z[:, i] ** 2, z[:, j])[0, 1] for i in range(4) for j in range(4) if i != j
    ]
    assert told(bent) > 0.8
    assert np.abs(squares).max() < 0.3
    np.testing.assert_allclose(np.cov(z.T), np.eye(4), atol=0.15)


def test_training_raises_the_likelihood(banana: np.ndarray) -> None:
    """By the change-of-variables formula, with a Jacobian by differences."""

    def log_likelihood(fitted: FlowPostHoc, rows: np.ndarray) -> float:
        total = 0.0
        for row in rows:
            x = torch.from_numpy(row)
            jacobian = torch.autograd.functional.jacobian(lambda r: fitted.transform(r[None])[0], x)
            z = fitted.transform(x[None])[0]
            total += float(torch.linalg.slogdet(jacobian).logabsdet - z.square().sum() / 2)
        return total / len(rows)

    short, long = (FlowPostHoc(epochs=epochs).fit(banana) for epochs in (1, 30))
    assert log_likelihood(long, banana[:50]) > log_likelihood(short, banana[:50]) + 0.1


def test_its_network_is_the_flow_layer(banana: np.ndarray) -> None:
    fitted = FlowPostHoc(epochs=1).fit(banana)
    flow = Flow(4, levels=2).double().eval()
    state = flow.state_dict()
    start = 0
    for name, tensor in state.items():
        part = fitted.parameters_[start : start + tensor.numel()]
        state[name] = torch.from_numpy(part).reshape(tensor.shape).to(tensor.dtype)
        start += tensor.numel()
    assert start == len(fitted.parameters_)
    flow.load_state_dict(state)
    x = (banana - banana.mean(axis=0)) / np.sqrt(banana.var(axis=0).mean())
    with torch.no_grad():
        expected = flow(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(fitted.transform(banana), expected, atol=1e-9)


def test_it_sees_a_sample_of_the_rows(banana: np.ndarray) -> None:
    fitted = FlowPostHoc(epochs=1, sample=100).fit(banana, chunk_rows=77)
    whole = FlowPostHoc(epochs=1).fit(banana)
    assert abs(fitted.mean_ - whole.mean_).max() > 1e-3
    np.testing.assert_allclose(whole.mean_, banana.mean(axis=0))


def test_the_state_of_torchs_generator_is_left_alone(banana: np.ndarray) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    FlowPostHoc(epochs=1).fit_transform(banana)
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize("setting", ["levels", "steps", "width", "epochs", "batch_size", "sample"])
def test_bad_settings(setting: str, banana: np.ndarray) -> None:
    with pytest.raises(SettingError, match=f"got {setting}=0, expected a whole number"):
        FlowPostHoc(**{setting: 0}).fit(banana)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), "fast"])
def test_a_bad_learning_rate(rate: object, banana: np.ndarray) -> None:
    with pytest.raises(
        SettingError, match=r"got learning_rate=.* expected a finite number above 0"
    ):
        FlowPostHoc(learning_rate=rate).fit(banana)
