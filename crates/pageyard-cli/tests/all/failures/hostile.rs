//! Hostile inputs, full of characters that terminals interpret.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use pageyard_trace::{
    Attachments, Event, Kind, Record, Summary, Tasks, TraceWriter, WriterOptions,
};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::publishing;

/// Escape sequences with one-byte and two-byte introducers, a title, a bell, overrides of
/// bidirectional text, a line end and a return.
pub(crate) const EVIL: &str = "\u{1b}[31m\u{9b}2J\u{1b}]0;t\u{7}\u{202e}\u{2066}\u{7f}\rx\n";
/// The same without a line end, for text inside a line.
pub(crate) const EVIL_LINE: &str = "\u{1b}[31m\u{9b}2J\u{1b}]0;t\u{7}\u{202e}\u{2066}\u{7f}x";

/// The word in command lines that stands for [`EVIL`].
pub(crate) fn evil(word: &str) -> String {
    word.replace("EVIL", EVIL)
}

const STATE: [(&str, &str); 7] = [
    ("before/zoneinfo", "Node 0, zone EVIL\n  pages free 1\n        EVIL  3\n"),
    ("before/buddyinfo", "Node 0, zone EVIL 1 2 3\n"),
    (
        "before/pagetypeinfo",
        "Page block order: 9\nPages per block:  512\n\n\
         Free pages count per migrate type at order 0 1\nNode 0, zone EVIL, type EVIL 1 2\n\n\
         Number of blocks type EVIL\nNode 0, zone EVIL 4\n",
    ),
    ("before/vmstat", "EVIL 1\nb 2\n"),
    ("after/buddyinfo", "EVIL\n"),
    ("after/vmstat", "a 1 EVIL\n"),
    ("after/pagetypeinfo", "EVIL\n"),
];

fn result(policy: &str, seed: u32) -> String {
    let evil = serde_json::Value::from(EVIL).to_string();
    format!(
        "{{\"workload\":{evil},\"parameters\":{{{evil}:{evil}}},\"policy\":{policy},\
         \"world\":{{\"host\":{evil}}},\"seed\":{seed},\"version\":{evil},\"metrics\":[\
         {{\"name\":{evil},\"unit\":{evil},\"better\":\"lower\",\"samples\":[1,2,3,4,5,6]}}]}}"
    )
}

/// Makes all hostile inputs in a folder, under hostile names.
pub(crate) fn make(folder: &Path) {
    let write = |name: &str, text: &[u8]| fs::write(folder.join(evil(name)), text).unwrap();
    let line = |event: &str| format!("{EVIL_LINE}-7 [000] 1.000000100: {event}\n");
    let alloc = "mm_page_alloc: page=0x1 pfn=0x10 order=1 migratetype=0 gfp_flags=0xcc0";
    let good =
        [alloc, &format!("print: tracing_mark_write: {EVIL_LINE}"), &format!("{EVIL_LINE}: a")];
    let text: String = good.iter().map(|e| line(e)).collect();
    write("EVILtrace.txt", text.as_bytes());
    let bad = [
        "mm_page_free: page=0x1 pfn=EVIL order=1",
        "mm_page_alloc: page=0x1 pfn=0x10 order=1 \
               migratetype=0 gfp_flags=EVIL",
    ];
    let bad = bad.map(|e| line(&e.replace("EVIL", EVIL_LINE)));
    write("EVILdamaged.txt", (text + &bad.concat()).as_bytes());
    write("EVILempty.txt", b"");
    write("EVILgarbage", format!("{EVIL_LINE}\n").as_bytes());

    let mut tasks = Tasks::new();
    let task = tasks.intern(7, EVIL);
    let kind = Kind::Alloc { pfn: Some(16), order: 1, migratetype: 0, gfp: 0xcc0 };
    let records = [
        Record::Event(Event { t_ns: 1_000, cpu: 0, task, kind }),
        Record::Mark { t_ns: 1_000, cpu: 0, text: EVIL.into() },
    ];
    for (name, with_state) in [("EVILtrace.pgy", false), ("EVILstate.pgy", true)] {
        let mut files = Attachments::new();
        for (name, text) in STATE.iter().filter(|_| with_state) {
            files.insert(*name, text.replace("EVIL", EVIL_LINE).into_bytes());
        }
        let file = File::create(folder.join(evil(name))).unwrap();
        let mut writer = TraceWriter::new(file, WriterOptions::default()).unwrap();
        writer.attach_all(&files).unwrap();
        records.iter().for_each(|r| writer.write(&tasks, r).unwrap());
        writer.finish(&tasks, &Summary::default()).unwrap();
    }
    fs::write(folder.join(evil("EVILattached.pgy")), pgy(&[attachment(EVIL, b"x")])).unwrap();
    for (name, text) in STATE {
        let path = folder.join(evil("EVILfolder")).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.replace("EVIL", EVIL_LINE)).unwrap();
    }

    let policies = [serde_json::Value::from(EVIL).to_string(), "\"b\"".to_owned()];
    let results = policies.map(|p| result(&p, 1)).join(",");
    write("EVILresults.json", format!("[{results}]").as_bytes());
    write("EVILone.json", result(&serde_json::Value::from(EVIL).to_string(), 1).as_bytes());
    let wrong = result("\"a\"", 1).replacen("\"seed\"", "\"\\u001b]0;t\\u0007\"", 1);
    write("EVILwrong.json", wrong.as_bytes());

    let key = EVIL_LINE.escape_unicode().to_string().replace("\\u{", "\\U{");
    let key: String =
        key.split("\\U{").skip(1).map(|h| format!("\\U{:0>8}", h.trim_end_matches('}'))).collect();
    write("EVILkey.toml", format!("\"{key}\" = 1\n").as_bytes());
    write("EVILvalue.toml", format!("[[node]]\nmemory = [\"{key}\"]\ncpus = \"0\"\n").as_bytes());
    let good = "[[node]]\nmemory = [\"1M..2G\"]\ncpus = \"0\"\n";
    write("EVILgood.toml", good.as_bytes());

    let text = serde_json::Value::from(EVIL).to_string();
    write("EVILop.jsonl", format!("{{\"op\":{text}}}\n").as_bytes());
    let state = include_str!("../../../../../fuzz/seeds/start.json").trim_end();
    write("EVILstate.jsonl", format!("{state}\n{{\"op\":{text},\"got\":[1]}}\n").as_bytes());
    let zone = state.find("\"zone\":\"").unwrap() + 8;
    let end = zone + state[zone..].find('"').unwrap();
    let bad = [&state[..zone], &text[1..text.len() - 1], &state[end..]].concat();
    write("EVILzone.jsonl", bad.as_bytes());
}

