"""An allocator to experiment with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Optional

import numpy as np

from . import _pageyard
from ._optional import need

if TYPE_CHECKING:
    import numpy.typing as npt


class PageAllocator:
    """A page allocator whose memory exists only as numbers: nothing is mapped or touched.

    The memory is one zone, Normal, which begins at 4 GiB. A block is named by its first frame
    number. Calls may come from any Python thread; they are performed one after another.

    :param memory: size of the memory, such as ``"64M"``
    :param cpus: number of CPUs, each with lists of its own
    :param policy: a policy as for :func:`pageyard.replay`, or ``"Packed"``
    :param knobs: settings as ``pageyard knobs`` lists them, set at the start
    :raises LabError: if an argument is invalid

    >>> yard = PageAllocator("64M")
    >>> block = yard.alloc(order=3)
    >>> yard.free(block, order=3)
    >>> yard.validate()
    """

    #: The names of the states of a page, by their number in :meth:`page_states`.
    STATES: ClassVar[list[str]] = _pageyard.PageAllocator.STATES

    #: The migrate types: the columns of :meth:`free_blocks`.
    TYPES: ClassVar[list[str]] = [
        "unmovable", "movable", "reclaimable", "highatomic", "cma", "isolate",
    ]

    def __init__(
        self,
        memory: str = "64M",
        *,
        cpus: int = 1,
        policy: str = "Linux612",
        knobs: Optional[Mapping[str, object]] = None,
    ) -> None:
        self._native = _pageyard.PageAllocator(memory, cpus=cpus, policy=policy)
        for name, value in (knobs or {}).items():
            self.set_knob(name, value)

    @property
    def policy(self) -> str:
        """The policy's full name."""
        return self._native.policy

    @property
    def cpus(self) -> int:
        """The number of CPUs."""
        return self._native.cpus

    @property
    def first_pfn(self) -> int:
        """The first frame number of the memory."""
        return self._native.first_pfn

    @property
    def pages(self) -> int:
        """The number of pages of the memory."""
        return self._native.pages

    def alloc(self, order: int = 0, *, flags: str = "KERNEL", cpu: int = 0) -> int:
        """Allocate a block of 2**order pages and return its first frame number.

        :param order: 0 to 10
        :param flags: the kernel's flags, joined by ``|``, such as ``"USER|MOVABLE"``
        :param cpu: the CPU that requests
        :raises NoMemoryError: if no block is left that the request may use
        """
        return self._native.alloc(order, flags=flags, cpu=cpu)

    def free(self, pfn: int, order: int = 0, *, cpu: int = 0) -> None:
        """Free a block.

        :raises FreeError: if the block is not allocated with this order; nothing has changed then
        """
        self._native.free(pfn, order, cpu=cpu)

    def tick(self, seconds: float = 1.0, *, cpu: Optional[int] = None) -> None:
        """Advance the clock, and perform the periodic work of one CPU or of all."""
        self._native.tick(seconds, cpu=cpu)

    def drain(self, *, cpu: Optional[int] = None) -> None:
        """Return the pages on the lists of one CPU, or of all, to the zone."""
        self._native.drain(cpu=cpu)

    def validate(self) -> None:
        """Check every structure of the allocator; raise LabError with the first contradiction."""
        self._native.validate()

    def text(self, form: str = "buddyinfo") -> str:
        """Return the state as a file of the kernel prints it.

        :param form: ``buddyinfo``, ``pagetypeinfo``, ``zoneinfo``, ``vmstat`` or ``show_mem``
        """
        return self._native.text(form)

    def free_blocks(self) -> npt.NDArray[np.uint64]:
        """Return the number of free blocks by order (rows) and migrate type (columns)."""
        return np.array(self._native.free_blocks(), dtype=np.uint64)

    def page_states(self) -> npt.NDArray[np.uint8]:
        """Return the state of every page, by its number in :attr:`STATES`."""
        return np.frombuffer(self._native.page_states(), dtype=np.uint8)

    def lists(self, cpu: int = 0) -> dict[str, int]:
        """Return one CPU's lists: their pages (``count``), and the limits that govern them."""
        return self._native.lists(cpu)

    def counters(self) -> dict[str, int]:
        """Return the zone's counters and watermarks."""
        return self._native.counters()

    def knob(self, name: str) -> str:
        """Return a setting (``docs/knobs.md``)."""
        return self._native.knob(name)

    def set_knob(self, name: str, value: object) -> None:
        """Change a setting (``docs/knobs.md``)."""
        self._native.set_knob(name, str(value))

    def plot(self, *, width: int = 128, ax: Any = None) -> Any:
        """Draw the state of every page, ``width`` to a row, with matplotlib; return the axes."""
        if ax is None:
            pyplot = need("matplotlib.pyplot", "PageAllocator.plot", "plot")
            _, ax = pyplot.subplots()
        states = self.page_states()
        grid = np.zeros(-(-len(states) // width) * width, dtype=np.uint8)
        grid[: len(states)] = states
        last = len(self.STATES) - 1
        image = ax.imshow(
            grid.reshape(-1, width), cmap="tab10", vmin=0, vmax=last, interpolation="nearest"
        )
        bar = ax.figure.colorbar(image, ax=ax, ticks=range(last + 1))
        bar.ax.set_yticklabels(self.STATES)
        ax.set_title(repr(self))
        return ax

    def __repr__(self) -> str:
        return repr(self._native)
