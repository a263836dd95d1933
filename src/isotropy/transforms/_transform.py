"""What all transforms share: scikit-learn's contract, any source to fit on, files."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from isotropy.errors import InputError, SettingError
from isotropy.inputs import (
    COMPUTE_DTYPE,
    ArrayLike,
    as_tensor,
    check_array,
    finite_range,
    full_precision,
    require_rows,
)
from isotropy.output import Progress, progress_bars
from isotropy.settings import whole_number
from isotropy.sources import Chunk, Source, open_source
from isotropy.transforms import _saved
from isotropy.transforms._reader import Reader, as_weights


class Transform(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc] # scikit-learn has no types
    """A map of clouds that is fitted on a cloud: a scikit-learn estimator.

    It is fitted on arrays, tensors, data frames, files and folders of shards, chunk by chunk, and
    maps arrays, tensors and data frames to what they were: a tensor to a tensor on its device, with
    its gradient, and floating-point numbers to those of the same dtype. Half precision is computed
    in float32. `isotropy.transforms.apply` maps files.

    Settings are looked at when it is fitted.
    """

    arrays: ClassVar[tuple[str, ...]] = ()
    """Names of the fitted arrays, which are what is saved."""

    n_features_in_: int

    def fit(
        self,
        X: ArrayLike | str | Path | Source | Any,
        y: Any = None,
        *,
        weights: Any = None,
        key: str | None = None,
        format: str | None = None,
        device: str | torch.device | None = None,
        chunk_rows: int | None = None,
        progress: bool | Progress = False,
    ) -> Self:
        """Fit it on a cloud, which may be far larger than memory.

        Args:
            X: an array, a tensor, a data frame, or anything else that `isotropy.measure` takes: a
                file, a folder of shards, `"-"` for standard input, a source.
            y: not used.
            weights: how much each row counts: n numbers from 0 up, or the name of a column of `X`
                that holds them. With a word's frequency this is Zipfian weighting (Yokoi et al.
                2024). Only their ratios matter.
            key: which array or column holds the embeddings, where there are several.
            format: the file's format, where its name does not tell.
            device: where to compute, such as `"cuda"`; by default where the rows are.
            chunk_rows: how many rows to read at a time.
            progress: True for progress bars, or a function that is told how far it is.

        Raises:
            IsotropyError: a bad source, bad values, or a setting that makes no sense.
        """
        self._check_settings()
        if chunk_rows is not None:
            whole_number("chunk_rows", chunk_rows, low=1)
        if isinstance(X, str | os.PathLike | Tensor | Source):
            source = open_source(X, key=key, format=format)
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
        else:
            source = open_source(self._array(X, reset=True), key=key, format=format)
        if source.features is not None:
            self._check_features(source.features)
        bars = progress_bars() if progress is True else nullcontext(progress or silent)
        with bars as report, torch.no_grad():
            reader = Reader(source, as_weights(weights), _device(device), chunk_rows, report)
            fitted = self._fit(reader)
        for name in self.arrays:
            setattr(self, name, fitted[name].cpu().numpy())
        self.n_features_in_ = self._features(fitted)
        return self

    def transform(self, X: ArrayLike | Any) -> Any:
        """Map a cloud to one of the same kind: n×d to n×k.

        Raises:
            InputError: another number of features than it was fitted on, or bad values.
            NotFittedError: it was not fitted.
        """
        check_is_fitted(self)
        return self._mapped(X, self._map, self.n_features_in_)

    def _mapped(self, X: Any, function: Callable[[Tensor], Tensor], features: int) -> Any:
        if isinstance(X, str | os.PathLike | Source):
            raise InputError(
                f"got a source of type {type(X).__name__}, expected an array or a tensor; files "
                "are mapped by isotropy.transforms.apply"
            )
        if isinstance(X, Tensor):
            x = as_tensor(X)
        else:
            X = self._array(X, reset=False) if features == self.n_features_in_ else _plain(X)
            x = as_tensor(X)
        y = self._checked(x, function, features)
        return y.to(X.dtype) if isinstance(X, Tensor) else y.numpy().astype(X.dtype, copy=False)

    def map_rows(self, x: Tensor) -> Tensor:
        """N×d rows mapped in the dtype and on the device of `x`, without a look at their values."""
        with full_precision(x):
            return self._map(x.to(COMPUTE_DTYPE[x.dtype])).to(x.dtype)

    def map_chunk(self, chunk: Chunk, name: str) -> Tensor:
        """The mapped rows of a source's chunk, in the dtype in which they are computed."""
        numbers = torch.arange(chunk.start, chunk.start + len(chunk.rows))
        x = chunk.rows.to(COMPUTE_DTYPE[chunk.rows.dtype])
        return self._checked(x, self._map, self.n_features_in_, name, numbers)

    def _checked(
        self,
        x: Tensor,
        function: Callable[[Tensor], Tensor],
        features: int,
        name: str = "x",
        numbers: Tensor | None = None,
    ) -> Tensor:
        """What the function gives for rows of the right kind."""
        require_rows(len(x), 1, name=name)
        if x.shape[1] != features:
            raise InputError(
                f"got {name} with {x.shape[1]} features, expected {features}: X has {x.shape[1]} "
                f"features, but {type(self).__name__} is expecting {features} features as input"
            )
        finite_range(x, name=name, numbers=numbers)
        with full_precision(x):
            return function(x)

    def save(self, path: str | Path) -> None:
        """Write it to a `.safetensors` file, all of it or nothing; an existing one is replaced.

        Raises:
            SettingError: nothing can be written there.
            NotFittedError: it was not fitted.
        """
        check_is_fitted(self)
        _saved.write(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote; `isotropy.transforms.load` reads any transform.

        Raises:
            SourceError: there is no such file, it is damaged, or no saved transform of this kind.
        """
        found: Self = _saved.read(path, {cls.__name__: cls})
        return found

    def as_affine(self) -> tuple[Tensor, Tensor] | None:
        """The d×k matrix A and the d-vector m in float64 of a map x ↦ (x − m)·A, if it is one."""
        return None

    @abstractmethod
    def _check_settings(self) -> None:
        """Raise a SettingError for a setting that makes no sense."""

    def _check_features(self, features: int) -> None:
        """Raise a SettingError for a setting that makes no sense for so many features."""

    @abstractmethod
    def _fit(self, reader: Reader) -> Mapping[str, Tensor]:
        """The fitted arrays by their names."""

    @abstractmethod
    def _map(self, x: Tensor) -> Tensor:
        """N×d in float32 or float64 to n×k in the same dtype, on the same device."""

    @property
    @abstractmethod
    def _n_features_out(self) -> int:
        """How many features the mapped rows have."""

    def _features(self, fitted: Mapping[str, Tensor]) -> int:
        """How many features it was fitted on."""
        return fitted[self.arrays[0]].shape[-1]

    def _fitted(self, name: str, like: Tensor) -> Tensor:
        """A fitted array as a tensor with the dtype and the device of another."""
        array: NDArray[Any] = getattr(self, name)
        return torch.as_tensor(array).to(like)

    def _array(self, X: Any, *, reset: bool) -> NDArray[Any]:
        """Anything that scikit-learn takes as an array of floating-point numbers.

        Raises:
            InputError: scikit-learn does not take it.
        """
        if np.ma.isMaskedArray(X):
            check_array(X, "x")
        try:
            array = validate_data(
                self,
                X,
                reset=reset,
                dtype="numeric",
                ensure_all_finite=False,
                ensure_min_samples=2 if reset else 1,
                ensure_min_features=2 if reset else 1,
            )
        except ValueError as error:
            raise InputError(" ".join(str(error).split())) from error
        return _as_float(array)

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn should know: dtypes are kept."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32", "float16"]
        return tags


class Invertible(Transform):
    """A transform that can be undone."""

    def inverse_transform(self, X: ArrayLike | Any) -> Any:
        """Map n×k rows back to n×d, in the caller's terms; what the transform lost is lost.

        Raises:
            InputError: another number of features than the transform gives, or bad values.
            NotFittedError: it was not fitted.
        """
        check_is_fitted(self)
        return self._mapped(X, self._inverse, self._n_features_out)

    @abstractmethod
    def _inverse(self, y: Tensor) -> Tensor:
        """N×k back to n×d."""


def centred(x: Tensor, mean: NDArray[np.float64]) -> Tensor:
    """X − mean, to the last digit that `x` has: the mean's own rounding is subtracted too.

    Example:
        >>> x = torch.tensor([[1e4]])
        >>> centred(x, np.array([1e4 - 1e-4])).item()
        0.0001
    """
    exact = torch.as_tensor(mean).to(x.device, torch.float64)
    near = exact.to(x.dtype)
    rest = (exact - near.double()).to(x.dtype)
    return (x - near) - rest


def share(name: str, value: Any, *, below_one: bool = False) -> float:
    """A setting that is a number from 0 to 1.

    Raises:
        SettingError: it is not.
    """
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not 0 <= value <= 1 or (below_one and value == 1):
        limits = "from 0 to below 1" if below_one else "from 0 to 1"
        raise SettingError(f"got {name}={value!r}, expected a number {limits}")
    return float(value)


def directions_to_remove(d: int | None, features: int) -> int:
    """How many directions to remove: as asked, or one for every hundred features.

    Raises:
        SettingError: more than there are.
    """
    if d is None:
        return max(1, round(features / 100))
    if d > features:
        raise SettingError(f"got d={d} for {features} features, expected {features} at most")
    return d


def _device(name: str | torch.device | None) -> torch.device | None:
    """The device of that name, after a try whether it is there."""
    if name is None:
        return None
    try:
        found = torch.zeros(1, device=name)
        found.item()  # the meta device has no values
    except (RuntimeError, AssertionError) as error:  # torch raises both for what is not there
        raise SettingError(
            f"got device={str(name)!r}, expected one that is here, such as 'cpu' "
            f"({str(error).splitlines()[0]})"
        ) from error
    return found.device


def _as_float(array: NDArray[Any]) -> NDArray[Any]:
    """Integers, booleans and long floats as float64; torch's floats as they are."""
    kept = array.dtype in (np.float16, np.float32, np.float64)
    return array if kept else array.astype(np.float64)


def _plain(X: Any) -> NDArray[Any]:
    array = np.asarray(X)
    if array.dtype.kind not in "fiub":
        raise InputError(f"got x with dtype {array.dtype}, expected numbers")
    return _as_float(array)


def silent(stage: str, done: int, total: int | None) -> None:
    pass
