//! A skip is a failure with `PAGEYARD_NEEDS`, otherwise a line on standard error and in the list.

use std::io::Write;
use std::process::Output;

/// Runs [`lacks_something`] in a separate process.
fn run(needs: Option<&str>) -> Output {
    let mut test = pageyard_unmet::command(std::env::current_exe().unwrap());
    test.args(["--exact", "lacks_something", "--ignored"]).env_remove(pageyard_unmet::VARIABLE);
    if let Some(value) = needs {
        test.env(pageyard_unmet::VARIABLE, value);
    }
    test.output().unwrap()
}

#[test]
#[ignore = "run by the others, as a program of its own"]
fn lacks_something() {
    assert!(!pageyard_unmet::program("no-such-program", "nothing"));
    // Standard error, because libtest captures `println`.
    let mut error = std::io::stderr();
    writeln!(error, "listed: {:?}", pageyard_unmet::take_skipped()).unwrap();
}

#[test]
fn a_skip_is_reported_though_the_test_passes() {
    const LINE: &str = "notes::lacks_something: no-such-program (apt-get install nothing)";
    // The list belongs to the parent's run, so the second child would see leftovers of the first.
    for needs in [None, Some("0")] {
        let o = run(needs);
        assert!(o.status.success());
        let said = String::from_utf8_lossy(&o.stderr);
        assert_eq!(said, format!("skipped: {LINE}\nlisted: [{LINE:?}]\n"));
    }
}

#[test]
fn a_skip_fails_where_forbidden() {
    let o = run(Some("1"));
    assert_eq!(o.status.code(), Some(101));
    let said = String::from_utf8_lossy(&o.stdout);
    assert!(said.contains("PAGEYARD_NEEDS is set, and this is missing: no-such-program"), "{said}");
}

#[test]
fn a_program_runs_in_the_emulator_if_there_is_one() {
    let mut test = pageyard_unmet::command(std::env::current_exe().unwrap());
    test.args(["--exact", "shows_its_emulator", "--ignored", "--nocapture"]);
    let o = test.env(pageyard_unmet::RUNNER, " env  A=1\tB=2 ").output().unwrap();
    let said = String::from_utf8_lossy(&o.stdout);
    assert!(said.contains(r#"true: "env" ["A=1", "B=2", "true"]"#), "{said}");
}

#[test]
#[ignore = "run by another one, as a program of its own"]
fn shows_its_emulator() {
    let command = pageyard_unmet::command("true");
    let arguments: Vec<_> = command.get_args().collect();
    println!("{}: {:?} {arguments:?}", pageyard_unmet::is_emulated(), command.get_program());
}

#[test]
fn an_available_program_is_no_skip() {
    assert!(pageyard_unmet::program("cargo", "cargo"));
    assert!(pageyard_unmet::met("nothing", true));
}
