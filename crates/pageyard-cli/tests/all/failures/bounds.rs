//! Limits of an input: memory and time must be proportional to its size. Small files that describe
//! something large are read under limits of the system. The program succeeds, or names the input,
//! what is wrong with it, and the fix.

use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use super::folder::{Folder, words};
use super::hostile::{Publisher, attachment, pgy, statistics};
use crate::PROGRAM;

/// Runs a command line under limits: MiB of address space, seconds of CPU time.
fn limited(folder: &Folder, line: &str, mib: u64, seconds: u64) -> Output {
    let script = format!("ulimit -v {}; ulimit -t {seconds}; exec \"$0\" \"$@\"", mib << 10);
    let mut command = folder.command("sh");
    command.args(["-c", &script, PROGRAM]).args(words(line)).output().unwrap()
}

fn said(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

/// Asserts that the input is refused with an error that contains all of these.
fn refused(folder: &Folder, line: &str, wanted: &[&str]) {
    let o = limited(folder, line, 512, 20);
    let text = said(&o);
    assert_eq!(o.status.code(), Some(2), "{line}: {}: {text}", o.status);
    assert!(text.starts_with("pageyard: ") && text.lines().count() == 1, "{line}: {text}");
    for w in wanted {
        assert!(text.contains(w), "{line}: {w}: {text}");
    }
}

fn succeeds(folder: &Folder, line: &str, mib: u64) -> String {
    let o = limited(folder, line, mib, 60);
    assert_eq!(o.status.code(), Some(0), "{line}: {}: {}", o.status, said(&o));
    String::from_utf8(o.stdout).unwrap()
}

fn write(folder: &Folder, name: &str, bytes: impl AsRef<[u8]>) {
    let path = folder.0.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn compressed(byte: u8, bytes: u64) -> Vec<u8> {
    let mut out = Vec::new();
    zstd::stream::copy_encode(std::io::repeat(byte).take(bytes), &mut out, 1).unwrap();
    out
}

/// A trace of page requests, the last one for the frame `last`.
fn trace(events: u64, last: u64) -> String {
    let pfn = |i: u64| if i + 1 == events { last } else { i % 1000 };
    let line = |i: u64| {
        let (pfn, us) = (pfn(i), 1_000_000 + i);
        format!(
            " t-7 [000] {}.{:06}: mm_page_alloc: page=0x1 pfn={pfn:#x} order=0 migratetype=0 \
             gfp_flags=0xcc0\n",
            us / 1_000_000,
            us % 1_000_000
        )
    };
    (0..events).map(line).collect()
}

/// A zoneinfo with one zone for each node, given by first frame and length, and `cpus` CPUs.
fn zoneinfo(zones: &[(u64, u64)], cpus: u32) -> String {
    let mut out = String::new();
    for (node, (start, pages)) in zones.iter().enumerate() {
        out += &format!(
            "Node {node}, zone   Normal\n  pages free     {pages}\n        boost    0\n        min      \
             0\n        low      0\n        high     0\n        spanned  {pages}\n        present  \
             {pages}\n        managed  {pages}\n        cma      0\n        protection: (0, 0, 0, 0, \
             0)\n      nr_free_pages {pages}\n  pagesets\n    cpu: {}\n              count: 0\n              \
             high:  0\n              batch: 1\n  vm stats threshold: 1\n  node_unreclaimable:  0\n  \
             start_pfn:           {start}\n",
            cpus - 1
        );
    }
    out
}

#[test]
fn a_short_trace_of_a_large_machine_is_rejected() {
    let folder = Folder::bare();
    write(&folder, "high.txt", trace(1, 0xfff_ff00));
    let wanted = [
        "pageyard: high.txt: the machine spans 1 TiB, up to frame 0xfffffff",
        "the limit for a trace of 1 events is 256.0 MiB",
        ". If the machine is this large, ",
        "--memory 1024G",
    ];
    refused(&folder, "replay high.txt", &wanted);
    refused(&folder, "replay high.txt --explain --record --jobs 8", &wanted);
    refused(&folder, "replay high.txt --on machine:desktop --policy Base", &wanted);
    refused(&folder, "show high.txt --as page_owner", &wanted);
    // The error offers two fixes: the event is wrong, or the machine is that large, which then hits
    // a limit of the system.
    succeeds(&folder, "replay high.txt --memory 1G --lenient", 512);
    let wanted = ["out of memory: cannot allocate ", "raise the memory limit (ulimit -v)"];
    refused(&folder, "replay high.txt --memory 1T", &wanted);
}

#[test]
fn a_longer_trace_allows_a_larger_machine() {
    let folder = Folder::bare();
    let last = (60 << 30) / 4096;
    write(&folder, "short.txt", trace(10, last));
    refused(&folder, "replay short.txt", &["short.txt: the machine spans 60.1 GiB"]);
    // One run at a time fits into memory.
    write(&folder, "long.txt", trace(9_000, last));
    let text = succeeds(&folder, "replay long.txt --seeds 1 --jobs 0", 768);
    assert!(text.starts_with("replay of long.txt: "), "{text}");
    let text = succeeds(&folder, "replay short.txt --seeds 1 --memory 61G", 768);
    assert!(text.starts_with("replay of short.txt: "), "{text}");
}

#[test]
fn a_machine_from_state_files_is_bounded() {
    let folder = Folder::bare();
    write(&folder, "trace.txt", trace(1, 16));
    write(&folder, "before/zoneinfo", zoneinfo(&[(0, 1 << 28)], 1));
    refused(&folder, "replay trace.txt", &["trace.txt: the machine spans 1 TiB", "zoneinfo"]);
    // Many CPUs in many zones: each takes a few bytes of the file and a few thousand bytes of
    // memory.
    let zones: Vec<(u64, u64)> = (0..60).map(|i| (i * 1024, 1024)).collect();
    write(&folder, "before/zoneinfo", zoneinfo(&zones, 4096));
    refused(&folder, "replay trace.txt", &["trace.txt: the machine spans 240 MiB", "tables"]);
    refused(&folder, "replay trace.txt --record", &["tables"]);
    // A little memory at a high address: the simulated caches have entries from address 0 on.
    write(&folder, "before/zoneinfo", zoneinfo(&[(1 << 50, 4096)], 1));
    let line = "replay trace.txt --lenient --policy Base --on machine:desktop";
    refused(&folder, line, &["trace.txt: the machine spans 16 MiB, up to frame 0x4000000000fff"]);
}

#[test]
fn compressed_state_files_are_bounded_together() {
    let folder = Folder::bare();
    let packed = compressed(0, 300 << 20);
    assert!(packed.len() < 100_000);
    write(&folder, "trace.txt", trace(1, 16));
    for name in ["before/zoneinfo", "before/vmstat", "pfnmap.before", "pfnmap.after"] {
        write(&folder, &format!("{name}.zst"), &packed);
    }
    let wanted = [".zst: the state files: ", "bytes expand to more than", "decompress it"];
    for line in [
        "replay trace.txt",
        "show trace.txt --as vmstat",
        "trace import trace.txt out.pgy",
        "show trace.txt --as page_owner",
    ] {
        refused(&folder, line, &wanted);
    }
    // The same for a trace.
    write(&folder, "line.txt.zst", compressed(b'x', 300 << 20));
    refused(&folder, "trace info line.txt.zst", &["line.txt.zst: line 1: "]);
    let lines = trace(1, 16).repeat(1_000_000);
    write(&folder, "lines.zst", zstd::bulk::compress(lines.as_bytes(), 1).unwrap());
    let wanted = ["lines.zst: line ", "the compressed stream: ", "expand to more"];
    refused(&folder, "trace info lines.zst", &wanted);
    refused(&folder, "replay lines.zst --state .", &[".zst"]);
    succeeds(&folder, "trace info lines.zst --lenient", 512);
}

#[test]
fn many_attachments_and_names_take_linear_time() {
    let folder = Folder::bare();
    let many: Vec<_> = (0..80_000).map(|i| attachment(&format!("a{i}"), b"")).collect();
    write(&folder, "attached.pgy", pgy(&many));
    refused(&folder, "trace info attached.pgy", &["attached.pgy: chunk 0", "`a0`"]);
    succeeds(&folder, "trace info attached.pgy --lenient", 512);

    let line = |i| format!(" t{i}-7 [000] 1.000000000: mm_page_free: page=0x1 pfn=0x1 order=0\n");
    write(&folder, "names.txt", (0..300_000).map(line).collect::<String>());
    let o = limited(&folder, "trace info names.txt", 512, 20);
    assert_eq!(o.status.code(), Some(0), "{}: {}", o.status, said(&o));
}

#[test]
fn damaged_parts_take_linear_time() {
    let folder = Folder::bare();
    // Chunk headers that each claim all remaining bytes, with damaged content.
    let heads = 100_000;
    let mut bytes = pgy(&[])[..16].to_vec();
    for i in 0..heads {
        let rest = (heads - i - 1) * 28;
        let mut head = b"PGYc\x02\0\0\0".to_vec();
        head.extend((i as u32).to_le_bytes());
        head.extend((rest as u32).to_le_bytes());
        head.extend((rest as u32).to_le_bytes());
        head.extend([1, 2, 3, 4]);
        head.extend(crc32fast::hash(&head).to_le_bytes());
        bytes.extend(head);
    }
    write(&folder, "heads.pgy", &bytes);
    refused(&folder, "trace info heads.pgy", &["heads.pgy: chunk 0", "checksum"]);
    succeeds(&folder, "trace info heads.pgy --lenient", 512);

    // Any of the dashes may precede the pid.
    let line = "-1[0]x".repeat(10_000) + "\n";
    write(&folder, "dashes.txt", line.repeat(100));
    refused(&folder, "trace info dashes.txt", &["dashes.txt: line 1: "]);
    succeeds(&folder, "trace info dashes.txt --lenient", 512);
}

#[test]
fn recordings_and_results_are_bounded() {
    let folder = Folder::bare();
    let state = include_str!("../../../../../fuzz/seeds/start.json");
    write(&folder, "bulk.jsonl", format!("{state}{}", "{\"op\":\"F 0 1048576\"}\n".repeat(1000)));
    refused(&folder, "conform bulk.jsonl", &["bulk.jsonl, line ", "too many slots or pages"]);
    let mut blank = state.as_bytes().to_vec();
    blank.resize(100 << 20, b'\n');
    write(&folder, "blank.jsonl.zst", zstd::bulk::compress(&blank, 1).unwrap());
    refused(&folder, "conform blank.jsonl.zst", &["blank.jsonl.zst, line ", "expand to more"]);
    refused(&folder, "show blank.jsonl.zst --as buddyinfo --line 999999999", &["expand to more"]);

    let result = |i: usize| {
        format!(
            "{{\"workload\":\"w{i}\",\"parameters\":{{}},\"policy\":\"p\",\"world\":{{\"host\":\"h\"}},\
             \"seed\":1,\"version\":\"1\",\"metrics\":[{{\"name\":\"m\",\"unit\":\"\",\
             \"better\":\"lower\",\"samples\":[1]}}]}}"
        )
    };
    let many: Vec<String> = (0..20_000).map(result).collect();
    write(&folder, "many.json", format!("[{}]", many.join(",")));
    let o = limited(&folder, "compare many.json --form series --csv", 512, 20);
    assert_eq!(o.status.code(), Some(0), "{}: {}", o.status, said(&o));
}

#[test]
fn descriptions_are_bounded() {
    let folder = Folder::bare();
    let node = "[[node]]\nmemory = [\"1M..2G\"]\n";
    write(&folder, "cpus.toml", format!("{node}cpus = \"{}\"\n", ["0-4095"; 20_000].join(",")));
    refused(&folder, "topology cpus.toml", &["cpus.toml: node 0: CPUs 0-4095: duplicates"]);
    let range = |i| format!("\"{}M..{}M\"", 2 * i + 1, 2 * i + 2);
    let ranges: Vec<String> = (0..30_000).map(range).collect();
    write(
        &folder,
        "ranges.toml",
        format!("[[node]]\ncpus = \"0\"\nmemory = [{}]\n", ranges.join(",")),
    );
    refused(&folder, "topology ranges.toml", &["ranges.toml: the machine: 30000 ranges of memory"]);
    // Files without an end.
    for line in ["topology /dev/zero", "compare /dev/zero"] {
        refused(&folder, line, &["/dev/zero", "more than "]);
    }
    // An invalid argument is reported in the form of the library that parses it.
    let o = limited(&folder, "run unix --on machine:/dev/zero", 512, 20);
    assert_eq!(o.status.code(), Some(2), "{}", said(&o));
    assert!(said(&o).contains("/dev/zero: more than 1048576 bytes"), "{}", said(&o));
}

#[test]
fn statistics_of_another_process_are_bounded() {
    let folder = Folder::bare();
    let large = Publisher::new(&statistics("Normal", &"U".repeat(17 << 20)), 1);
    for form in ["--json", "--once"] {
        let line = format!("top {} {form}", large.pid());
        refused(&folder, &line, &["/fd/", "longer than 16 MiB"]);
    }
    // One page on several descriptors counts once.
    let same = Publisher::new(&statistics("Normal", &"U".repeat(8 << 20)), 8);
    let text = succeeds(&folder, &format!("top {} --json", same.pid()), 256);
    assert!((8 << 20..9 << 20).contains(&text.len()), "{}", text.len());
}

/// With any amount of memory in which it can start, the program exits by itself and leaves no incomplete file.
#[test]
fn out_of_memory_is_reported_as_an_error() {
    let folder = Folder::new();
    let before = folder.listing();
    let (mut done, mut ended) = (0, 0);
    // Below, the loader fails, or the system that cannot let the first thread's stack grow ends the program.
    let starts = |&mib: &u64| limited(&folder, "--version", mib, 60).status.success();
    let limits: Vec<u64> = [28, 32, 38, 48, 100, 200].into_iter().filter(starts).collect();
    for line in [
        "replay SAMPLE --seeds 1 --policy Linux612 --html out",
        "trace import SAMPLE out",
        "trace info SAMPLE --json",
        "show SAMPLE --as page_owner --json",
        "compare results.json again.json --html out",
        "conform ORACLE",
        "topology eight-sockets --json",
    ] {
        for &mib in &limits {
            let o = limited(&folder, line, mib, 60);
            let text = said(&o);
            match o.status.code() {
                Some(0) => done += 1,
                Some(2) => {
                    ended += 1;
                    let named = text.starts_with("pageyard: ") || text.starts_with("warning: ");
                    assert!(named && text.contains("pageyard"), "{line}: {mib} MiB: {text}");
                    assert_eq!(folder.listing(), before, "{line}: {mib} MiB: {text}");
                }
                _ => panic!("{line}: {mib} MiB: {} ({:?}): {text}", o.status, o.status.signal()),
            }
            let _ = fs::remove_file(folder.0.join("out"));
        }
    }
    assert!(done > 10 && ended > 10, "{done} {ended}: the limits are too wide or too narrow");
}
