"""Arrow tables, on request: pyarrow is optional, and loaded then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lace.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow


def load_pyarrow() -> Any:  # noqa: ANN401 - pyarrow is optional
    """Return the package."""
    try:
        import pyarrow as package
    except ImportError as error:
        raise EngineError("pyarrow is not installed", hint="pip install 'lace[spark]'") from error
    return package


def arrow_table(columns: Mapping[str, tuple[str, Sequence[object]]]) -> pyarrow.Table:
    """Return a pyarrow table."""
    arrow = load_pyarrow()
    arrays = [arrow.array(values, getattr(arrow, kind)()) for kind, values in columns.values()]
    made: pyarrow.Table = arrow.table(arrays, names=list(columns))
    return made
