"""Measures: pure functions from a cloud to numbers, and what each says of itself.

A measure is one line here; tables, docs, command line and contract tests read `SPECS`.
"""

from isotropy.measures._anisotropy import SPEC as ANISOTROPY, anisotropy as anisotropy
from isotropy.measures._centered_anisotropy import (
    SPEC as CENTERED_ANISOTROPY,
    centered_anisotropy as centered_anisotropy,
)
from isotropy.measures._effective_rank import (
    SPEC as EFFECTIVE_RANK,
    effective_rank as effective_rank,
)
from isotropy.measures._explained_variance import (
    SPEC as EXPLAINED_VARIANCE,
    explained_variance as explained_variance,
)
from isotropy.measures._hubness import SPEC as HUBNESS, Hubness as Hubness, hubness as hubness
from isotropy.measures._iso_score import (
    SPEC as ISO_SCORE,
    iso_score as iso_score,
    iso_score_from_covariance as iso_score_from_covariance,
)
from isotropy.measures._iso_score_star import (
    SPEC as ISO_SCORE_STAR,
    iso_score_star as iso_score_star,
)
from isotropy.measures._iso_score_unbiased import (
    SPEC as ISO_SCORE_UNBIASED,
    iso_score_unbiased as iso_score_unbiased,
)
from isotropy.measures._local_isotropy import (
    SPEC as LOCAL_ISOTROPY,
    LocalIsotropy as LocalIsotropy,
    local_isotropy as local_isotropy,
)
from isotropy.measures._mean_cosine import SPEC as MEAN_COSINE, mean_cosine as mean_cosine
from isotropy.measures._mean_norm_ratio import (
    SPEC as MEAN_NORM_RATIO,
    mean_norm_ratio as mean_norm_ratio,
)
from isotropy.measures._mle_dimension import SPEC as MLE_DIMENSION, mle_dimension as mle_dimension
from isotropy.measures._outlier_dimensions import (
    SPEC as OUTLIER_DIMENSIONS,
    OutlierDimensions as OutlierDimensions,
    outlier_dimensions as outlier_dimensions,
)
from isotropy.measures._participation_ratio import (
    SPEC as PARTICIPATION_RATIO,
    participation_ratio as participation_ratio,
)
from isotropy.measures._partition_isotropy import (
    SPEC as PARTITION_ISOTROPY,
    PartitionIsotropy as PartitionIsotropy,
    partition_isotropy as partition_isotropy,
)
from isotropy.measures._persistent_entropy import (
    SPEC as PERSISTENT_ENTROPY,
    PersistentEntropy as PersistentEntropy,
    persistent_entropy as persistent_entropy,
)
from isotropy.measures._ph_dimension import (
    SPEC as PH_DIMENSION,
    PhDimension as PhDimension,
    ph_dimension as ph_dimension,
)
from isotropy.measures._spec import (
    MeasureSpec as MeasureSpec,
    Number as Number,
    SecondPass as SecondPass,
)
from isotropy.measures._two_nn import SPEC as TWO_NN, two_nn as two_nn
from isotropy.measures._uniformity import SPEC as UNIFORMITY, uniformity as uniformity

SPECS = {value.name: value for value in list(globals().values()) if isinstance(value, MeasureSpec)}
"""Every measure's spec under its name."""
