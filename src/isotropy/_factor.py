"""Matrix products as fast as the processor can."""

import torch
from torch import Tensor
from torch.nn.functional import linear

from isotropy.inputs import full_precision


class Factor:
    """A matrix by whose transpose many others are multiplied.

    On a CPU torch leaves products of float32 to MKL, which does not use the widest instructions of
    processors of other makers. oneDNN, a part of torch too, does: there it takes half the time.

    Args:
        matrix: m×d.

    Example:
        >>> Factor(torch.tensor([[1.0, 2.0]])).times(torch.tensor([[3.0, 4.0]]))
        tensor([[11.]])
    """

    def __init__(self, matrix: Tensor) -> None:
        by_onednn = matrix.device.type == "cpu" and matrix.dtype == torch.float32
        if by_onednn and torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            matrix = matrix.to_mkldnn()
        self._matrix = matrix

    def times(self, left: Tensor) -> Tensor:
        """left·matrixᵀ, n×m, of n×d; on a CPU best a few hundred rows at a time."""
        with full_precision(left):
            if self._matrix.is_mkldnn:
                return linear(left.to_mkldnn(), self._matrix).to_dense()
            return left @ self._matrix.T
