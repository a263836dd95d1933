"""Layers: maps between an encoder and its head, and what each says of itself.

A layer is one line here; tables, docs, command line and contract tests read `SPECS`.
"""

from isotropy.layers._attach import (
    Head as Head,
    attach as attach,
    detach as detach,
    embeddings as embeddings,
    layer_of as layer_of,
)
from isotropy.layers._balanced_loss import BalancedLoss as BalancedLoss
from isotropy.layers._flow import SPEC as FLOW, Flow as Flow
from isotropy.layers._iso_batch_norm import SPEC as ISO_BATCH_NORM, IsoBatchNorm as IsoBatchNorm
from isotropy.layers._isotropy_layer import SPEC as ISOTROPY_LAYER, IsotropyLayer as IsotropyLayer
from isotropy.layers._layer import Layer as Layer
from isotropy.layers._load import load as load
from isotropy.layers._rates import parameter_groups as parameter_groups
from isotropy.layers._second_stage import (
    Epoch as Epoch,
    SecondStage as SecondStage,
    Trained as Trained,
)
from isotropy.method import MethodSpec

SPECS = {value.name: value for value in list(globals().values()) if isinstance(value, MethodSpec)}
"""Every layer's spec under its name."""
