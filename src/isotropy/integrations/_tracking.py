"""Measures of a model's states during training, on a fixed sample."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

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
        self.measures = [measures] if isinstance(measures, str) else list(measures)
        self.batches = list(batches)
        for name in self.measures:
            if name not in SPECS:
                raise unknown_name("measure", name, SPECS)
        self.site = Site.parse(site)
        self.seed = seed
        if not (self.measures and self.batches):
            raise SettingError(
                f"got {len(self.measures)} measures to track on {len(self.batches)} batches, "
                "expected at least one of both"
            )

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """The numbers by their keys, without those that are undefined at present."""
        rows = torch.cat(
            [rows for batch in self.batches for rows in states(model, batch, self.site)]
        )
        found: dict[str, float] = {}
        for name in self.measures:
            try:
                scores = measure(rows, name, seed=self.seed)
            except UndefinedError:  # such as that of rows that have become equal
                continue
            found |= {key: score.value for key, score in scores.items() if score.value is not None}
        return found
