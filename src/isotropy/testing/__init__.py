"""Checks that hold for every component, for our own tests and for those of new components.

Every check reads what a component says of itself in its spec and raises an AssertionError where
it does not hold.
"""

from isotropy.testing._accelerator import no_host_copies as no_host_copies
from isotropy.testing._layer import check_layer as check_layer
from isotropy.testing._measure import check_measure as check_measure, numbers as numbers
from isotropy.testing._penalty import check_penalty as check_penalty
from isotropy.testing._tools import hostile_clouds as hostile_clouds
from isotropy.testing._transform import check_transform as check_transform
