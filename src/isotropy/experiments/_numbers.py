"""Numbers as sentences have them."""

from collections.abc import Callable

from isotropy.experiments.statistics import ALPHA, Interval

LEAST_P = 0.001


def plain(value: float) -> str:
    """Two significant digits after what a reader compares, without needless zeros.

    Example:
        >>> [plain(1.834), plain(0.0512), plain(-12.34), plain(0.00031), plain(0.0), plain(123.4)]
        ['1.8', '0.051', '−12', '0.00031', '0', '123']
    """
    size = abs(value)
    text = f"{size:.0f}" if size >= 10 else f"{size:.2g}"
    if "e" in text:
        text = f"{size:.1e}"
    return f"−{text}" if value < 0 and float(text) else text


def points(value: float) -> str:
    """A difference in points, to a tenth; to a hundredth where a tenth would hide it.

    Example:
        >>> [points(1.834), points(-0.04), points(1.0), points(0.0)]
        ['1.8 points', '−0.04 points', '1.0 points', '0.0 points']
    """
    return f"{point(value)} points"


def point(value: float) -> str:
    """The number of `points` alone."""
    size = abs(value)
    text = f"{size:.1f}" if size >= 0.1 or size < 0.005 else f"{size:.2f}"
    return f"−{text}" if value < 0 and float(text) else text


def probability(p: float) -> str:
    """A p-value as it is written.

    Example:
        >>> [probability(0.0213), probability(0.0496), probability(1e-9), probability(1.0)]
        ['p = .021', 'p = .0496', 'p < .001', 'p = 1']
    """
    if p < LEAST_P:
        return "p < .001"
    text = f"{p:.2g}"
    if float(text) == ALPHA:  # which side of it is what matters
        text = f"{p:.3g}"
    return f"p = {text.removeprefix('0')}"


def between(interval: Interval, form: Callable[[float], str] = point) -> str:
    """An interval in words.

    Example:
        >>> between((-0.5, 1.25))
        '−0.5 to 1.2'
    """
    low, high = interval
    return f"{form(low)} to {form(high)}"


def counted(n: int, what: str) -> str:
    """A number of things.

    Example:
        >>> counted(1, "run"), counted(3, "run")
        ('1 run', '3 runs')
    """
    return f"{n} {what}{'' if n == 1 else 's'}"


def times(value: float) -> str:
    """A factor.

    Example:
        >>> times(1.0234), times(12.34)
        ('1.02', '12.3')
    """
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"
