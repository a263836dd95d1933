"""Measures of a model's states during training, on a fixed sample."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from isotropy.errors import SettingError, UndefinedError, unknown_name
from isotropy.measurement import measure
from isotropy.measures import SPECS
from isotropy.sites import Site
from isotropy.states import states


class Tracker:
    """Measures a model on the same batches whenever it is asked to.

    Args:
        measures: names of measures.
        batches: the model's inputs, as dicts of tensors; they are kept, so give few.
        site: which rows are measured.
        seed: of measures that draw at random.

    Raises:
        SettingError: no measures, no batches, an unknown measure or site.
    """

    def __init__(
        self,
        measures: Sequence[str] | str,
        batches: Iterable[Mapping[str, Any]],
        *,
        site: str = "cls@last",
        seed: int = 0,
    ) -> None:
        self.measures = as_measures(measures)
        self.batches = list(batches)
        self.site = Site.parse(site)
        self.seed = seed
        if not self.batches:
            raise SettingError("got no batches to track measures on, expected at least one")

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """The numbers by their keys, without those that are undefined at present."""
        rows = torch.cat(
            [rows for batch in self.batches for rows in states(model, batch, self.site)]
        )
        return numbers(rows, self.measures, self.seed)


def as_measures(names: Sequence[str] | str) -> list[str]:
    """Names of measures.

    Raises:
        SettingError: none, or one that does not exist.

    Example:
        >>> as_measures("iso_score")
        ['iso_score']
    """
    found = [names] if isinstance(names, str) else list(names)
    for name in found:
        if name not in SPECS:
            raise unknown_name("measure", str(name), SPECS)
    if not found:
        raise SettingError("got no measures to track, expected at least one")
    return found


def numbers(rows: Tensor, measures: Sequence[str], seed: int = 0) -> dict[str, float]:
    """The numbers of a cloud by their keys, without those that are undefined at present."""
    found: dict[str, float] = {}
    for name in measures:
        try:
            scores = measure(rows, name, seed=seed)
        except UndefinedError:  # such as that of rows that have become equal
            continue
        found |= {key: score.value for key, score in scores.items() if score.value is not None}
    return found
