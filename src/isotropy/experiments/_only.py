"""Which runs of a plan are meant."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from isotropy.errors import SettingError, unknown_name
from isotropy.experiments.spec import RunSpec

_SHORT = ("model", "task", "method", "seed")


def chosen(specs: Sequence[RunSpec], only: str | None) -> list[RunSpec]:
    """The runs that a filter lets through, in their order.

    Args:
        specs: runs of a plan.
        only: `key=value` pairs, joined by commas, that must all hold: the key is `model`, `task`,
            `method`, `seed` or a dotted name as `train.batch_size`, the value may have wildcards,
            and of a key that is named twice either value will do. Or a pattern of the run's label,
            as `*mrpc*`. None for all.

    Raises:
        SettingError: it names something that does not exist, or nothing is left.

    Example:
        >>> specs = [RunSpec(model="minilm", task="rte", seed=seed) for seed in range(3)]
        >>> [spec.seed for spec in chosen(specs, "task=rte,seed=0,seed=2")]
        [0, 2]
    """
    if only is None:
        return list(specs)
    pairs = [part.strip() for part in only.split(",")]
    if not all("=" in pair for pair in pairs):
        return _labelled(specs, only)
    wanted: dict[str, list[str]] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        wanted.setdefault(key.strip(), []).append(value.strip())
    flat = {spec.id: _flat(spec) for spec in specs}
    known = {key for values in flat.values() for key in values}
    left = list(specs)
    for key, patterns in wanted.items():
        if key not in known:
            near = get_close_matches(key, sorted(known), n=1)
            # All dotted names would be a page: the nearest one and the short ones say enough.
            raise unknown_name("key of --only", key, [*near, *_SHORT])
        there = [value for spec in left for value in flat[spec.id].get(key, ())]
        left = [spec for spec in left if _matches(flat[spec.id].get(key, ()), patterns)]
        if not left:
            raise SettingError(
                f"got --only {only!r}, but no run has {key}={' or '.join(patterns)}; "
                f"there are: {_listed(there)}"
            )
    return left


def _labelled(specs: Sequence[RunSpec], only: str) -> list[RunSpec]:
    found = [spec for spec in specs if fnmatchcase(spec.label, only)]
    if not found:
        raise SettingError(
            f"got --only {only!r}, expected key=value pairs or a pattern of a run such as: "
            f"{_listed([spec.label for spec in specs])}"
        )
    return found


def _matches(values: Iterable[str], patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(value, pattern) for value in values for pattern in patterns)


def _listed(values: Iterable[str], most: int = 8) -> str:
    names = list(dict.fromkeys(values))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _flat(spec: RunSpec) -> dict[str, tuple[str, ...]]:
    """What each key says, as text; a method may be named with its settings or without."""
    found: dict[str, tuple[str, ...]] = {}

    def add(value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                add(inner, f"{name}.{key}" if name else key)
        else:
            found[name] = (str(value),)

    add(spec.model_dump(mode="json"), "")
    return {**found, "method": (spec.method.name, spec.method.label)}
