//! The stack that the functions of `pageyard_core.h` use, determined from the machine code of the
//! library that kernels link.
//!
//! Each function's instructions are followed along their jumps, which gives the depth of the stack
//! at each of them; a call adds its return address and the callee's use. The caller's own functions
//! count as nothing: its hooks and locks, and `memcpy`, `memmove`, `memset` and `memcmp`. Any other
//! call through a pointer counts as the deepest function whose address is in data. If a function
//! loads the address of another one into a register, that one counts as called.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use super::install::{core_prefix, prefix, run};
use super::{here, hold_current};

/// Bytes of stack that a function may use.
fn limit(function: &str) -> u32 {
    match function {
        "pageyard_core_create" => 2048,
        // Like pageyard_core_alloc, below two frames of its own.
        "pageyard_core_alloc_bulk" => 1056,
        // Like pageyard_core_alloc, plus its own frame.
        "pageyard_page" | "pageyard_core_alloc_interleaved" | "pageyard_core_alloc_preferring" => {
            1152
        }
        // Like pageyard_core_alloc, below a frame that holds the request.
        "pageyard_core_alloc_with" => 1344,
        // Like pageyard_core_create, plus the memory map.
        "pageyard_kernel_init" => 2560,
        // Each block in the way moves to a block that is allocated as by pageyard_core_alloc.
        "pageyard_core_alloc_contig" | "pageyard_core_offline" => 1472,
        "pageyard_core_alloc_contig_pages" | "pageyard_core_alloc_contig_pages_from" => 2048,
        // Like pageyard_core_alloc_contig_pages, below two frames of its own.
        "pageyard_core_alloc_range_or_scatter" => 2176,
        // Like pageyard_core_alloc, below two frames of its own.
        "pageyard_core_balloon_lend" => 1408,
        // Counts all free lists twice, by order and type.
        "pageyard_core_validate" => 3072,
        // Two lists of 32 blocks: the core's and the hook's.
        "pageyard_core_report_free" => 1280,
        _ => 1024,
    }
}

/// Whether the table also has the stack of a request without `PAGEYARD_DIRECT_RECLAIM`, as made by
/// interrupt handlers.
fn may_not_sleep(function: &str) -> bool {
    let requests = [
        "pageyard_core_alloc",
        "pageyard_core_alloc_on",
        "pageyard_core_alloc_bulk",
        "pageyard_core_alloc_interleaved",
        "pageyard_core_alloc_preferring",
        "pageyard_core_alloc_range_or_scatter",
        "pageyard_core_balloon_lend",
        "pageyard_page",
    ];
    requests.contains(&function)
}

/// Additional bytes that a call on a yard with `pageyard_hooks` may use.
const MORE_WITH_HOOKS: u32 = 512;

/// Functions that only calls on a yard with `pageyard_hooks` reach, as a part of their symbols.
const WITH_HOOKS: &str = "apart";

/// Additional bytes that a call may use in a core with the packed engine, on either engine: a
/// zone's engine is known only at run time.
const MORE_WITH_PACKED: u32 = 2560;

/// The same for a request without `PAGEYARD_DIRECT_RECLAIM`, which does not compact.
const MORE_AWAKE_WITH_PACKED: u32 = 1024;

/// Steps of the slow path that such a request does not execute, as parts of their symbols.
const SLEEPING: [&str; 6] = [
    "16compact_directly",
    "13try_compacted",
    "16reclaim_directly",
    "13out_of_memory",
    "7no_page",
    "8migrated",
];

/// An instruction changes the depth of the stack in a way that is not understood.
#[derive(Debug)]
struct Odd(#[allow(dead_code)] String); // read where `unwrap` prints it

/// One instruction: address, mnemonic, operands, and the symbol of its relocation.
struct Line<'t> {
    at: u64,
    op: &'t str,
    args: &'t str,
    symbol: Option<String>,
}

