"""The allocator to experiment with."""

import os
import random
import threading

import numpy as np
import pytest

import pageyard


def test_blocks_are_allocated_and_freed() -> None:
    yard = pageyard.PageAllocator("64M", cpus=2)
    assert yard.pages == 16384 and yard.cpus == 2 and yard.policy == "Linux612"
    block = yard.alloc(order=3, flags="USER|MOVABLE", cpu=1)
    assert yard.first_pfn <= block < yard.first_pfn + yard.pages and block % 8 == 0
    at = block - yard.first_pfn
    states = yard.page_states()
    assert (states[at : at + 8] == yard.STATES.index("allocated")).all()
    assert (states == yard.STATES.index("allocated")).sum() == 8
    yard.free(block, order=3, cpu=1)
    yard.validate()
    # The block is on CPU 1's list now, and CPU 0's is empty.
    assert yard.lists(1)["count"] > 0 and yard.lists(0)["count"] == 0
    yard.drain()
    assert yard.lists(1)["count"] == 0
    assert (yard.page_states() == yard.STATES.index("free")).all()
    assert yard.counters()["free_pages"] == yard.pages


@pytest.mark.parametrize("policy", ["Linux612", "Base", "Vanilla<Base>", "Packed"])
def test_no_page_is_lost_or_given_twice(policy: str) -> None:
    yard = pageyard.PageAllocator("32M", cpus=2, policy=policy)
    draw = random.Random(1)
    owned: dict[int, int] = {}
    taken = np.zeros(yard.pages, dtype=bool)
    for _ in range(3000):
        if owned and draw.random() < 0.48:
            pfn = draw.choice(sorted(owned))
            order = owned.pop(pfn)
            yard.free(pfn, order, cpu=draw.randrange(2))
            taken[pfn - yard.first_pfn :][: 1 << order] = False
        else:
            order = draw.choice([0, 0, 0, 1, 3, 5])
            flags = draw.choice(["KERNEL", "USER|MOVABLE", "KERNEL|RECLAIMABLE"])
            try:
                pfn = yard.alloc(order, flags=flags, cpu=draw.randrange(2))
            except pageyard.NoMemoryError:
                continue
            part = taken[pfn - yard.first_pfn :][: 1 << order]
            assert not part.any(), "a page that has an owner"
            part[:] = True
            owned[pfn] = order
    yard.validate()
    states = yard.page_states()
    held = states == yard.STATES.index("allocated")
    assert np.array_equal(held, taken)
    for pfn, order in owned.items():
        yard.free(pfn, order)
    yard.drain()
    yard.validate()
    assert (yard.page_states() == yard.STATES.index("free")).all()


def test_mistakes_raise_and_change_nothing() -> None:
    yard = pageyard.PageAllocator("16M")
    block = yard.alloc()
    yard.free(block)
    before = yard.text("buddyinfo")
    for wrong in [(block, 0), (block, 3), (0, 0), (2**63, 0)]:
        with pytest.raises(pageyard.FreeError, match="frame 0x"):
            yard.free(*wrong)
    assert yard.text("buddyinfo") == before
    yard.validate()
    with pytest.raises(pageyard.LabError, match="order 11: expected 0 to 10"):
        yard.alloc(11)
    with pytest.raises(pageyard.LabError, match="CPUs 0 to 0"):
        yard.alloc(cpu=1)
    with pytest.raises(pageyard.LabError, match="flag NOPE"):
        yard.alloc(flags="KERNEL|NOPE")
    with pytest.raises(pageyard.LabError, match="both movable and reclaimable"):
        yard.alloc(flags="KERNEL|MOVABLE|RECLAIMABLE")
    with pytest.raises(pageyard.LabError, match="unknown policy"):
        pageyard.PageAllocator(policy="Linux7")
    with pytest.raises(pageyard.LabError, match="one policy"):
        pageyard.PageAllocator(policy="Base,Linux612")
    with pytest.raises(pageyard.LabError, match="memory"):
        pageyard.PageAllocator("0")
    with pytest.raises(pageyard.LabError, match="memory"):
        pageyard.PageAllocator("1000000T")


def test_memory_ends() -> None:
    yard = pageyard.PageAllocator("16M")
    blocks = []
    with pytest.raises(pageyard.NoMemoryError):
        while True:
            blocks.append(yard.alloc(10))
    assert 1 <= len(blocks) <= 4
    yard.validate()


def test_texts_are_those_of_the_kernel() -> None:
    yard = pageyard.PageAllocator("64M")
    assert yard.text().startswith("Node 0, zone   Normal")
    assert "Page block order: 9" in yard.text("pagetypeinfo")
    assert "per-node stats" in yard.text("zoneinfo")
    assert "nr_free_pages 16384" in yard.text("vmstat")
    assert "Normal" in yard.text("show_mem")
    blocks = yard.free_blocks()
    assert blocks.shape == (11, len(yard.TYPES))
    assert (blocks.sum(axis=1) @ (1 << np.arange(11, dtype=np.uint64))) == yard.pages
    with pytest.raises(pageyard.LabError, match="expected buddyinfo"):
        yard.text("meminfo")


def test_knobs_and_ticks() -> None:
    yard = pageyard.PageAllocator("64M", knobs={"min_free_kbytes": 2048})
    assert yard.knob("min_free_kbytes") == "2048"
    assert yard.counters()["watermark_min"] == 512
    with pytest.raises(pageyard.LabError, match="unknown knob"):
        yard.set_knob("nope", 1)
    held = [yard.alloc() for _ in range(3000)]
    for pfn in held:
        yard.free(pfn)
    before = yard.lists()["count"]
    for _ in range(20):
        yard.tick()
    assert yard.lists()["count"] < before, "decay drains the lists"


def test_calls_of_several_threads_are_performed_in_turn() -> None:
    yard = pageyard.PageAllocator("64M", cpus=4)

    def work(cpu: int) -> None:
        for _ in range(500):
            yard.free(yard.alloc(cpu=cpu), cpu=cpu)

    threads = [threading.Thread(target=work, args=(cpu,)) for cpu in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yard.validate()
    assert yard.counters()["allocs"] == yard.counters()["frees"] == 2000


def test_a_forked_process_is_told() -> None:
    yard = pageyard.PageAllocator("16M")
    child = os.fork()
    if child == 0:
        try:
            yard.alloc()
        except RuntimeError as e:
            os._exit(0 if "parent process" in str(e) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
