import pytest
from fakes import fake_spec

from isotropy.errors import SettingError
from isotropy.experiments._only import chosen
from isotropy.experiments.spec import RunSpec

SPECS = [
    RunSpec.read({"model": model, "task": task, "seed": seed, "method": method})
    for model in ("a", "b")
    for task in ("rte", "mrpc")
    for method in ({"name": "none"}, {"name": "i-star", "settings": {"weight": -1}})
    for seed in (0, 1)
]


def found(only):
    return [spec.label for spec in chosen(SPECS, only)]


def test_all_without_a_filter():
    assert chosen(SPECS, None) == SPECS


@pytest.mark.parametrize(
    ("only", "labels"),
    [
        ("method=i-star,seed=0,task=r*,model=b", ["b rte i-star weight=-1 seed=0"]),
        ("method=i-star weight=-1, seed = 1,model=a,task=m*", ["a mrpc i-star weight=-1 seed=1"]),
        ("model=b,method=none,task=rte,seed=0,seed=1", ["b rte none seed=0", "b rte none seed=1"]),
        ("method.settings.weight=-1,model=a,task=rte,seed=0", ["a rte i-star weight=-1 seed=0"]),
        ("train.batch_size=32,model=a,task=rte,method=none,seed=1", ["a rte none seed=1"]),
        ("a rte none*", ["a rte none seed=0", "a rte none seed=1"]),
    ],
)  # fmt: skip
def test_what_it_lets_through(only, labels):
    assert found(only) == labels


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ("method=istar", "no run has method=istar; there are: none, i-star, i-star weight=-1"),
        ("seed=5,seed=6", "no run has seed=5 or 6; there are: 0, 1"),
        ("model=a,model=b,task=cola", "no run has task=cola; there are: rte, mrpc"),
        ("metod=i-star", "got key of --only 'metod', expected a known .*did you mean 'method'"),
        ("foo=1", r"expected a known key of --only; choose from: method, model, seed, task$"),
        ("*cola*", "key=value pairs or a pattern of a run such as: a rte none.* and 8 more"),
        ("seed=0,rte", "expected key=value pairs or a pattern"),
        ("", "expected key=value pairs or a pattern"),
    ],
)  # fmt: skip
def test_what_it_refuses(only, message):
    with pytest.raises(SettingError, match=message):
        chosen(SPECS, only)


def test_a_key_that_only_some_runs_have():
    specs = [fake_spec(0), fake_spec(1, steps=3)]
    assert chosen(specs, "data.options.steps=3") == specs[1:]