impl<'t> Line<'t> {
    fn new(text: &'t str) -> Option<Line<'t>> {
        let (at, rest) = text.split_once(":\t")?;
        let at = u64::from_str_radix(at.trim(), 16).ok()?;
        let (code, relocation) = rest.split_once('\t').unwrap_or((rest, ""));
        let symbol = relocation.rsplit_once('\t').map(|(_, symbol)| name(symbol));
        let mut code = code.trim();
        for prefix in ["notrack ", "bnd ", "lock ", "rep ", "repz ", "repnz "] {
            code = code.strip_prefix(prefix).unwrap_or(code);
        }
        let (op, args) = code.split_once(' ').unwrap_or((code, ""));
        Some(Line { at, op, args: args.trim(), symbol })
    }

    /// The target of a jump within the function.
    fn target(&self) -> Option<u64> {
        u64::from_str_radix(self.args.split(' ').next()?, 16).ok()
    }

    fn is_padding(&self) -> bool {
        ["nop", "int3", "ud2", "data16", "cs"].iter().any(|p| self.op.starts_with(p))
            || self.op == "xchg" && self.args == "%ax,%ax"
    }
}

/// The function or datum that a relocation names; the sections of functions are named after them.
fn name(relocation: &str) -> String {
    let name = relocation.trim();
    let name = name.rsplit_once(['+', '-']).map_or(name, |(name, _)| name);
    let name = name.strip_prefix(".text.").unwrap_or(name);
    name.strip_prefix("unlikely.").unwrap_or(name).to_owned()
}

fn hexadecimal(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let n = u64::from_str_radix(digits.strip_prefix("0x")?, 16).ok()? as i64;
    Some(if negative { n.wrapping_neg() } else { n })
}

/// The stack use of one function.
#[derive(Default)]
struct Function {
    /// Its own depth, without calls.
    own: i64,
    /// Calls by name, with the depth at each.
    calls: Vec<(i64, String)>,
    /// The deepest call through a pointer.
    pointer: Option<i64>,
    /// Functions whose addresses it loads.
    takes: BTreeSet<String>,
}

impl Function {
    /// Follows the instructions from the first one.
    fn new(code: &[Line<'_>]) -> Result<Function, Odd> {
        let mut f = Function::default();
        let index: BTreeMap<u64, usize> = code.iter().enumerate().map(|(i, l)| (l.at, i)).collect();
        let mut depths = vec![None; code.len()];
        let mut todo = vec![(0, 0)];
        // The depth at jumps through tables, and the depths that `rbp` and `r11` hold.
        let (mut table, mut rbp, mut probe) = (None::<i64>, None, None);
        loop {
            let Some((mut i, mut depth)) = todo.pop() else {
                // Code that only tables lead to.
                let left =
                    code.iter().zip(&depths).position(|(l, d)| d.is_none() && !l.is_padding());
                let Some(i) = left else { break };
                let depth = table.ok_or_else(|| Odd(format!("{:x} is not reached", code[i].at)))?;
                todo.push((i, depth));
                continue;
            };
            while let Some(line) = code.get(i) {
                if depths[i].is_some_and(|d: i64| d >= depth) {
                    break;
                }
                depths[i] = Some(depth);
                let odd = || Odd(format!("{:x}: {} {}", line.at, line.op, line.args));
                let (op, args) = (line.op, line.args);
                // Below the stack pointer, where no interrupt writes: the red zone.
                if op != "lea"
                    && let Some((before, _)) = args.split_once("(%rsp")
                    && let Some(n) = before.rsplit(',').next().and_then(hexadecimal)
                    && n < 0
                {
                    f.own = f.own.max(depth - n);
                }
                let constant = || args.strip_prefix('$')?.split_once(',').map(|(n, _)| n);
                let value = || constant().and_then(hexadecimal).ok_or_else(odd);
                let next = match op {
                    _ if op.starts_with("push") => depth + 8,
                    "popcnt" => depth,
                    _ if op.starts_with("pop") => depth - 8,
                    "sub" if args.ends_with(",%rsp") => depth + value()?,
                    "add" if args.ends_with(",%rsp") => depth - value()?,
                    // Aligns to a power of two.
                    "and" if args.ends_with(",%rsp") => depth - value()? - 8,
                    "lea" if args.ends_with("(%rsp),%rsp") => {
                        depth - args.split('(').next().and_then(hexadecimal).ok_or_else(odd)?
                    }
                    "mov" if args == "%rsp,%rbp" => {
                        rbp = Some(depth);
                        depth
                    }
                    "mov" if args == "%rbp,%rsp" => rbp.ok_or_else(odd)?,
                    "lea" if args.ends_with("(%rbp),%rsp") => {
                        rbp.ok_or_else(odd)?
                            - args.split('(').next().and_then(hexadecimal).ok_or_else(odd)?
                    }
                    // A loop that touches each page of a large frame.
                    "lea" if args.ends_with("(%rsp),%r11") => {
                        let n = args.split('(').next().and_then(hexadecimal).ok_or_else(odd)?;
                        probe = Some(depth - n);
                        depth
                    }
                    "cmp" if args == "%r11,%rsp" => probe.ok_or_else(odd)?,
                    "cmp" | "test" => depth,
                    _ if args.ends_with(",%rsp") || op == "leave" || op == "enter" => {
                        return Err(odd());
                    }
                    _ => depth,
                };
                f.own = f.own.max(next);
                let through_pointer = args.starts_with('*');
                match op {
                    "call" => {
                        match &line.symbol {
                            Some(symbol) => f.calls.push((depth + 8, symbol.clone())),
                            None if through_pointer => f.pointer = f.pointer.max(Some(depth + 8)),
                            None => return Err(odd()),
                        }
                        f.own = f.own.max(depth + 8);
                    }
                    "jmp" if through_pointer => {
                        // A jump through a table, or a tail call, which leaves no frame.
                        table = table.max(Some(depth));
                        f.pointer = f.pointer.max(Some(depth));
                        break;
                    }
                    _ if op.starts_with('j') => {
                        match &line.symbol {
                            Some(symbol) => f.calls.push((depth, symbol.clone())),
                            // A jump back to touch the next page of a large frame: the final depth
                            // is the same.
                            None if i > 0 && code[i - 1].args == "%r11,%rsp" => {}
                            None => {
                                let to =
                                    line.target().and_then(|at| index.get(&at)).ok_or_else(odd)?;
                                todo.push((*to, depth));
                            }
                        }
                        if op == "jmp" {
                            break;
                        }
                    }
                    "ret" | "ud2" | "int3" => {
                        if op == "ret" && depth != 0 {
                            return Err(odd());
                        }
                        break;
                    }
                    _ => f.takes.extend(line.symbol.clone()),
                }
                (i, depth) = (i + 1, next);
            }
        }
        Ok(f)
    }
}

/// The functions of a library.
struct Code {
    functions: BTreeMap<String, Function>,
    /// Functions whose addresses are in data.
    listed: BTreeSet<String>,
}

impl Code {
    fn read(disassembly: &str, relocations: &str) -> Code {
        let mut functions = BTreeMap::new();
        let (mut of, mut lines) = ("", Vec::new());
        let mut add = |of: &str, lines: &mut Vec<Line<'_>>| {
            if !of.is_empty() {
                let code = std::mem::take(lines);
                let read = Function::new(&code).unwrap_or_else(|e| panic!("{of}: {e:?}"));
                functions.insert(of.to_owned(), read);
            }
        };
        for line in disassembly.lines() {
            let heading = line.strip_suffix(">:").and_then(|l| l.split_once(" <"));
            if let Some((_, name)) = heading {
                add(of, &mut lines);
                of = name;
            } else {
                lines.extend(Line::new(line));
            }
        }
        add(of, &mut lines);
        let (mut listed, mut data) = (BTreeSet::new(), false);
        for line in relocations.lines() {
            if let Some(section) = line.strip_prefix("RELOCATION RECORDS FOR [") {
                data = !section.starts_with(".text");
            }
            let words: Vec<_> = line.split_whitespace().collect();
            if let [_, "R_X86_64_64", symbol] = words[..]
                && data
                && functions.contains_key(&name(symbol))
            {
                listed.insert(name(symbol));
            }
        }
        Code { functions, listed }
    }

