"""I-STAR against IsoScore's nine steps on eigenvalues, and its matrix against states by hand."""

import numpy as np
import pytest
import torch

from isotropy import Representations
from isotropy.errors import InputError, SettingError
from isotropy.penalties import IStar


def stretched(n, d, seed=0):
    random = np.random.default_rng(seed)
    return random.standard_normal((n, d)) @ random.standard_normal((d, d)) + 2


def steps(variances):
    """Steps 5 to 9 of Rudman et al. 2022 on the principal components' variances."""
    d = len(variances)
    normalised = np.sqrt(d) * variances / np.linalg.norm(variances)
    defect = np.linalg.norm(normalised - 1) / np.sqrt(2 * (d - np.sqrt(d)))
    fraction = (d - defect**2 * (d - np.sqrt(d))) ** 2 / d**2
    return (d * fraction - 1) / (d - 1)


def published(x, zeta, shrinkage):
    """Algorithm 1 of Rudman & Eickhoff 2024."""
    return steps(np.linalg.eigvalsh((1 - zeta) * np.cov(x.T) + zeta * shrinkage))


def value(x, **settings):
    return float(IStar(**settings)(Representations.from_cloud(torch.from_numpy(x))))


def matrix(d, seed=5):
    return np.cov(stretched(3 * d, d, seed=seed).T)


@pytest.mark.parametrize("zeta", [0, 0.2, 0.8, 1])
@pytest.mark.parametrize("shape", [(40, 6), (5, 20), (64, 70)])
def test_is_one_less_the_shrunk_score(shape, zeta):
    x, d = stretched(*shape), shape[1]
    for shrinkage, given in ((matrix(d), torch.from_numpy(matrix(d))), (np.eye(d), "identity")):
        found = value(x, weight=3, zeta=zeta, shrinkage=given)
        assert found == pytest.approx(3 * (1 - published(x, zeta, shrinkage)), rel=1e-9)


def test_before_the_first_refresh_the_batch_stands_in():
    """The same value as with Σ_S = C, and its gradient, which does not flow to Σ_S."""
    x = torch.from_numpy(stretched(30, 5)).requires_grad_()
    found = IStar(weight=1, zeta=0.3)(Representations.from_cloud(x))
    covariance = torch.cov(x.T)
    variances = torch.linalg.eigvalsh(0.7 * covariance + 0.3 * covariance.detach())
    score = (variances.sum().square() / variances.square().sum() - 1) / 4
    assert float(found.detach()) == pytest.approx(
        1 - steps(np.linalg.eigvalsh(np.cov(x.detach().T)))
    )
    torch.testing.assert_close(
        *(torch.autograd.grad(v, x)[0] for v in (found, 1 - score)), rtol=1e-7, atol=1e-10
    )


def test_the_union_of_layers_without_padding():
    layers = [torch.from_numpy(stretched(12, 5, seed=k)).reshape(3, 4, 5) for k in range(4)]
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]])
    shown = Representations.from_output({"hidden_states": tuple(layers)}, mask)
    identity = {"shrinkage": "identity", "weight": 1.0}
    counted = torch.cat([layer[mask.bool()] for layer in layers[1:]]).numpy()
    everything = torch.cat([layer.flatten(0, 1) for layer in layers[1:]]).numpy()
    second = layers[2][mask.bool()].numpy()
    for rows, settings in (
        (counted, {}),
        (everything, {"include_padding": True}),  # as the released code has it
        (second, {"site": "tokens@2"}),
    ):
        found = float(IStar(**identity, **settings)(shown))
        assert found == pytest.approx(1 - published(rows, 0.2, np.eye(5)), rel=1e-9)


@pytest.mark.parametrize(("weight", "moved"), [(-1.0, "down"), (1.0, "up")])
def test_its_sign_says_where_isotropy_goes(weight, moved):
    x = torch.from_numpy(stretched(60, 6)).requires_grad_()
    before = steps(np.linalg.eigvalsh(np.cov(x.detach().T)))
    penalty = IStar(weight=weight)
    for _ in range(50):
        (gradient,) = torch.autograd.grad(penalty(Representations.from_cloud(x)), x)
        x = (x - 5 * gradient).detach().requires_grad_()
    after = steps(np.linalg.eigvalsh(np.cov(x.detach().T)))
    assert (after > before + 0.01) if moved == "up" else (after < before - 0.01)


def test_a_matrix_survives_saving():
    shrinkage = torch.from_numpy(matrix(5))
    penalty, fresh = IStar(shrinkage=shrinkage), IStar()
    fresh.load_state_dict(penalty.state_dict())
    x = stretched(20, 5)
    shown = Representations.from_cloud(torch.from_numpy(x))
    assert torch.equal(penalty(shown), fresh(shown))
    assert fresh.shrinkage is not None
    assert torch.equal(fresh.shrinkage, shrinkage)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"zeta": -0.1}, SettingError, "got zeta=-0.1, expected a number from 0 to 1"),
        ({"zeta": 1.5}, SettingError, "got zeta=1.5, expected a number from 0 to 1"),
        ({"shrinkage": "unit"}, SettingError, "got shrinkage='unit', expected 'identity' or a d×d"),
        (
            {"shrinkage": torch.ones(3, 4)},
            InputError,
            r"got shrinkage with shape \(3, 4\), exp.*square",
        ),
        ({"shrinkage": torch.eye(3).roll(1, 0)}, InputError, "got shrinkage that is not symmetric"),
        ({"tokens": 1}, SettingError, "got tokens=1, expected a whole number from 2 up"),
        ({"seed": 0.5}, SettingError, "got seed=0.5, expected a whole number from 0 up"),
        ({"site": "tokens@al"}, SettingError, "got site 'tokens@al', expected"),
        ({"weight": "3"}, SettingError, "got weight='3', expected a finite number"),
    ],
)
def test_bad_settings(settings, error, message):
    with pytest.raises(error, match=message):
        IStar(**settings)


def test_a_matrix_for_another_model():
    message = "got shrinkage of 4 features for rows of 5, expected 5×5; refresh it with this model"
    with pytest.raises(SettingError, match=message):
        value(stretched(9, 5), shrinkage=torch.eye(4))


@pytest.mark.parametrize(
    "matrix",
    [-torch.eye(6), torch.diag(torch.tensor([1.0, 1, -0.01])), torch.tensor([[1.0, 2], [2, 1]])],
    ids=["minus", "one", "correlation above 1"],
)
@pytest.mark.parametrize("kind", [torch.clone, torch.Tensor.numpy], ids=["torch", "numpy"])
def test_a_covariance_has_no_negative_variance(matrix, kind):
    with pytest.raises(InputError, match="got shrinkage with a negative variance in some"):
        IStar(shrinkage=kind(matrix))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_a_covariance_of_few_rows_is_one_within_its_rounding(dtype):
    """Most of its eigenvalues are 0 but for rounding, which makes some of them negative."""
    x = torch.from_numpy(stretched(10, 200)).to(dtype)
    covariance = torch.cov(x.double().T).to(dtype)
    assert float(torch.linalg.eigvalsh(covariance.double())[0]) < 0
    assert IStar(shrinkage=covariance).shrinkage is not None


def test_a_matrix_of_numpy_is_one_of_torch():
    x = stretched(20, 5)
    assert value(x, shrinkage=matrix(5)) == value(x, shrinkage=torch.from_numpy(matrix(5)))
    with pytest.raises(InputError, match="got shrinkage of type list, expected a torch tensor or"):
        IStar(shrinkage=[[1.0]])
