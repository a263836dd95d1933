import numpy as np
import pytest

from isotropy.errors import SettingError
from isotropy.measures import iso_score
from isotropy.transforms import IsotropyLayerPostHoc


@pytest.fixture
def cloud(rng: np.random.Generator) -> np.ndarray:
    return (
        rng.normal(size=(1000, 5)) * [1, 2, 3, 5, 8] @ np.linalg.qr(rng.normal(size=(5, 5)))[0] + 9
    )


def test_alpha_trades_isotropy_for_nearness(cloud: np.ndarray) -> None:
    centred = cloud - cloud.mean(axis=0)
    scores, moves = [], []
    for alpha in (0.0, 0.5, 0.9):
        y = IsotropyLayerPostHoc(alpha=alpha, epochs=200).fit_transform(cloud)
        scores.append(iso_score(y))
        moves.append(np.square(y - centred).sum() / np.square(centred).sum())
    assert scores[0] > 0.99
    assert scores[0] > scores[1] > scores[2] > iso_score(cloud) + 0.05
    assert moves[0] > moves[1] > moves[2]


def test_with_alpha_1_it_only_centres(cloud: np.ndarray) -> None:
    y = IsotropyLayerPostHoc(alpha=1.0).fit_transform(cloud)
    np.testing.assert_allclose(y, cloud - cloud.mean(axis=0), atol=1e-6)


def test_a_deeper_layer_is_no_linear_map(cloud: np.ndarray) -> None:
    def bend(depth: int) -> float:
        fitted = IsotropyLayerPostHoc(depth, alpha=0.1).fit(cloud)
        middle = fitted.transform((cloud[:50] + cloud[50:100]) / 2)
        between = (fitted.transform(cloud[:50]) + fitted.transform(cloud[50:100])) / 2
        return float(abs(middle - between).max())

    assert bend(1) < 1e-9
    assert bend(2) > 1e-3


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"depth": 0}, "got depth=0"), ({"alpha": 1.1}, "got alpha=1.1, expected a number from 0")],
)
def test_bad_settings(cloud: np.ndarray, settings: dict, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        IsotropyLayerPostHoc(**settings).fit(cloud)
