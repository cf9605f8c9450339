//! Compiles programs against the installed libraries and runs them.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::install::{prefix, run};
use super::{here, tool};

const STRICT: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];

fn compiler(cpp: bool) -> Command {
    let mut command = tool(if cpp { "c++" } else { "cc" });
    command.args(STRICT);
    if cpp {
        command.args(["-x", "c++"]);
    }
    command
}

/// The flags that pkg-config returns for a package, or would return if it were installed.
pub(crate) fn flags(package: &str) -> Vec<String> {
    let p = prefix().display();
    if !pageyard_unmet::program("pkg-config", "pkg-config") {
        return vec![format!("-I{p}/include"), format!("-L{p}/lib"), format!("-l{package}")];
    }
    let directory = prefix().join("lib/pkgconfig");
    let mut command = Command::new("pkg-config");
    let said = run(command.env("PKG_CONFIG_PATH", directory).args(["--cflags", "--libs", package]));
    said.split_whitespace().map(str::to_owned).collect()
}

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

pub(crate) fn built(mut compiler: Command, source: &str, more: &[String], name: &str) -> Command {
    let program = program(name);
    compiler.arg(here().join(source)).args(["-x", "none"]).args(more).arg("-o").arg(&program);
    run(&mut compiler);
    let mut command = pageyard_unmet::command(program);
    command.env("LD_LIBRARY_PATH", prefix().join("lib"));
    command
}

pub(crate) fn threaded(cpp: bool) -> Command {
    let mut compiler = compiler(cpp);
    compiler.arg("-pthread");
    compiler
}

#[test]
fn headers_are_c99_and_cpp11() {
    for (cpp, standard) in [(false, "-std=c99"), (true, "-std=c++11")] {
        for header in ["pageyard.h", "pageyard_core.h"] {
            let mut compiler = compiler(cpp);
            compiler.args([standard, "-pedantic", "-fsyntax-only"]);
            if !cpp {
                compiler.args(["-x", "c"]);
            }
            run(compiler.arg(here().join("include").join(header)));
        }
    }
}

#[test]
fn host_level_in_c_and_cpp() {
    for (cpp, name) in [(false, "host-c"), (true, "host-cpp")] {
        let mut program = built(threaded(cpp), "tests/c/host.c", &flags("pageyard"), name);
        assert_eq!(run(&mut program), "pageyard.h: all is well\n");
    }
}

#[test]
fn upkeep_of_the_host_level() {
    let there = !pageyard_unmet::is_emulated();
    if !pageyard_unmet::met("MADV_REMOVE, which the emulator ignores: memory stays", there) {
        return;
    }
    let mut program = built(threaded(false), "tests/c/upkeep.c", &flags("pageyard"), "upkeep");
    assert_eq!(run(&mut program), "pageyard.h, upkeep: all is well\n");
}

#[test]
fn concurrent_frees_of_the_same_blocks() {
    let mut program = built(threaded(false), "tests/c/races.c", &flags("pageyard"), "races");
    assert_eq!(run(&mut program), "pageyard.h, races: all is well\n");
}

#[test]
fn forks_during_use() {
    let mut program = built(threaded(false), "tests/c/fork.c", &flags("pageyard"), "fork");
    assert_eq!(run(&mut program), "forks: all is well\n");
}

/// The engines: their names in the programs of the core level, and the suffixes of their builds.
pub(crate) const ENGINES: [(&str, &str); 2] =
    [("PAGEYARD_ENGINE_LINUX612", ""), ("PAGEYARD_ENGINE_PACKED", "-packed")];

/// The compiler for a program that tests this engine.
pub(crate) fn of_engine(cpp: bool, engine: &str) -> Command {
    let mut compiler = threaded(cpp);
    compiler.arg(format!("-DENGINE={engine}"));
    compiler
}

#[test]
fn hooks_and_callbacks_may_call_the_library() {
    for (engine, suffix) in ENGINES {
        let (compiler, name) = (of_engine(false, engine), format!("reentry{suffix}"));
        let mut program = built(compiler, "tests/c/reentry.c", &flags("pageyard"), &name);
        assert_eq!(run(&mut program), "re-entry: all is well\n");
    }
}

