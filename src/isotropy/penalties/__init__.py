"""Penalties: terms of the loss that shape embeddings, and what each says of itself.

A penalty is one line here; tables, docs, command line and contract tests read `SPECS`.
"""

from isotropy.method import MethodSpec
from isotropy.penalties._cosine import SPEC as COSINE, Cosine as Cosine
from isotropy.penalties._decorrelation import SPEC as DECORRELATION, Decorrelation as Decorrelation
from isotropy.penalties._i_star import SPEC as I_STAR, IStar as IStar
from isotropy.penalties._iso_score_unbiased import (
    SPEC as ISO_SCORE_UNBIASED,
    IsoScoreUnbiased as IsoScoreUnbiased,
)
from isotropy.penalties._laplacian import SPEC as LAPLACIAN, Laplacian as Laplacian
from isotropy.penalties._log_iso_score import SPEC as LOG_ISO_SCORE, LogIsoScore as LogIsoScore
from isotropy.penalties._penalty import Penalty as Penalty
from isotropy.penalties._persistent_entropy import (
    ALL as PERSISTENT_ENTROPY_ALL,
    SPEC as PERSISTENT_ENTROPY,
    PersistentEntropy as PersistentEntropy,
)
from isotropy.penalties._spectrum_exp import SPEC as SPECTRUM_EXP, SpectrumExp as SpectrumExp
from isotropy.penalties._spectrum_pol import SPEC as SPECTRUM_POL, SpectrumPol as SpectrumPol
from isotropy.penalties._uniformity import SPEC as UNIFORMITY, Uniformity as Uniformity
from isotropy.penalties._vicreg import SPEC as VICREG, Vicreg as Vicreg
from isotropy.penalties._zero_mean import SPEC as ZERO_MEAN, ZeroMean as ZeroMean

SPECS = {value.name: value for value in list(globals().values()) if isinstance(value, MethodSpec)}
"""Every penalty's spec under its name."""
