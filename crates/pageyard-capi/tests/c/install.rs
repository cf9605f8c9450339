//! The libraries, installed once for all tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::here;

/// The script, for the host library that these tests depend on: cargo has put it beside this program,
/// with a hash in its name. Among those of other features the newest is of the current sources.
fn with_library() -> Command {
    let program = std::env::current_exe().unwrap();
    let files = std::fs::read_dir(program.parent().unwrap()).unwrap().map(|file| file.unwrap());
    let libraries = files.filter(|file| {
        let name = file.file_name().into_string().unwrap_or_default();
        name.starts_with("libpageyard_capi-") && name.ends_with(".a")
    });
    let newest = libraries.max_by_key(|file| file.metadata().unwrap().modified().unwrap());
    let mut script = script();
    script.arg("--packed").arg("--library").arg(newest.expect("cargo has built it").path());
    script
}

fn script() -> Command {
    let mut script = Command::new(here().join("../../scripts/install-capi.sh"));
    if pageyard_unmet::is_emulated() {
        script.arg("--target").arg(format!("{}-unknown-linux-gnu", std::env::consts::ARCH));
        for (variable, name) in [("CC", "cc"), ("LD", "ld"), ("AR", "ar"), ("OBJCOPY", "objcopy")] {
            script.env(variable, super::tool(name).get_program());
        }
    }
    // The variables that cargo sets for tests are not meant for the cargo in the script.
    for (name, _) in std::env::vars_os() {
        let of_package = name.to_string_lossy().starts_with("CARGO_PKG_");
        if of_package || name == "CARGO_MANIFEST_DIR" {
            script.env_remove(name);
        }
    }
    script
}

/// The folder into which the script installs the libraries.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        if std::env::var_os("PAGEYARD_RENEW").is_some() {
            // Update the headers first, because they are installed.
            super::header::headers_are_current();
        }
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi");
        let _ = std::fs::remove_dir_all(&prefix);
        // The core's programs run on both engines.
        install(with_library().arg(&prefix));
        prefix
    })
}

/// The folder with only the bare core, without the packed engine, which is the default.
pub(crate) fn core_prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = self::prefix().with_extension("core-default");
        let _ = std::fs::remove_dir_all(&prefix);
        install(script().arg("--core-only").arg(&prefix));
        prefix
    })
}

/// Runs the script. It builds for each choice of options into one file of the target folder and
/// copies that, so only one runs at a time.
fn install(command: &mut Command) -> String {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    run(command)
}

/// Runs a command that must succeed. Returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let shown = format!("{command:?}");
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|e| panic!("{shown}: {e}"));
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{shown}: {status}\n{out}{err}");
    out.into_owned()
}

#[test]
fn every_file_is_installed() {
    for file in [
        "include/pageyard.h",
        "include/pageyard_core.h",
        "lib/libpageyard.so",
        "lib/libpageyard.so.0",
        "lib/libpageyard.so.0.1.0",
        "lib/libpageyard.a",
        "lib/libpageyard-core.a",
        "lib/pkgconfig/pageyard.pc",
        "lib/pkgconfig/pageyard-core.pc",
        "lib/cmake/pageyard/pageyardConfig.cmake",
        "lib/cmake/pageyard/pageyardConfigVersion.cmake",
        "share/doc/pageyard/examples/buffer_pool.c",
        "share/doc/pageyard/examples/freestanding.c",
    ] {
        let path = prefix().join(file);
        assert!(path.exists(), "{}", path.display());
        if path.extension().is_some_and(|e| e == "pc" || e == "cmake") {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(!text.contains('@'), "a placeholder is not filled in: {text}");
        }
    }
}

/// Debian's folder for libraries is two folders deep, and `/lib` is a link to `/usr/lib` there.
#[test]
fn libraries_go_where_libdir_says() {
    let prefix = self::prefix().with_extension("libdir");
    let _ = std::fs::remove_dir_all(&prefix);
    install(with_library().args(["--libdir", "lib/multi-arch"]).arg(&prefix));
    let libraries = prefix.join("lib/multi-arch");
    assert!(libraries.join("libpageyard.so.0").exists());
    for file in std::fs::read_dir(prefix.join("lib")).unwrap() {
        assert_eq!(file.unwrap().file_name(), "multi-arch", "nothing else is in lib");
    }
    for file in ["pageyard.pc", "pageyard-core.pc"] {
        let text = std::fs::read_to_string(libraries.join("pkgconfig").join(file)).unwrap();
        assert!(text.contains("libdir=${prefix}/lib/multi-arch\n"), "{text}");
    }
    let package = libraries.join("cmake/pageyard");
    let text = std::fs::read_to_string(package.join("pageyardConfig.cmake")).unwrap();
    let (_, up) = text.split_once("${CMAKE_CURRENT_LIST_DIR}/").unwrap();
    let found = package.join(up.split_once('"').unwrap().0).canonicalize().unwrap();
    assert_eq!(found, prefix.canonicalize().unwrap());
    assert!(text.contains("}/lib/multi-arch/libpageyard.a\""), "{text}");
}

