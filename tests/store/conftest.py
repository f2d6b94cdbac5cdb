"""The contract suite is no test module itself; its assertions are still to be explained."""

import pytest

pytest.register_assert_rewrite("tests.store.contract", "tests.store.samples")
