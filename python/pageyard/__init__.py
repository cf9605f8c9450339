"""The lab of the pageyard allocator: the Linux page allocator, outside Linux.

- :func:`replay` performs a recorded trace under other policies and settings.
- :func:`run` runs a workload on a simulated machine.
- :func:`conform` compares the allocator with recordings of the real kernel.
- :class:`Trace` gives the events of a trace to NumPy and Arrow without copies.
- :class:`PageAllocator` is an allocator to experiment with.

Long work releases the interpreter lock, ends on Ctrl-C, and shows progress with ``progress=True``.
The book's chapter "Python" (docs/python.md) has examples.
"""

from ._lab import Progress, conform, replay, run
from ._pageyard import (
    FreeError,
    LabError,
    NoMemoryError,
    __version__,
)
from ._play import PageAllocator
from ._results import Conformance, Replay, Runs
from ._trace import Trace
from ._lab import machines, policies, workloads

__all__ = [
    "Conformance",
    "FreeError",
    "LabError",
    "NoMemoryError",
    "PageAllocator",
    "Progress",
    "Replay",
    "Runs",
    "Trace",
    "__version__",
    "conform",
    "machines",
    "policies",
    "replay",
    "run",
    "workloads",
]
