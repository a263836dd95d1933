"""A numpy array or a torch tensor in memory as a source."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotropy.errors import InputError
from isotropy.inputs import COMPUTE_DTYPE
from isotropy.sources._dtypes import ACCEPTED, check_shape, float_dtype, to_tensor
from isotropy.sources._source import Chunk
from isotropy.sources._table import Table


class ArrayTable(Table):
    """The rows of an array in memory; chunks are views of it.

    Example:
        >>> [chunk.rows.shape[0] for chunk in ArrayTable(np.zeros((5, 2))).chunks(2)]
        [2, 2, 1]
    """

    def __init__(self, array: NDArray[Any] | Tensor) -> None:
        self.name = "tensor" if isinstance(array, Tensor) else "array"
        self.columns = ()
        if isinstance(array, Tensor):
            self.dtype = check_tensor(array, self.name)
            self._array: NDArray[Any] | Tensor = array.detach()
        else:
            if np.ma.isMaskedArray(array):
                raise InputError(
                    "got a masked array, expected one without a mask; "
                    "drop the masked rows, for instance with numpy.ma.compress_rows"
                )
            self.dtype = float_dtype(array.dtype, self.name)
            self._array = array
        check_shape(tuple(array.shape), self.name)
        self.n_rows, self.features = array.shape

    def _chunks(self, rows: int, columns: tuple[str, ...]) -> Iterator[Chunk]:
        for start in range(0, len(self._array), rows):
            part = self._array[start : start + rows]
            yield Chunk(part if isinstance(part, Tensor) else to_tensor(part), start)


def check_tensor(tensor: Tensor, name: str) -> torch.dtype:
    """The dtype of a dense floating-point tensor that has values.

    Raises:
        InputError: it is sparse, nested, quantized, without data or not floating point.
    """
    if tensor.layout != torch.strided or tensor.is_nested:
        layout = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        raise InputError(
            f"got {name} with layout {layout}, expected a dense tensor; "
            "convert it, for instance with x.to_dense()"
        )
    if tensor.is_meta:
        raise InputError(f"got {name} on the meta device, expected a tensor that holds values")
    if tensor.dtype not in COMPUTE_DTYPE:
        how = "x.dequantize()" if tensor.is_quantized else "x.float()"
        raise InputError(
            f"got {name} with dtype {str(tensor.dtype).removeprefix('torch.')}, "
            f"expected {ACCEPTED}; convert it, for instance with {how}"
        )
    return tensor.dtype
