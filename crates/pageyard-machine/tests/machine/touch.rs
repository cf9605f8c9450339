//! The cost of touching pages and descriptors, compared with sums computed by hand.

use pageyard::{CpuId, Gfp, Order, Pfn};
use pageyard_machine::{Costs, Level, Machine, MachineSpec, Options, Touch, spec::Description};

use crate::common::{P, machine, small, with_yard};

/// A core's cache holds 2 pages, the last-level cache 8.
fn tiny() -> Machine {
    let text = "sockets = 1\ncores = 2\nclock_mhz = 1000\nlast_level = '32K'\nprivate = '8K'\n\
                memory = '16M'";
    let spec = Description::from_toml("tiny", text).unwrap().check().unwrap();
    Machine::new(&spec, Options::default())
}

#[test]
fn a_page_costs_by_its_location() {
    let machine = tiny();
    let c = Costs::default();
    let page = Pfn(1 << 20);
    machine
        .run(|s| {
            s.spawn(CpuId(0), move |task| {
                let c = Costs::default();
                let spent = |how, pfn| {
                    let before = task.now();
                    task.touch(pfn, Order::ZERO, how);
                    task.now() - before
                };
                assert_eq!(spent(Touch::Clear, page), 64 * c.clear_miss / 1000);
                assert_eq!(spent(Touch::Clear, page), 64 * c.clear_hit / 1000);
                // 59.52, from 362.88 on
                assert!((59..=60).contains(&spent(Touch::Use, page)));
                for i in 1..=2 {
                    task.touch(Pfn(page.0 + i), Order::ZERO, Touch::Use);
                }
                assert!((156..=157).contains(&spent(Touch::Use, page)), "from the last level");
            });
        })
        .unwrap();
    let stats = machine.stats();
    let wanted = 64
        * (c.clear_miss
            + c.clear_hit
            + c.stream_private
            + 2 * c.stream_memory
            + c.stream_last_level);
    assert_eq!(stats.total().touch, wanted);
    assert_eq!(stats.lines[Level::Memory.index()], 3 * 64);
    assert_eq!(stats.lines.iter().sum::<u64>(), 6 * 64);
    assert_eq!(stats.miss_share(), Some(500_000));
}

#[test]
fn remote_memory_costs_more() {
    let spec = MachineSpec::shipped("2x20").unwrap();
    let machine = Machine::new(&spec, Options { memory: Some(64 << 20), ..Options::default() });
    let layout = machine.memory_layout();
    let far = layout.zones()[1].span.start;
    machine.run(|s| s.spawn(CpuId(0), move |t| t.touch(far, Order::ZERO, Touch::Use))).unwrap();
    let stats = machine.stats();
    assert_eq!(stats.lines[Level::MemoryRemote(21).index()], 64);
    assert_eq!(stats.total().touch, 64 * Costs::default().stream_remote);
}

#[test]
fn memory_of_a_node_serves_requests_in_sequence() {
    // 4 GiB/s: a page takes 953.7 ns, more than the 396.8 of one CPU alone.
    let text = "sockets = 1\ncores = 4\nclock_mhz = 1000\nlast_level = '32K'\nprivate = '8K'\n\
                memory = '16M'\nbandwidth = '4G'";
    let spec = Description::from_toml("slow", text).unwrap().check().unwrap();
    let machine = Machine::new(&spec, Options { look_ahead_ns: 0, ..Options::default() });
    machine
        .run(|s| {
            for cpu in 0..4 {
                s.spawn(CpuId(cpu), move |task| {
                    for i in 0..10 {
                        let pfn = Pfn((1 << 20) + u64::from(cpu) * 10 + i);
                        task.touch(pfn, Order::ZERO, Touch::Use);
                    }
                });
            }
        })
        .unwrap();
    let page = 64 * 14_902;
    assert_eq!(machine.stats().elapsed_ns, 40 * page / 1000);
    // The four tasks end with the 37th, 38th, 39th and 40th page.
    assert_eq!(machine.stats().total().touch, (37 + 38 + 39 + 40) * page);
}

#[test]
fn a_zeroed_request_costs_the_zeroing() {
    let spent = |gfp: Gfp| {
        let machine = small("desktop");
        with_yard::<P, (), _>(&machine, (), |yard| {
            machine
                .run(|s| {
                    s.spawn(CpuId(0), move |_| {
                        yard.alloc(Order::new(2).unwrap(), gfp).unwrap();
                    });
                })
                .unwrap();
        });
        machine.stats().total().touch
    };
    assert_eq!(spent(Gfp::KERNEL), 0);
    assert_eq!(spent(Gfp::KERNEL | Gfp::ZERO), 4 * 64 * Costs::default().clear_miss);
}

/// `bulk_page` is all that a page of a bulk request costs, and no part of a single request.
#[test]
fn a_page_costs_as_a_single_request_or_as_part_of_a_bulk_request() {
    let spent = |bulk: bool, bulk_page| {
        let costs = Costs { bulk_page, ..Costs::default() };
        let options = Options { memory: Some(64 << 20), costs, ..Options::default() };
        let machine = machine("desktop", options);
        with_yard::<P, (), _>(&machine, (), |yard| {
            machine
                .run(|s| {
                    s.spawn(CpuId(0), move |_| {
                        if bulk {
                            yard.alloc_bulk_each(20, Gfp::KERNEL, |_| {}).unwrap();
                        } else {
                            yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
                        }
                    });
                })
                .unwrap();
        });
        machine.stats().total().alloc
    };
    assert_eq!(spent(false, 5000), spent(false, 1000));
    assert_eq!(spent(true, 5000), spent(true, 1000) + 20 * 4000);
}

#[test]
fn larger_descriptors_lengthen_zone_lock_holds() {
    // CPU 0 frees what CPU 1 then allocates: descriptors move between caches under the lock.
    let held = |descriptor| {
        let machine = machine(
            "desktop",
            Options { memory: Some(64 << 20), descriptor, ..Options::default() },
        );
        with_yard::<P, (), _>(&machine, (), |yard| {
            let pages = std::cell::RefCell::new(Vec::new());
            for cpu in 0..2 {
                machine
                    .run(|s| {
                        let pages = &pages;
                        s.spawn(CpuId(cpu), move |_| {
                            for _ in 0..2000 {
                                let pfn = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
                                pages.borrow_mut().push(pfn);
                            }
                            for pfn in pages.borrow_mut().drain(..) {
                                yard.free(pfn, Order::ZERO).unwrap();
                            }
                            yard.drain_cpu(CpuId(cpu), None);
                        });
                    })
                    .unwrap();
            }
        });
        machine.stats().zone_locks().map(|l| l.held).sum::<u64>()
    };
    let (ours, linux) = (held(16), held(64));
    assert!(linux > ours * 5 / 4, "{ours} {linux}");
}