#[test]
fn hooks_are_called_and_have_their_effect() {
    for (cpp, engine, name) in [
        (false, ENGINES[0].0, "hooks-c"),
        (true, ENGINES[0].0, "hooks-cpp"),
        (false, ENGINES[1].0, "hooks-packed"),
    ] {
        let compiler = of_engine(cpp, engine);
        let mut program = built(compiler, "tests/c/hooks.c", &flags("pageyard-core"), name);
        assert_eq!(run(&mut program), "hooks: all is well\n");
    }
}

/// The program fails if a hook is not called.
#[test]
fn a_hook_that_is_not_called_is_found() {
    for (hook, instead) in [
        ("event", "NULL"),
        ("report", "NULL"),
        ("fail", "NULL"),
        ("page_state", "NULL"),
        ("poison", "nothing"),
        ("check_poison", "undamaged"),
        ("unmap", "nothing"),
        ("map", "nothing"),
        ("report_free", "NULL"),
    ] {
        let mut compiler = threaded(false);
        compiler.arg(format!("-DPLANT={hook}")).arg(format!("-DPLANT_WITH={instead}"));
        let name = format!("hooks-without-{hook}");
        let output = built(compiler, "tests/c/hooks.c", &flags("pageyard-core"), &name).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{hook}: {said}");
        assert!(said.contains("hooks.c:"), "{hook}: {said}");
    }
}

#[test]
fn core_level_from_both_libraries() {
    for (cpp, package, name) in [
        (false, "pageyard-core", "core-c"),
        (true, "pageyard-core", "core-cpp"),
        (false, "pageyard", "core-shared"),
    ] {
        for (engine, suffix) in ENGINES {
            let (compiler, name) = (of_engine(cpp, engine), format!("{name}{suffix}"));
            let mut program = built(compiler, "tests/c/core.c", &flags(package), &name);
            assert_eq!(run(&mut program), "pageyard_core.h: all is well\n");
        }
    }
}

#[test]
fn a_kernel_starts_from_a_memory_map() {
    for (package, name) in [("pageyard-core", "kernel-core"), ("pageyard", "kernel-shared")] {
        for (engine, suffix) in ENGINES {
            let (compiler, name) = (of_engine(false, engine), format!("{name}{suffix}"));
            let mut program = built(compiler, "tests/c/kernel.c", &flags(package), &name);
            assert_eq!(run(&mut program), "kernel: all is well\n");
        }
    }
}

#[test]
fn needs_of_embedders() {
    for (package, name) in [("pageyard-core", "needs-core"), ("pageyard", "needs-shared")] {
        for (engine, suffix) in ENGINES {
            let (compiler, name) = (of_engine(false, engine), format!("{name}{suffix}"));
            let mut program = built(compiler, "tests/c/needs.c", &flags(package), &name);
            assert_eq!(run(&mut program), "needs: all is well\n");
        }
    }
}

/// The examples in C of docs/needs.md, one after the other.
#[test]
fn examples_of_the_needs_of_embedders() {
    let page = std::fs::read_to_string(here().join("../../docs/needs.md")).unwrap();
    let blocks = page.split("```c\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let blocks: Vec<&str> = blocks.collect();
    assert_eq!(blocks.len(), 6);
    let directory = program("needs-page");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("needs_page.h"), blocks.join("\n")).unwrap();
    let mut compiler = compiler(false);
    compiler.arg("-I").arg(&directory);
    let mut program =
        built(compiler, "tests/c/page.c", &flags("pageyard-core"), "needs-page-examples");
    assert_eq!(run(&mut program), "the page: all is well\n");
}

