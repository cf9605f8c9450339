//! The headers in `include/` equal what cbindgen generates from the sources.

use std::path::Path;

use super::install::run;
use super::{here, hold_current, tool};

/// The parts of a header: guard, includes, introduction, sources in order.
struct Header {
    name: &'static str,
    guard: &'static str,
    includes: &'static [&'static str],
    introduction: &'static str,
    sources: &'static [&'static str],
}

const HEADERS: [Header; 2] = [
    Header {
        name: "pageyard_core.h",
        guard: "PAGEYARD_CORE_H",
        includes: &["stdint.h", "stddef.h"],
        introduction: "\
/*
 * Pageyard, the page allocator of Linux as a library: the bare core.
 *
 * For kernels, hypervisors and unikernels: bring your own memory, locks, CPU number and clock. The
 * library libpageyard-core.a needs no libc but memcpy, memmove, memset and memcmp, as every C
 * compiler does. The library libpageyard has the same functions.
 *
 * Made from the Rust sources by cbindgen; do not edit. Licence: MIT or Apache-2.0.
 *
 * Every function says what it does, its errors, which threads may call it, and who owns what. What
 * holds for all: a function never unwinds; a pointer that a comment does not call optional is not
 * null (which is an error where it is) and is to what its type says (which cannot be checked).
 *
 * Needs stdint.h and stddef.h, which every compiler has without a libc. With PAGEYARD_NO_STDINT
 * defined it includes neither: the program has defined int32_t, int64_t, uint8_t, uint16_t, uint32_t,
 * uint64_t and size_t before.
 */",
        sources: &[
            "../pageyard-capi-core/src/status.rs",
            "../pageyard-capi-core/src/flags.rs",
            "../pageyard-capi-core/src/engine.rs",
            "../pageyard-capi-core/src/lock/functions.rs",
            "../pageyard-capi-core/src/events.rs",
            "../pageyard-capi-core/src/hooks.rs",
            "../pageyard-capi-core/src/platform.rs",
            "../pageyard-capi-core/src/knobs.rs",
            "../pageyard-capi-core/src/layout.rs",
            "../pageyard-capi-core/src/handle.rs",
            "../pageyard-capi-core/src/create.rs",
            "../pageyard-capi-core/src/kernel.rs",
            "../pageyard-capi-core/src/page.rs",
            "../pageyard-capi-core/src/request.rs",
            "../pageyard-capi-core/src/nodes.rs",
            "../pageyard-capi-core/src/place.rs",
            "../pageyard-capi-core/src/nowait.rs",
            "../pageyard-capi-core/src/shootdown.rs",
            "../pageyard-capi-core/src/balloon.rs",
            "../pageyard-capi-core/src/maintain.rs",
            "../pageyard-capi-core/src/stats.rs",
            "../pageyard-capi-core/src/text.rs",
        ],
    },
    Header {
        name: "pageyard.h",
        guard: "PAGEYARD_H",
        includes: &["pageyard_core.h"],
        introduction: "\
/*
 * Pageyard, the page allocator of Linux as a library: real memory on Linux.
 *
 * For buffer pools, storage engines, virtual machine monitors, runtimes: blocks of 4 KiB to 4 MiB,
 * by address. Status numbers and flags are in pageyard_core.h.
 *
 * Made from the Rust sources by cbindgen; do not edit. Licence: MIT or Apache-2.0.
 *
 * Every function says what it does, its errors, which threads may call it, and who owns what. What
 * holds for all: a function never unwinds; a pointer that a comment does not call optional is not
 * null (which is an error where it is) and is to what its type says (which cannot be checked).
 */",
        sources: &[
            "src/options.rs",
            "src/handle.rs",
            "src/last_error.rs",
            "src/request.rs",
            "src/memory.rs",
            "src/upkeep.rs",
            "src/watch.rs",
        ],
    },
];

fn generate(header: &Header) -> String {
    let config = cbindgen::Config {
        language: cbindgen::Language::C,
        style: cbindgen::Style::Both,
        cpp_compat: true,
        no_includes: true,
        header: Some(header.introduction.into()),
        include_guard: Some(header.guard.into()),
        documentation_style: cbindgen::DocumentationStyle::C99,
        usize_is_size_t: true,
        line_length: 100,
        tab_width: 4,
        ..cbindgen::Config::default()
    };
    let mut builder = cbindgen::Builder::new().with_config(config);
    for include in header.includes {
        builder = if include.starts_with("pageyard") {
            builder.with_include(include)
        } else {
            builder.with_sys_include(include)
        };
    }
    for source in header.sources {
        builder = builder.with_src(here().join(source));
    }
    let mut text = Vec::new();
    builder.generate().expect("cbindgen understands the sources").write(&mut text);
    let text = String::from_utf8(text).expect("a header is text");
    let includes = "#include <stdint.h>\n#include <stddef.h>\n";
    text.replace(includes, &format!("#ifndef PAGEYARD_NO_STDINT\n{includes}#endif\n"))
}

/// A header, generated from the sources.
pub(crate) fn made(name: &str) -> String {
    generate(HEADERS.iter().find(|h| h.name == name).expect("one of the headers"))
}

#[test]
pub(crate) fn headers_are_current() {
    for header in &HEADERS {
        hold_current(&format!("include/{}", header.name), &generate(header));
    }
}

/// A kernel with its own integer types needs no header.
#[test]
fn the_core_header_needs_no_other_with_no_stdint() {
    let program = "
        typedef signed int int32_t;
        typedef signed long long int64_t;
        typedef unsigned char uint8_t;
        typedef unsigned short uint16_t;
        typedef unsigned int uint32_t;
        typedef unsigned long long uint64_t;
        typedef __SIZE_TYPE__ size_t;
        #define PAGEYARD_NO_STDINT
        #include <pageyard_core.h>
        pageyard_status page(pageyard_core *yard, uint64_t *pfn) {
            return pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, pfn);
        }";
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-stdint.c");
    std::fs::write(&file, program).unwrap();
    let mut cc = tool("cc");
    cc.args(["-nostdinc", "-ffreestanding", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]);
    run(cc.arg("-I").arg(here().join("include")).arg(&file));
}

/// Every function's comment states its errors, its threads, and the ownership of its arguments.
#[test]
fn every_function_is_documented() {
    for header in &HEADERS {
        let text = generate(header);
        let (mut comment, mut functions) = (String::new(), 0);
        for line in text.lines() {
            if line.trim_start().starts_with("//") {
                comment += line;
                continue;
            }
            if line.starts_with("pageyard_status pageyard_") {
                functions += 1;
                for part in [
                    "Errors: PAGEYARD_ERR|Errors: as ",
                    "Threads: |Threads, owner: ",
                    "Owner: |owner: ",
                ] {
                    let said = part.split('|').any(|words| comment.contains(words));
                    assert!(said, "{}: no {part} in the comment of {line}", header.name);
                }
            }
            comment.clear();
        }
        assert!(functions > 15, "{}: only {functions} functions seen", header.name);
    }
}
