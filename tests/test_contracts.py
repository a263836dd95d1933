import pytest

from isotropy.layers import SPECS as LAYERS
from isotropy.measures import SPECS
from isotropy.penalties import SPECS as PENALTIES
from isotropy.testing import check_layer, check_measure, check_penalty, check_transform
from isotropy.transforms import SPECS as TRANSFORMS

# Without a shrinkage matrix the batch's own covariance stands in, and no gradient flows to that.
WITH_FULL_GRADIENT = {"i-star": {"shrinkage": "identity"}}
WITH_LITTLE_TRAINING = {"flow-post-hoc": {"epochs": 2}, "isotropy-layer-post-hoc": {"epochs": 2}}


@pytest.mark.parametrize("name", SPECS)
def test_measure_keeps_its_contract(name: str) -> None:
    check_measure(SPECS[name])


@pytest.mark.parametrize("name", PENALTIES)
def test_penalty_keeps_its_contract(name: str) -> None:
    check_penalty(PENALTIES[name], **WITH_FULL_GRADIENT.get(name, {}))


@pytest.mark.parametrize("name", LAYERS)
def test_layer_keeps_its_contract(name: str) -> None:
    check_layer(LAYERS[name])


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transform_keeps_its_contract(name: str) -> None:
    check_transform(TRANSFORMS[name], **WITH_LITTLE_TRAINING.get(name, {}))
