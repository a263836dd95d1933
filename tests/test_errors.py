import pickle

import pytest

from isotropy import errors
from isotropy.errors import IsotropyError, MissingExtraError, unknown_name

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, IsotropyError)
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_an_isotropy_error_and_a_value_error(kind):
    error = kind("numpy", "all") if kind is MissingExtraError else kind("got 1, expected 2")
    with pytest.raises(ValueError, match="got") as caught:
        raise error
    assert isinstance(caught.value, IsotropyError)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_survives_the_way_from_a_worker_process(kind):
    error = kind("numpy", "all") if kind is MissingExtraError else kind("got 1, expected 2")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert str(back) == str(error)


def test_a_warning_is_no_error():
    assert issubclass(errors.IsotropyWarning, UserWarning)
    assert not issubclass(errors.IsotropyWarning, IsotropyError)


def test_a_missing_extra_says_how_to_install_it():
    error = MissingExtraError("transformers", "models")
    assert isinstance(error, ImportError)
    assert str(error) == (
        "got no installed package 'transformers', which this needs; "
        "install it with: pip install 'isotropy[models]'"
    )


def test_a_near_name_is_suggested():
    error = unknown_name("measure", "iso_scor", ["two_nn", "iso_score"])
    assert str(error) == (
        "got measure 'iso_scor', expected a known measure; did you mean 'iso_score'?"
    )


def test_all_names_are_listed_where_none_is_near():
    error = unknown_name("measure", "xyz", ["two_nn", "iso_score"])
    assert str(error).endswith("; choose from: iso_score, two_nn")


def test_a_name_of_several_lines_stays_on_one():
    assert "\n" not in str(unknown_name("measure", "a\nb", ["two_nn"]))
