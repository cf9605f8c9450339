//! The binary interface equals its description in `abi/`.
//!
//! The description has everything that compiled programs depend on: symbols and their versions,
//! sonames, signatures, numbers, and offsets of structure fields. It is made from the installed
//! libraries and, for numbers and structures, by a program in C.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::header::made;
use super::install::{prefix, run};
use super::{hold_current, tool};

pub(crate) const HEADERS: [&str; 2] = ["pageyard_core.h", "pageyard.h"];

/// A header without comments and directives.
fn plain(text: &str) -> String {
    let code = text.lines().filter(|l| !l.starts_with('#') && !l.trim_start().starts_with("//"));
    let mut rest: String = code.collect::<Vec<_>>().join("\n");
    while let (Some(from), Some(to)) = (rest.find("/*"), rest.find("*/")) {
        rest.replace_range(from..to + 2, "");
    }
    rest
}

/// The declarations of functions and number types in a header, one per line.
pub(crate) fn declarations(text: &str) -> Vec<String> {
    let mut depth = 0;
    let outside: String = plain(text)
        .replace("extern \"C\" {", "")
        .chars()
        .filter(|&c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth == 0 && c != '}'
        })
        .collect();
    let one_line = |s: &str| s.split_whitespace().collect::<Vec<_>>().join(" ");
    outside.split(';').map(one_line).filter(|d| d.contains('(') || d.contains("int32_t")).collect()
}

/// The structures of a header, with their fields: name and declaration.
fn structures(text: &str) -> Vec<(String, Vec<(String, String)>)> {
    let plain = plain(text);
    let mut found = Vec::new();
    for part in plain.split("typedef struct ").skip(1) {
        let Some((name, rest)) = part.split_once('{') else { continue };
        if name.contains(';') {
            continue; // opaque
        }
        let body = rest.split('}').next().unwrap();
        let field = |f: &str| {
            let f = f.trim();
            let name = match f.split_once("(*") {
                Some((_, pointer)) => pointer.split(')').next()?,
                None => f.split('[').next()?.rsplit([' ', '*']).next()?,
            };
            let declaration = f.split_whitespace().collect::<Vec<_>>().join(" ");
            (!name.is_empty()).then(|| (name.to_owned(), declaration))
        };
        found.push((name.trim().to_owned(), body.split(';').filter_map(field).collect()));
    }
    found
}

fn constants(text: &str) -> Vec<String> {
    let define = |line: &str| {
        let (name, value) = line.strip_prefix("#define ")?.split_once(' ')?;
        (!value.is_empty()).then(|| name.to_owned())
    };
    text.lines().filter_map(define).collect()
}

/// Numbers, sizes and offsets, as the compiler determines them.
fn measured(headers: &[String]) -> String {
    let mut code = String::from("#include <pageyard.h>\n#include <stdio.h>\nint main(void) {\n");
    for text in headers {
        for name in constants(text) {
            writeln!(code, "printf(\"number {name} %lld\\n\", (long long)({name}));").unwrap();
        }
        for (name, fields) in structures(text) {
            assert!(!fields.is_empty(), "{name}");
            writeln!(code, "printf(\"structure {name} size %zu\\n\", sizeof(struct {name}));")
                .unwrap();
            for (f, declaration) in fields {
                writeln!(
                    code,
                    "printf(\"structure {name}.{f} at %zu size %zu: {declaration}\\n\", \
                     offsetof(struct {name}, {f}), sizeof(((struct {name} *)0)->{f}));"
                )
                .unwrap();
            }
        }
    }
    code += "return 0; }\n";
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (directory.join("abi.c"), directory.join("abi"));
    std::fs::write(&source, code).unwrap();
    let include = directory.join("abi-include");
    std::fs::create_dir_all(&include).unwrap();
    for (name, text) in HEADERS.iter().zip(headers) {
        std::fs::write(include.join(name), text).unwrap();
    }
    run(tool("cc").arg("-I").arg(include).arg(&source).arg("-o").arg(&program));
    run(&mut pageyard_unmet::command(program))
}

