"""Traces as columns."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from . import _pageyard
from ._lab import Progress, _shown
from ._optional import need

if TYPE_CHECKING:
    import numpy.typing as npt


class Trace:
    """The page events of a recorded trace, one row each.

    ``trace["pfn"]`` is a column as a read-only NumPy array. It reads the memory in which the trace
    was stored, without a copy, and stays valid when the trace is gone. ``trace`` itself has Arrow's
    PyCapsule interface: ``pyarrow.table(trace)`` and ``polars.DataFrame(trace)`` need no copy of the
    numbers either.

    ================ ====== ==========================================================
    column           type   meaning
    ================ ====== ==========================================================
    ``time_ns``      u64    time, by the trace's clock
    ``cpu``          u16    CPU on which the event happened
    ``pid``          u32    process that was running
    ``comm``         u32    its name: a number in ``words("comm")``
    ``kind``         u8     event: a number in ``words("kind")``
    ``pfn``          u64    first frame of the block; 2**64-1: none
    ``order``        u8     order of the block
    ``migratetype``  u8     migrate type; 255: none
    ``gfp``          u32    flags of an allocation; 2**32-1: none
    ``found_order``  u8     order of the block that served the request (extfrag); 255: none
    ``found_type``   u8     type of that block (extfrag); 255: none
    ``flag``         u8     1: refills a per-CPU list (zone_locked), takes the pageblock
                            over (extfrag); 255: none
    ================ ====== ==========================================================

    In Arrow, pandas and polars, fields that an event does not have are null, and ``comm`` and
    ``kind`` are words.

    :param path: the trace, a ``.pgy`` file or ftrace text, plain or compressed
    :param lenient: count damaged parts (:attr:`malformed`) instead of failing
    :param progress: ``True`` for a progress bar (tqdm), or a function
    :raises LabError: if the trace cannot be read
    """

    #: What NumPy sees in ``pfn`` if an event has no frame.
    NO_PFN = 2**64 - 1
    #: What NumPy sees in columns of bytes if an event has no such field.
    NONE = 255

    def __init__(
        self,
        path: Union[str, os.PathLike[str]],
        *,
        lenient: bool = False,
        progress: Union[bool, Progress] = False,
    ) -> None:
        with _shown(progress) as show:
            self._native = _pageyard.Trace.open(path, lenient=lenient, progress=show)

    @property
    def name(self) -> str:
        """The trace's path."""
        return self._native.name

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self._native.columns

    @property
    def marks(self) -> list[tuple[int, int, str]]:
        """The marks of the recording script: time in nanoseconds, CPU, text."""
        return self._native.marks

    @property
    def other_events(self) -> int:
        """Number of events of compaction and reclaim, which have no rows here."""
        return self._native.other_events

    @property
    def lost(self) -> int:
        """Number of events that the recorder lost."""
        return self._native.lost

    @property
    def malformed(self) -> tuple[int, list[str]]:
        """Number of malformed parts of a lenient reading, and the first few."""
        return self._native.malformed

    def __len__(self) -> int:
        return len(self._native)

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        return np.asarray(self._native.column(column))

    def words(self, column: str) -> list[str]:
        """Return the words of a column of words (``comm``, ``kind``), by their number."""
        words = self._native.column(column).words
        if words is None:
            raise KeyError(f"column {column!r} has numbers, not words")
        return words

    def __arrow_c_schema__(self) -> object:
        return self._native.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._native.__arrow_c_array__(requested_schema)

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.RecordBatch`` that shares the trace's memory."""
        return need("pyarrow", "Trace.to_arrow", "pandas").record_batch(self)

    def to_pandas(self) -> Any:
        """Return a pandas data frame."""
        need("pandas", "Trace.to_pandas", "pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return a polars data frame."""
        return need("polars", "Trace.to_polars", "polars").DataFrame(self)

    def __repr__(self) -> str:
        return repr(self._native)
