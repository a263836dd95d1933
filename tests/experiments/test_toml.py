import tomllib

import pytest
from hypothesis import given, strategies as some

from isotropy.errors import SettingError
from isotropy.experiments import _toml

PLAIN = (
    some.booleans() | some.integers(-(2**60), 2**60) | some.floats(allow_nan=False) | some.text()
)
VALUES = some.recursive(
    PLAIN, lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(), inner)
)


@given(some.dictionaries(some.text(), VALUES, max_size=4))
def test_what_is_written_reads_back(table: dict[str, object]) -> None:
    assert tomllib.loads(_toml.write(table)) == table


def test_a_list_of_tables_follows_what_is_plain() -> None:
    text = _toml.write({"grid": [{"name": "a", "data": {"tune": 0.1}}], "seeds": 3})
    assert text == 'seeds = 3\n\n[[grid]]\nname = "a"\ndata = {tune = 0.1}\n'


def test_what_toml_does_not_have_is_refused() -> None:
    with pytest.raises(SettingError, match="got None, expected text, a number, true, false"):
        _toml.write({"a": None})