#[test]
fn mistakes_are_named() {
    let refused = |arguments: &[&str]| {
        let output = script().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&["usr"]).contains("PREFIX must be an absolute path: usr"));
    assert!(refused(&["/a", "/b"]).contains("/b"));
    assert!(refused(&["--prefix", "/a"]).contains("--prefix"));
    assert!(refused(&["--profile"]).contains("--profile"));
    assert!(
        refused(&["--library", "no.a", "/a"]).contains("--library no.a: there is no such file")
    );
    assert!(refused(&["--opt-level", "2", "/a"]).contains("s or 3, not 2"));
    assert!(refused(&["--cpu-at", "0x8", "/a"]).contains("such as 8, not 0x8"));
    assert!(refused(&["--libdir", "/usr/lib64", "/a"]).contains("not /usr/lib64"));
    assert!(refused(&["--libdir", "lib/../..", "/a"]).contains("not lib/../.."));
    assert!(refused(&["/a b"]).contains("blanks"));
    assert!(refused(&[]).contains("PREFIX"));
}

/// The core alone, built for size: no other file is installed, and four functions with their
/// dependencies stay within the size that docs/capi.md states.
#[test]
fn the_core_alone_is_small() {
    if !cfg!(target_arch = "x86_64") || pageyard_unmet::is_emulated() {
        return; // The size is stated for x86-64 only.
    }
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi-core");
    let _ = std::fs::remove_dir_all(&prefix);
    let options = "--core-only --opt-level s --without-hooks --without-text --without-relocate \
                   --interrupt-lock --cpu-at 8";
    let options = options.split_whitespace();
    let said = install(script().args(options).arg(&prefix));
    assert!(said.contains(".text : { *(.text .text.*) }"), "{said}");
    let (library, header) = ("lib/libpageyard-core.a", "include/pageyard_core.h");
    let example = "share/doc/pageyard/examples/freestanding.c";
    for file in [library, header, example] {
        assert!(prefix.join(file).exists(), "{file}");
    }
    assert!(!prefix.join("lib/libpageyard.a").exists(), "only the core");
    let symbols = run(super::tool("nm").arg("-g").arg(prefix.join(library)));
    assert!(symbols.contains("pageyard_core_alloc") && !symbols.contains("pageyard_core_text"));
    let program = "
        #include <pageyard_core.h>
        pageyard_layout layout;
        void *memcpy(void *to, const void *from, size_t n) { (void)from; (void)n; return to; }
        void *memmove(void *to, const void *from, size_t n) { (void)from; (void)n; return to; }
        void *memset(void *to, int c, size_t n) { (void)c; (void)n; return to; }
        int memcmp(const void *a, const void *b, size_t n) { (void)a; (void)b; return (int)n; }
        void _start(void) {
            size_t bytes;
            uint64_t pfn;
            pageyard_core *yard;
            pageyard_core_room(&layout, &bytes);
            pageyard_core_create(&layout, NULL, &layout, bytes, &yard, NULL, 0);
            pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, &pfn);
            pageyard_core_free(yard, pfn, 0);
        }";
    let file = prefix.join("small.c");
    std::fs::write(&file, program).unwrap();
    let linked = prefix.join("small");
    let mut cc = super::tool("cc");
    cc.args(["-O2", "-ffreestanding", "-fno-builtin", "-nostdlib", "-static", "-no-pie"]);
    cc.args(["-fno-pie", "-Wl,--gc-sections", "-I"]).arg(prefix.join("include")).arg(&file);
    run(cc.arg(prefix.join(library)).arg("-o").arg(&linked));
    let sizes = run(super::tool("size").arg("-A").arg(&linked));
    let text = sizes.lines().find_map(|l| l.strip_prefix(".text")?.split_whitespace().next());
    let text: u64 = text.unwrap().parse().unwrap();
    assert!((10 << 10..64 << 10).contains(&text), "{text} bytes of text\n{sizes}");
    the_packed_engine_is_refused(&prefix);
    functions_that_it_does_without_are_refused(&prefix);
}

/// Returns what a program prints that is linked with the core alone.
fn prints(prefix: &Path, source: &str) -> String {
    let (program, file) = (prefix.join("program"), here().join("tests/c").join(source));
    let mut cc = super::tool("cc");
    cc.arg("-I").arg(prefix.join("include")).arg(file).arg(prefix.join("lib/libpageyard-core.a"));
    run(cc.arg("-o").arg(&program));
    run(&mut Command::new(&program))
}

/// Nothing is silently ignored: a function that would never be called is an error.
fn functions_that_it_does_without_are_refused(prefix: &Path) {
    let said = prints(prefix, "unwanted.c");
    let of = |names| {
        format!(
            "argument: this core was built to do without the platform's {names}; null is expected\n"
        )
    };
    assert_eq!(said, ["lock, try_lock and unlock", "cpu", "relocate"].map(of).concat());
}

/// A library without the packed engine reports how to get one with it.
fn the_packed_engine_is_refused(prefix: &Path) {
    let said = prints(prefix, "refused.c");
    let wanted = "the library was built without the packed engine; \
                  install-capi.sh --packed includes it\n";
    assert_eq!(said, wanted.repeat(3));
}