/// A number of at most four bytes, in the compact trace's encoding.
fn number(mut n: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while n >= 128 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
    out
}

/// The content of a chunk with a whole attachment.
pub(crate) fn attachment(name: &str, data: &[u8]) -> (u8, Vec<u8>) {
    let name = [number(name.len()), name.as_bytes().to_vec()].concat();
    (1, [name, number(data.len()), number(0), data.to_vec()].concat())
}

/// A compact trace of these chunks and an end chunk, with valid checksums for any content.
pub(crate) fn pgy(chunks: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut out = b"\x89PGY\r\n\x1a\n\x02\0\0\0".to_vec();
    out.extend(crc32fast::hash(&out).to_le_bytes());
    let attached = chunks.iter().filter(|c| c.0 == 1).count();
    let end = (3, [number(0), number(attached), number(0), number(0)].concat());
    for (i, (kind, content)) in chunks.iter().chain([&end]).enumerate() {
        let mut head = b"PGYc".to_vec();
        head.extend([*kind, 0, 0, 0]);
        head.extend((i as u32).to_le_bytes());
        head.extend((content.len() as u32).to_le_bytes());
        head.extend((content.len() as u32).to_le_bytes());
        head.extend(crc32fast::hash(content).to_le_bytes());
        head.extend(crc32fast::hash(&head).to_le_bytes());
        out.extend(head);
        out.extend(content);
    }
    out
}

/// Another process, which publishes a statistics page.
pub(crate) struct Publisher(Child);

impl Publisher {
    /// Publishes this text on `descriptors` descriptors, at most 8.
    pub(crate) fn new(text: &str, descriptors: usize) -> Publisher {
        let length = 40 + text.len() as u64;
        let head: [u64; 5] = [0x7067_7972_6474_6f70, 1, length, 2, text.len() as u64];
        // This process has the page too, until the other one has opened it.
        let _alone = publishing();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(memfd_create("pageyard-stats", flags).unwrap());
        head.iter().for_each(|w| file.write_all(&w.to_ne_bytes()).unwrap());
        file.write_all(text.as_bytes()).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        let more: String = (3..2 + descriptors).map(|fd| format!(" {fd}<&0")).collect();
        let line = format!("exec{more}; echo; exec sleep 1000 >&-");
        let mut sh = Command::new("sh");
        let child = sh.args(["-c", &line]).stdin(file).stdout(Stdio::piped()).spawn();
        drop(sh);
        let mut child = child.unwrap();
        // The child prints a line once it has all of them.
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        Publisher(child)
    }

    pub(crate) fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A statistics page with the given zone kind and map.
pub(crate) fn statistics(kind: &str, map: &str) -> String {
    let stats = pageyard_host::YardStats {
        pid: std::process::id(),
        level: kind.into(),
        zones: vec![pageyard_host::ZoneStatus {
            kind: kind.into(),
            map: map.into(),
            ..Default::default()
        }],
        ..Default::default()
    };
    serde_json::to_string(&vec![stats]).unwrap().trim_matches(['[', ']']).to_owned()
}
