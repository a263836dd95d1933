import pytest

from isotropy.measures import SPECS
from isotropy.testing import check_measure


@pytest.mark.parametrize("name", SPECS)
def test_measure_keeps_its_contract(name: str) -> None:
    check_measure(SPECS[name])
