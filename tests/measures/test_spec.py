"""What a spec says of itself once its options change."""

import pytest

from isotropy.errors import SettingError
from isotropy.measures import SPECS


def test_other_options_give_other_numbers_and_leave_the_spec_as_it_is():
    before = SPECS["anisotropy"]
    after = before.with_options(k=5)
    assert [number.key for number in after.numbers] == [f"anisotropy_{i}" for i in range(1, 6)]
    assert after.options == {"k": 5}
    assert before.options == {"k": 3}
    assert len(before.numbers) == 3


def test_options_that_are_not_given_keep_their_values():
    spec = SPECS["explained_variance"].with_options(center=False)
    assert spec.options == {"k": 3, "center": False}
    assert spec.with_options(k=1).options == {"k": 1, "center": False}


def test_without_options_nothing_changes():
    for spec in SPECS.values():
        assert spec.with_options() == spec


def test_an_integer_is_a_number():
    value = SPECS["outlier_dimensions"].with_options(threshold=2).options["threshold"]
    assert (value, type(value)) == (2.0, float)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("anisotropy", {"kk": 3}, "got option of anisotropy 'kk'.*did you mean 'k'"),
        ("hubness", {"neighbours": 3}, "got option of hubness 'neighbours'.*choose from: k"),
        ("iso_score", {"k": 3}, "got option 'k' of iso_score, which has no options"),
        ("anisotropy", {"k": 2.0}, r"got anisotropy\.k=2\.0, expected a value of type int"),
        ("anisotropy", {"k": True}, r"got anisotropy\.k=True, expected a value of type int"),
        (
            "anisotropy",
            {"k": "3"},
            r"got anisotropy\.k='3', expected a value of type int such as 3",
        ),
        ("explained_variance", {"center": 1}, "expected a value of type bool such as True"),
        (
            "iso_score_star",
            {"zeta": None},
            r"zeta=None, expected a value of type float such as 0\.2",
        ),
        ("partition_isotropy", {"compat": 1}, "expected a value of type str such as 'none'"),
    ],
)
def test_wrong_options(name, options, message):
    with pytest.raises(SettingError, match=message):
        SPECS[name].with_options(**options)


def test_only_measures_of_neighbours_need_neighbours():
    assert SPECS["hubness"].with_options(k=7).neighbours == 7
    assert SPECS["two_nn"].neighbours == 2
    assert SPECS["anisotropy"].neighbours == 0  # whose k is another one
