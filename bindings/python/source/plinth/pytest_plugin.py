"""A fixture: an empty database in memory for each test."""
from __future__ import annotations

from typing import TYPE_CHECKING, Iterator

import pytest

if TYPE_CHECKING:
    from fdb.impl import Database


@pytest.fixture
def plinth_db() -> Iterator[Database]:
    """An empty database in memory, which nobody else sees and which is gone with the test."""
    # Not at the top: pytest loads plugins in every project, and most have no use for the library.
    import plinth

    yield plinth.open(":memory:")