/// The program notices each function that succeeds and does nothing.
#[test]
fn a_need_that_is_not_served_is_found() {
    for function in [
        "alloc_at",
        "alloc_contig_pages_from",
        "alloc_interleaved",
        "alloc_preferring",
        "alloc_range_or_scatter",
        "alloc_with",
        "balloon_acknowledge",
        "balloon_ask",
        "balloon_lend",
        "epochs_acknowledge",
        "epochs_lagging",
        "epochs_offline",
        "epochs_online",
        "free_nowait",
        "shootdown_add",
        "shootdown_begin",
        "shootdown_free",
        "try_alloc",
    ] {
        let mut compiler = threaded(false);
        compiler.arg(format!("-DPLANT=pageyard_core_{function}"));
        let mut more = flags("pageyard-core");
        more.push(format!("-Wl,--wrap=pageyard_core_{function}"));
        let name = format!("needs-without-{function}");
        let output = built(compiler, "tests/c/needs.c", &more, &name).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{function}: {said}");
        assert!(said.contains("needs.c:"), "{function}: {said}");
    }
}

#[test]
fn example_of_a_buffer_pool() {
    for (cpp, name) in [(false, "pool-c"), (true, "pool-cpp")] {
        let mut program = built(threaded(cpp), "examples/buffer_pool.c", &flags("pageyard"), name);
        let said = run(&mut program);
        assert!(said.starts_with("100 frames of 16 KiB; "), "{said}");
        assert!(said.ends_with("every counter in the file is right\n"), "{said}");
    }
}

/// A program linked with the archive needs no shared library, and none at all if asked for; the archive
/// contains both levels.
#[test]
fn static_library() {
    let lib = prefix().join("lib");
    let private = std::fs::read_to_string(lib.join("pkgconfig/pageyard.pc")).unwrap();
    let private = private.lines().find_map(|l| l.strip_prefix("Libs.private: ")).unwrap();
    let mut more = vec![
        format!("-I{}", prefix().join("include").display()),
        lib.join("libpageyard.a").display().to_string(),
    ];
    more.extend(private.split_whitespace().map(str::to_owned));
    for (level, source) in [("pageyard.h", "tests/c/host.c"), ("pageyard_core.h", "tests/c/core.c")]
    {
        for (name, option) in [("archive", None), ("static", Some("-static"))] {
            let mut compiler = threaded(false);
            compiler.args(option);
            let mut program = built(compiler, source, &more, &format!("{level}-{name}"));
            program.env_remove("LD_LIBRARY_PATH");
            assert_eq!(run(&mut program), format!("{level}: all is well\n"));
        }
    }
}

/// No libc and no start files, as in a kernel.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn example_without_a_libc() {
    let mut compiler = compiler(false);
    compiler.args(["-ffreestanding", "-nostdlib", "-static", "-fno-stack-protector"]);
    if cfg!(target_arch = "aarch64") {
        // Otherwise the compiler's atomics are functions of a library that needs a libc.
        compiler.arg("-mno-outline-atomics");
    }
    let mut program =
        built(compiler, "examples/freestanding.c", &flags("pageyard-core"), "freestanding");
    let said = run(&mut program);
    assert!(said.starts_with("Node 0, zone   Normal "), "{said}");
    assert!(said.ends_with("all is well\n"), "{said}");
}

#[test]
fn cmake_package() {
    if !pageyard_unmet::program("cmake", "cmake") {
        return;
    }
    // A cache of another clone, for which the target folder was used, would be an error of its own.
    let [build, refused] = ["cmake-build", "cmake-refused"].map(program);
    [&build, &refused].into_iter().for_each(|folder| _ = std::fs::remove_dir_all(folder));
    let source = here().join("tests/c/cmake");
    let find = format!("-DCMAKE_PREFIX_PATH={}", prefix().display());
    let mut configure = Command::new("cmake");
    for (variable, name) in [("CC", "cc"), ("CXX", "c++")] {
        configure.env(variable, tool(name).get_program());
    }
    run(configure.arg("-S").arg(&source).arg("-B").arg(&build).arg(&find));
    run(Command::new("cmake").arg("--build").arg(&build));
    for (program, said) in
        [("shared", "pageyard.h"), ("static", "pageyard.h"), ("core", "pageyard_core.h")]
    {
        let said = format!("{said}: all is well\n");
        assert_eq!(run(&mut pageyard_unmet::command(build.join(program))), said);
    }
    // Another minor version is an incompatible interface.
    let output = Command::new("cmake")
        .arg("-S")
        .arg(&source)
        .arg("-B")
        .arg(&refused)
        .args([&find, "-DWANTED=0.2"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("0.2"));
}
