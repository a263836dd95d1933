"""On a CUDA device: fitted there and mapped there, with the numbers of the CPU."""

import numpy as np
import pytest
import torch

from isotropy.transforms import SPECS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", SPECS)
def test_a_device_gives_what_the_cpu_gives(
    name: str, weighted: bool, rng: np.random.Generator
) -> None:
    if name == "flow-post-hoc":
        pytest.importorskip("zuko")
    settings = {"epochs": 2} if name.endswith("post-hoc") else {}
    x = torch.from_numpy(rng.normal(size=(400, 12)) @ rng.normal(size=(12, 12)) + 3)
    weights = torch.from_numpy(rng.uniform(size=400)) if weighted else None
    here = SPECS[name].make(**settings).fit(x, weights=weights)
    there = SPECS[name].make(**settings).fit(x, weights=weights, device="cuda")
    also_there = SPECS[name].make(**settings).fit(x.cuda(), weights=weights)
    expected = here.transform(x)
    near = 1e-6 * float(expected.abs().max())
    for fitted in (here, there, also_there):
        found = fitted.transform(x.cuda())
        assert found.device.type == "cuda"
        assert torch.allclose(found.cpu(), expected, atol=near)
    if hasattr(here, "inverse_transform"):
        back = here.inverse_transform(expected.cuda())
        assert torch.allclose(back.cpu(), x, atol=1e-6)