/// Symbols of a library according to nm, with their versions.
fn symbols(arguments: &[&str], library: &str) -> BTreeSet<String> {
    let said = run(tool("nm").args(arguments).arg(prefix().join("lib").join(library)));
    let name = |line: &str| {
        let mut words = line.split_whitespace().rev();
        let name = words.next()?;
        matches!(words.next()?, "T" | "U" | "D" | "B" | "R").then(|| name.to_owned())
    };
    said.lines().filter_map(name).collect()
}

#[cfg(target_pointer_width = "64")]
#[test]
fn abi_matches_its_description() {
    let headers = HEADERS.map(made);
    let mut made = String::from(
        "# The binary interface of version 0.1, on 64-bit processors. A library with this soname keeps\n\
         # every line but this: structures that begin with struct_size may grow at their ends, and there\n\
         # may be more symbols, in a version of their own, and more numbers.\n",
    );
    let dynamic = run(tool("readelf").arg("-d").arg(prefix().join("lib/libpageyard.so")));
    let soname = dynamic.lines().find_map(|l| l.split_once("soname: [")).expect("a soname").1;
    writeln!(made, "soname {}", soname.trim_end_matches(']')).unwrap();
    for symbol in symbols(&["-D", "--defined-only", "--with-symbol-versions"], "libpageyard.so") {
        writeln!(made, "libpageyard.so has {symbol}").unwrap();
    }
    for symbol in symbols(&["-g", "--defined-only"], "libpageyard.a") {
        writeln!(made, "libpageyard.a has {symbol}").unwrap();
    }
    for symbol in symbols(&["-g", "--defined-only"], "libpageyard-core.a") {
        writeln!(made, "libpageyard-core.a has {symbol}").unwrap();
    }
    for text in &headers {
        for declaration in declarations(text) {
            writeln!(made, "declaration {declaration}").unwrap();
        }
    }
    made += &measured(&headers);
    assert!(made.lines().count() > 250, "{made}");
    hold_current("abi/pageyard-0.1.txt", &made);
}

/// Every declared function is exported, and every exported function is declared.
#[test]
fn every_declared_function_is_exported() {
    let names = |text: &str| -> BTreeSet<String> {
        let name = |d: &String| Some(d.split_once('(')?.0.rsplit([' ', '*']).next()?.to_owned());
        declarations(text).iter().filter_map(name).collect()
    };
    let [core, host] = HEADERS.map(|name| names(&made(name)));
    let versioned = symbols(&["-D", "--defined-only", "--with-symbol-versions"], "libpageyard.so");
    let both: BTreeSet<_> = core.union(&host).map(|n| format!("{n}@@PAGEYARD_0.1")).collect();
    assert_eq!(versioned, both);
    assert_eq!(symbols(&["-g", "--defined-only"], "libpageyard-core.a"), core);
}

/// The four functions that every C environment has, with or without a libc.
#[test]
fn the_core_imports_only_four_functions() {
    let needs = symbols(&["-u"], "libpageyard-core.a");
    let always = ["memcmp", "memcpy", "memmove", "memset"].map(str::to_owned).into();
    assert!(needs.is_subset(&always), "{needs:?}");
}

/// Like `scripts/no-panic.sh` for the core itself. (The standard library's code to print a quoted
/// string contains panics that it never reaches.)
#[test]
fn no_function_of_the_core_level_can_panic() {
    if !pageyard_unmet::program("objdump", "binutils") {
        return;
    }
    let library = prefix().join("lib/libpageyard-core.a");
    let code = run(tool("objdump").args(["-drC", "--no-show-raw-insn"]).arg(library));
    let (mut of, mut functions) = ("", 0);
    for line in code.lines() {
        if line.ends_with(">:") {
            of = line;
            functions += u32::from(of.contains("pageyard"));
        }
        let panics = ["panicking", "unwrap_failed", "expect_failed", "_fail", "capacity_overflow"];
        let calls = (line.contains("R_X86_64") || line.contains("R_AARCH64"))
            && panics.iter().any(|p| line.contains(p));
        assert!(!(calls && of.contains("pageyard")), "{of} {line}");
    }
    assert!(functions > 60, "only {functions} functions seen");
}
