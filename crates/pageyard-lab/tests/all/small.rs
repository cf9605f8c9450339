//! Small forms of all workloads.

/// Parameters that make a workload small.
pub(crate) fn small(name: &str) -> Vec<(String, String)> {
    let set: &[(&str, &str)] = match name {
        "micro" => &[("orders", "1"), ("rounds", "3"), ("blocks", "64")],
        "trunc" => &[("files", "2"), ("pages", "3000")],
        "page_fault1" => &[("processes", "1,4"), ("pages", "3000")],
        "batch" => &[("batches", "63,511"), ("pages", "16000")],
        "kbuild" => &[("objects", "1"), ("work", "2000"), ("warm", "1")],
        "sctp" => &[("pairs", "2"), ("messages", "2000")],
        "unix" => &[("pairs", "2"), ("writes", "1000")],
        "memcached" => &[("pairs", "2"), ("seconds", "1")],
        "hackbench" => &[("groups", "2"), ("loops", "20")],
        "tbench" => &[("requests", "500")],
        "stream" => &[("mib", "16")],
        "sysbench" => &[("cache", "2000"), ("reads", "2000")],
        "llfree-bulk" | "llfree-repeat" | "llfree-rand" => &[("pages", "20000"), ("rounds", "2")],
        "llfree-frag" => &[("pages", "60000"), ("rounds", "3")],
        "deferred" => &[("objects", "1"), ("work", "2000"), ("warm", "1")],
        "thp" => &[
            ("pages", "120000"),
            ("jobs", "1"),
            ("rounds", "2"),
            ("objects", "1"),
            ("work", "100"),
        ],
        "trace" => &[
            ("trace", concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/kbuild.pgy")),
            ("events", "20000"),
        ],
        _ => panic!("a workload without a small form: {name}"),
    };
    set.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
}
