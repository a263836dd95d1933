"""Transforms as scikit-learn sees them."""

import os
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from isotropy import transforms
from isotropy.errors import InputError

ESTIMATORS = [
    transforms.Whitening(),
    transforms.Whitening(k=1, method="zca", shrinkage=0.1),
    transforms.Standardize(),
    transforms.AllButTheTop(),
    # The checks fit clouds of as few as ten rows.
    transforms.ClusterAllButTheTop(clusters=2, d=1),
    transforms.FlowPostHoc(levels=2, steps=1, epochs=1),
    transforms.IsotropyLayerPostHoc(epochs=1),
]


@parametrize_with_checks(ESTIMATORS)
def test_sklearns_own_checks(estimator: Any, check: Any) -> None:
    if check.func.__name__ == "check_array_api_input" and "SCIPY_ARRAY_API" not in os.environ:
        pytest.skip("it is about other libraries' arrays; tensors are tested by our own checks")
    check(estimator)


def test_in_a_pipeline_and_a_search(rng: np.random.Generator) -> None:
    x = rng.normal(size=(120, 6)) * np.linspace(1, 100, 6)
    y = (x[:, 0] > 0).astype(int)
    pipeline = Pipeline([("white", transforms.Whitening()), ("head", LogisticRegression())])
    search = GridSearchCV(pipeline, {"white__k": [2, 6]}, cv=3).fit(x, y)
    assert search.best_params_ == {"white__k": 6}  # the label is in the smallest direction
    weighted = Pipeline(pipeline.steps).fit(x, y, white__weights=np.arange(120))
    assert weighted[0].mean_ == pytest.approx(np.average(x, axis=0, weights=np.arange(120)))


def test_data_frames_in_and_out(rng: np.random.Generator) -> None:
    pandas = pytest.importorskip("pandas")
    x = pandas.DataFrame(rng.normal(size=(30, 3)), columns=["a", "b", "c"])
    whitening = transforms.Whitening(k=2).set_output(transform="pandas").fit(x)
    y = whitening.transform(x)
    assert list(y.columns) == ["whitening0", "whitening1"]
    assert whitening.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(InputError, match="feature names"):
        whitening.transform(x[["b", "a", "c"]])
    assert list(make_pipeline(transforms.Standardize()).fit(x).get_feature_names_out()) == [*"abc"]


def test_a_tensor_fits_without_the_names_of_an_earlier_frame(rng: np.random.Generator) -> None:
    pandas = pytest.importorskip("pandas")
    x = rng.normal(size=(30, 3))
    whitening = transforms.Whitening().fit(pandas.DataFrame(x, columns=["a", "b", "c"]))
    whitening.fit(torch.from_numpy(x[:, :2]))
    assert whitening.n_features_in_ == 2
    assert not hasattr(whitening, "feature_names_in_")


def test_an_array_with_a_mask_is_refused(rng: np.random.Generator) -> None:
    with pytest.raises(InputError, match="got x with a mask"):
        transforms.Whitening().fit(np.ma.masked_less(rng.normal(size=(30, 3)), 0))
