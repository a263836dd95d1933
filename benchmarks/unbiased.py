"""The unbiased IsoScore on paper D's stability experiment, where the plug-in score collapses."""

import numpy as np
from harness import Row, Section

from isotropy import measures

VARIANCES = np.array([10.0, 6, 4, 4] + [1.0] * 764)
TRUTH = 0.867339
DRAWS, ROWS = 200, 64


def gaussian(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((ROWS, 768)) * np.sqrt(VARIANCES)


def student(rng: np.random.Generator, freedom: int = 5) -> np.ndarray:
    """Multivariate Student-t: one common scale a row."""
    return gaussian(rng) / np.sqrt(rng.chisquare(freedom, (ROWS, 1)) / freedom)


def independent_student(rng: np.random.Generator, freedom: int = 5) -> np.ndarray:
    return rng.standard_t(freedom, (ROWS, 768)) * np.sqrt(VARIANCES)


if __name__ == "__main__":
    section = Section("unbiased")
    exact = measures.iso_score_from_covariance(np.diag(VARIANCES))
    section.add(
        Row("IsoScore of the covariance itself, d = 768: difference", abs(exact - TRUTH),
            high=5e-7, against=str(TRUTH))
    )  # fmt: skip
    for draw, name, margin in (
        (gaussian, "Gaussian", 0.02),
        (student, "multivariate Student-t5", 0.03),
        (independent_student, "independent Student-t5", 0.03),
    ):
        rng = np.random.default_rng(0)
        clouds = [draw(rng) for _ in range(DRAWS)]
        for measure, held in (("iso_score_unbiased", True), ("iso_score", False)):
            scores = [getattr(measures, measure)(x) for x in clouds]
            section.add(
                Row(
                    f"{measure}, mean of {DRAWS} draws of n = {ROWS}, {name}",
                    float(np.mean(scores)),
                    low=TRUTH - margin if held else None,
                    high=TRUTH + margin if held else None,
                    against=f"{TRUTH} (truth)",
                )
            )
    section.save()
