import pytest
import torch

from isotropy.errors import SettingError
from isotropy.sources._sites import Site, pool_states


@pytest.mark.parametrize(
    ("text", "layers", "columns"),
    [
        ("mean", (4,), ()),
        ("mean@last", (4,), ()),
        ("cls@all", (1, 2, 3, 4), ("layer",)),
        ("tokens@0", (0,), ("token",)),
        ("mean@3", (3,), ()),
        ("mean@-1", (4,), ()),
        ("mean@-5", (0,), ()),
        ("tokens@all", (1, 2, 3, 4), ("layer", "token")),
    ],
)
def test_a_site_has_layers_and_columns(
    text: str, layers: tuple[int, ...], columns: tuple[str, ...]
) -> None:
    site = Site.parse(text)
    assert site.layers(4) == layers
    assert site.columns == columns
    assert Site.parse(str(site)) == site


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("maen@last", "got site 'maen@last', expected a known site; did you mean 'mean@last'?"),
        ("", "choose from: cls@all, cls@last, mean@all, mean@last, tokens@all, tokens@last"),
        ("MEAN@last", "choose from"),
        ("mean@first", "expected mean@last, mean@all or a layer's number such as mean@3"),
        ("mean@", "got site 'mean@', expected mean@last"),
        ("mean@1.5", "got site 'mean@1.5'"),
    ],
)
def test_an_unknown_site_is_an_error_that_says_which_there_are(text: str, message: str) -> None:
    with pytest.raises(SettingError) as error:
        Site.parse(text)
    assert message in str(error.value)


@pytest.mark.parametrize("layer", [5, 100, -6])
def test_a_layer_that_the_model_lacks_is_an_error(layer: int) -> None:
    with pytest.raises(SettingError, match=rf"got site 'mean@{layer}'.*from 0 .* to 4.*-5 to -1"):
        Site.parse(f"mean@{layer}").layers(4)


def test_pooling_looks_at_no_padding() -> None:
    torch.manual_seed(0)
    lengths = [3, 1, 5]
    states = torch.randn(3, 5, 4)
    mask = torch.zeros(3, 5, dtype=torch.int64)
    for i, length in enumerate(lengths):
        mask[i, :length] = 1
        states[i, length:] = torch.nan
    alone = [states[i, :length] for i, length in enumerate(lengths)]
    for causal in (False, True):
        mean = pool_states(states, mask, "mean", causal=causal)
        torch.testing.assert_close(mean, torch.stack([part.mean(dim=0) for part in alone]))
    first = pool_states(states, mask, "cls", causal=False)
    assert torch.equal(first, torch.stack([part[0] for part in alone]))
    last = pool_states(states, mask, "cls", causal=True)
    assert torch.equal(last, torch.stack([part[-1] for part in alone]))
