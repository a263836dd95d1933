"""What all penalties share, on the smallest of them."""

from ast import literal_eval
from inspect import signature

import pytest
import torch
from torch import nn

from isotropy import Representations
from isotropy.errors import InputError, SettingError
from isotropy.penalties import SPECS, Penalty, ZeroMean
from isotropy.settings import choice, flag, number, whole_number


class Total(Penalty):
    """The sum of all rows that count; infinite where it is above 100."""

    def value(self, rows):
        sums = [
            (x if mask is None else x.masked_fill(~mask[:, None], 0)).sum()
            for x, mask in zip(rows.blocks, rows.masks, strict=True)
        ]
        total = torch.stack(sums).sum()
        return torch.where(total > 100, torch.inf, total)


def total(x, **settings):
    return Total(**{"weight": 2.0, "site": "tokens@last", **settings}), Representations.from_cloud(
        x
    )


def test_undefined_values_are_counted_and_contribute_nothing():
    x = torch.ones(3, 2, requires_grad=True)
    penalty, shown = total(x)
    for step in range(1, 4):
        value = penalty(Representations.from_cloud(50 * x))
        (gradient,) = torch.autograd.grad(value, x)
        assert (float(value.detach()), gradient.any().item()) == (0, False)
        assert int(penalty.skipped) == step
    assert float(penalty(shown).detach()) == 12
    assert int(penalty.skipped) == 3
    assert "skipped" not in penalty.state_dict()


def test_a_gradient_that_is_not_finite_is_kept_out():
    x = torch.tensor([[4.0, 0.0]], requires_grad=True)

    class Root(Penalty):
        def value(self, rows):
            return rows.blocks[0].clamp(min=0).sqrt().sum()  # at 0 its derivative is infinite

    (gradient,) = torch.autograd.grad(Root(weight=1, site="cls")(Representations.from_cloud(x)), x)
    assert torch.equal(gradient, torch.zeros(1, 2))


@pytest.mark.parametrize("rows", [0, 1])
def test_ranks_with_few_rows_have_shapes_to_work_on(rows):
    seen = []

    class Look(Penalty):
        def value(self, rows):
            seen.append((rows.blocks[0].shape, rows.masks[0].tolist(), rows.labels.tolist()))
            return rows.blocks[0].sum()

    x, labels = torch.ones(rows, 3), torch.full((rows,), 5)
    Look(weight=1, site="cls")(Representations.from_cloud(x, labels))
    expected = [k < rows for k in range(2)]
    assert seen == [((2, 3), expected, [5 if here else 0 for here in expected])]


def test_a_loss_keeps_its_dtype():
    for spec in SPECS.values():
        x = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
        value = spec.make()(Representations.from_cloud(x))
        assert (value.dtype, value.shape) == (torch.float32, ()), spec.name


def test_a_model_in_training_is_moved():
    """The penalty on a small network's output, with the task's loss: both have their gradients."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6))
    x = torch.randn(32, 4)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.3)
    penalty = ZeroMean()
    values = []
    for _ in range(50):
        optimizer.zero_grad()
        value = penalty(Representations.from_cloud(network(x)))
        value.backward()
        optimizer.step()
        values.append(float(value.detach()))
    assert values[-1] < 0.2 * values[0]


def test_what_is_shown_of_it():
    penalty, _ = total(torch.ones(2, 2), site="mean@3", weight=-0.5)
    assert repr(penalty) == "Total(weight=-0.5, site='mean@3')"
    padded = Total(weight=1, site="mean", include_padding=True)
    assert repr(padded) == "Total(weight=1, site='mean@last', include_padding=True)"


def test_each_spec_has_a_name_of_its_own():
    assert len({spec.summary for spec in SPECS.values()}) == len(SPECS) == 13
    assert {spec.name for spec in SPECS.values()} == set(SPECS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: number("t", 0, low=0, open=True), "got t=0, expected a finite number above 0"),
        (lambda: number("t", True), "got t=True, expected a finite number"),
        (lambda: number("zeta", 2, low=0, high=1), "got zeta=2, expected a number from 0 to 1"),
        (lambda: number("t", float("inf")), "got t=inf, expected a finite number"),
        (lambda: whole_number("k", 0, low=1), "got k=0, expected a whole number from 1 up"),
        (lambda: whole_number("k", "3", low=1), "got k='3', expected a whole number from 1 up"),
        (lambda: flag("normalize", 1), "got normalize=1, expected True or False"),
        (
            lambda: choice("bars", "al", ("all", "prominent")),
            "got bars='al', expected 'all' or 'prominent'",
        ),
        (lambda: total(torch.ones(2, 2), site=None), "got site=None, expected a text such as"),
        (
            lambda: total(torch.ones(2, 2), include_padding=0),
            "got include_padding=0, expected True",
        ),
    ],
)
def test_bad_settings(call, message):
    with pytest.raises(SettingError, match=message):
        call()


SHOWN = {
    "cosine": {},
    "decorrelation": {},
    "i-star": {"zeta": "0.4", "tokens": "64", "seed": "3", "shrinkage": "'identity'"},
    "iso-score-unbiased": {"tokens": "64", "seed": "3"},
    "laplacian": {"k": "4"},
    "log-iso-score": {"floor": "0.001"},
    "persistent-entropy": {
        "bars": "'all'",
        "by_class": "False",
        "normalize": "True",
        "within": "0.5",
    },
    "spectrum-exp": {"c1": "2", "c2": "0.1", "gamma": "0.7"},
    "spectrum-pol": {"c1": "2", "gamma": "-0.3"},
    "uniformity": {"t": "3"},
    "vicreg": {"variance": "10", "covariance": "2", "floor": "0.5"},
    "zero-mean": {},
}


@pytest.mark.parametrize("name", SHOWN)
def test_all_settings_are_shown(name):
    penalty = SPECS[name].make(**{key: literal_eval(text) for key, text in SHOWN[name].items()})
    shown = repr(penalty).removeprefix(f"{type(penalty).__name__}(").removesuffix(")")
    parts = shown.split(", ")
    assert {f"{key}={text}" for key, text in SHOWN[name].items()} <= set(parts)
    assert len({part.partition("=")[0] for part in parts}) == len(parts)
    settings = [key for key in signature(type(penalty)).parameters if key != "settings"]
    assert {part.partition("=")[0] for part in parts} == set(settings)


def test_what_is_not_set_is_not_shown_and_what_was_found_is():
    penalty = SPECS["spectrum-pol"].make(gamma=0)
    assert repr(penalty) == "SpectrumPol(weight=1, site='vocabulary', gamma=0)"
    penalty(Representations.from_cloud(torch.diag(torch.tensor([3.0, 4.0]))))
    assert "c1=3.53553," in repr(penalty)  # 2 c1² = 9 + 16
    matrix = SPECS["i-star"].make(shrinkage=torch.eye(6))
    assert "shrinkage=<6×6>" in repr(matrix)
    assert "tokens=" not in repr(matrix)


@pytest.mark.parametrize("given", [torch.ones(3, 2), {"hidden_states": ()}, None], ids=str)
def test_what_is_no_representations(given):
    message = (
        rf"got {type(given).__name__}, expected Representations; make them with "
        r"isotropy.Representations.from_cloud\(x\)"
    )
    with pytest.raises(InputError, match=message):
        ZeroMean()(given)
