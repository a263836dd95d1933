"""A numpy array or a torch tensor in memory as a source."""

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from isotropy.inputs import check_array, check_shape, check_tensor, to_tensor
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
            self.dtype = check_array(array, self.name)
            self._array = array
        check_shape(tuple(array.shape), self.name)
        self.n_rows, self.features = array.shape

    def _chunks(self, rows: int, columns: tuple[str, ...]) -> Iterator[Chunk]:
        for start in range(0, len(self._array), rows):
            part = self._array[start : start + rows]
            yield Chunk(part if isinstance(part, Tensor) else to_tensor(part), start)