    /// The stack use of a call to a function, with its return address but without the calls of some
    /// functions, and the path to it.
    fn total(&self, function: &str, without: &[&str]) -> (i64, Vec<String>) {
        let totals = RefCell::new(BTreeMap::new());
        let (bytes, way) = self.below(function, without, &totals, &mut Vec::new());
        (bytes + 8, way)
    }

    fn below(
        &self,
        function: &str,
        without: &[&str],
        totals: &RefCell<BTreeMap<String, (i64, Vec<String>)>>,
        callers: &mut Vec<String>,
    ) -> (i64, Vec<String>) {
        if let Some(known) = totals.borrow().get(function) {
            return known.clone();
        }
        let Some(f) = self.functions.get(function) else { return (0, Vec::new()) };
        let from = callers.iter().position(|c| c == function);
        assert!(from.is_none(), "recursion: {:?}", &callers[from.unwrap_or(0)..]);
        callers.push(function.to_owned());
        let mut most = (f.own, Vec::new());
        let mut calls: Vec<(i64, &String)> = Vec::new();
        if !without.iter().any(|w| function.contains(w)) {
            calls.extend(f.calls.iter().map(|(depth, of)| (*depth, of)));
            if let Some(depth) = f.pointer {
                calls.extend(self.listed.iter().chain(&f.takes).map(|of| (depth, of)));
            }
        }
        let hooks_left_out = without.contains(&WITH_HOOKS);
        for (depth, of) in calls {
            if hooks_left_out && of.contains(WITH_HOOKS) {
                continue;
            }
            let (bytes, way) = self.below(of, without, totals, callers);
            if depth + bytes > most.0 {
                most = (depth + bytes, way);
            }
        }
        callers.pop();
        most.1.insert(0, format!("{:>6} {function}", f.own));
        totals.borrow_mut().insert(function.to_owned(), most.clone());
        most
    }
}

fn library(prefix: &Path) -> Option<Code> {
    if !pageyard_unmet::program("objdump", "binutils") {
        return None;
    }
    let objdump = |options: &[&str]| {
        run(Command::new("objdump").args(options).arg(prefix.join("lib/libpageyard-core.a")))
    };
    Some(Code::read(&objdump(&["-drw", "--no-show-raw-insn"]), &objdump(&["-r"])))
}

/// Documented depths are rounded up to a multiple of this, so that they do not depend on the
/// compiler.
const STEP: i64 = 128;

#[test]
fn core_functions_stay_within_the_documented_stack() {
    let (Some(code), Some(packed)) = (library(core_prefix()), library(prefix())) else { return };
    for code in [&code, &packed] {
        assert!(
            !code.functions.keys().any(|f| f.contains("4core3fmt")),
            "core::fmt calls through pointers, so its stack use is unknown"
        );
        for name in SLEEPING.into_iter().chain([WITH_HOOKS]) {
            assert!(code.functions.keys().any(|f| f.contains(name)), "no function is {name}");
        }
    }
    let page = std::fs::read_to_string(here().join("../../docs/capi.md")).unwrap();
    let mut table = String::from(
        "| function | bytes | without `PAGEYARD_DIRECT_RECLAIM` | with hooks | `--packed` | \
         `--packed`, without `PAGEYARD_DIRECT_RECLAIM` |\n|---|---|---|---|---|---|\n",
    );
    let mut exceeded = String::new();
    let names: Vec<_> = code.functions.keys().filter(|f| f.starts_with("pageyard_")).collect();
    assert!(names.len() > 25, "{names:?}");
    for function in names {
        let mut cell = |code: &Code, column: usize, without: &[&str], limit: u32| {
            let (bytes, way) = code.total(function, without);
            if bytes > limit.into() {
                writeln!(exceeded, "{function}: {bytes} bytes, of {limit}\n{}", way.join("\n"))
                    .unwrap();
            }
            // A documented depth stays while it is correct and close enough.
            let row = page.lines().find(|l| l.starts_with(&format!("| `{function}` |")));
            let kept = row.and_then(|r| r.split('|').nth(column)?.trim().parse::<i64>().ok());
            let fits = |kept: &i64| (bytes..bytes + 2 * STEP).contains(kept);
            kept.filter(fits).unwrap_or((bytes + STEP - 1) / STEP * STEP).to_string()
        };
        let limit = limit(function);
        let plain = cell(&code, 2, &[WITH_HOOKS], limit);
        let asleep: Vec<_> = SLEEPING.into_iter().chain([WITH_HOOKS]).collect();
        let mut without = |code: &Code, column, limit| match may_not_sleep(function) {
            true => cell(code, column, &asleep, limit),
            false => String::new(),
        };
        let awake = without(&code, 3, limit);
        let packed_awake = without(&packed, 6, limit + MORE_AWAKE_WITH_PACKED);
        let hooked = cell(&code, 4, &[], limit + MORE_WITH_HOOKS);
        let on_packed = cell(&packed, 5, &[WITH_HOOKS], limit + MORE_WITH_PACKED);
        writeln!(
            table,
            "| `{function}` | {plain} | {awake} | {hooked} | {on_packed} | {packed_awake} |"
        )
        .unwrap();
    }
    assert!(exceeded.is_empty(), "more stack than the limits in {}:\n{exceeded}", file!());
    let (before, rest) = page.split_once("<!-- stack -->\n").expect("where the table begins");
    let (_, after) = rest.split_once("<!-- end of stack -->").expect("where the table ends");
    let made = format!("{before}<!-- stack -->\n{table}<!-- end of stack -->{after}");
    hold_current("../../docs/capi.md", &made);
}

/// Machine code with known results.
#[test]
fn depths_are_read_from_the_machine_code() {
    let disassembly = "
0000000000000000 <leaf>:
   0:\tmov    %rdi,-0x18(%rsp)
   5:\tret
0000000000000000 <outer>:
   0:\tpush   %rbx
   1:\ttest   %edi,%edi
   3:\tje     20 <outer+0x20>
   5:\tsub    $0x40,%rsp
   9:\tcall   e <outer+0xe>\ta: R_X86_64_PLT32\t.text.leaf-0x4
   e:\tadd    $0x40,%rsp
  12:\tpop    %rbx
  13:\tjmp    18 <outer+0x18>\t14: R_X86_64_PLT32\t.text.unlikely.large-0x4
  20:\tcall   *%rax
  22:\tpop    %rbx
  23:\tret
0000000000000000 <large>:
   0:\tlea    -0x3000(%rsp),%r11
   8:\tsub    $0x1000,%rsp
   f:\tmovq   $0x0,(%rsp)
  17:\tcmp    %r11,%rsp
  1a:\tjne    8 <large+0x8>
  1c:\tsub    $0x10,%rsp
  20:\tadd    $0x3010,%rsp
  27:\tret
0000000000000000 <round>:
   0:\tsub    $0x8,%rsp
   4:\tcall   9 <round+0x9>\t5: R_X86_64_PLT32\tround-0x4
   9:\tadd    $0x8,%rsp
   d:\tret
";
    let relocations = "RELOCATION RECORDS FOR [.data.rel.ro.steps]:
OFFSET           TYPE              VALUE
0000000000000000 R_X86_64_64       .text.large
";
    let total = |relocations, f: &str| Code::read(disassembly, relocations).total(f, &[]).0;
    assert_eq!(total("", "leaf"), 8 + 0x18);
    assert_eq!(total("", "large"), 8 + 0x3010);
    // The tail call leaves no frame; a call through a pointer is a hook's, which counts as nothing
    // here.
    assert_eq!(total("", "outer"), 8 + 0x3010);
    // If a function's address is in data, such a call may reach it.
    assert_eq!(total(relocations, "outer"), 8 + 8 + 8 + 0x3010);
    let cut = Code::read(disassembly, relocations).total("outer", &["outer"]).0;
    assert_eq!(cut, 8 + 8 + 0x40 + 8, "its own depth");
    let panics = |f: &dyn Fn()| {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_err();
        caught.downcast_ref::<String>().unwrap().clone()
    };
    assert!(panics(&|| _ = total("", "round")).contains("recursion: [\"round\"]"));
    let odd = disassembly.replace("lea    -0x3000(%rsp),%r11", "mov    %rax,%rsp");
    assert!(panics(&|| _ = Code::read(&odd, "")).contains("large: Odd(\"0: mov %rax,%rsp\")"));
}
