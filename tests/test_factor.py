"""Products beside those of float64."""

import pytest
import torch

from isotropy._factor import Factor


def draw(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 3, 40), (600, 130, 33)])
def test_is_the_product_with_the_transpose(dtype, shape):
    n, m, d = shape
    left, right = draw(n, d, seed=0).to(dtype), draw(m, d, seed=1).to(dtype)
    found = Factor(right).times(left)
    assert found.dtype == dtype
    exact = left.double() @ right.double().T
    sizes = left.double().abs() @ right.double().abs().T
    assert ((found - exact).abs() <= d * torch.finfo(dtype).eps * sizes).all()


def test_takes_views_and_leaves_them_alone():
    wide = draw(50, 40, seed=0).float()
    before = wide.clone()
    left, right = wide[::2, 3:20], wide.T[5:30, :17]
    found = Factor(right).times(left)
    torch.testing.assert_close(found, left @ right.T)
    found.zero_()
    assert torch.equal(wide, before)


def test_is_in_full_precision_under_autocast():
    left, right = draw(64, 64, seed=0).float(), draw(64, 64, seed=1).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = Factor(right).times(left)
    torch.testing.assert_close(found, left @ right.T)


def test_without_onednn_the_product_is_the_same(monkeypatch):
    left, right = draw(64, 64, seed=0).float(), draw(64, 64, seed=1).float()
    expected = Factor(right).times(left)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    torch.testing.assert_close(Factor(right).times(left), expected)
