//! The program's two names: one file, and a link to it that is installed as `pipewright`.

use crate::common::{Ended, RUNNER, scratch};
use std::path::Path;
use std::process::Command;

/// Runs a program by the path of its link.
fn called(program: &Path, args: &[&str]) -> Ended {
    let output = Command::new(program).args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

#[test]
fn help_says_the_name_that_was_called() {
    let link = scratch("names").join("pipewright");
    std::os::unix::fs::symlink(RUNNER, &link).unwrap();
    let help = called(&link, &["--help"]);
    for words in [
        "Usage: pipewright [OPTIONS] <COMMAND>",
        "pipewright plan --model",
        "mpirun -n 4 pipewright plan.json",
    ] {
        assert!(help.done().stdout.contains(words), "{words}: {help:#?}");
    }
    assert!(!help.stdout.contains("runner plan"), "{help:#?}");
    let plan = called(&link, &["plan", "--help"]);
    assert!(plan.done().stdout.contains("Usage: pipewright plan"), "{plan:#?}");
    assert!(called(&link, &["--version"]).done().stdout.starts_with("pipewright "));
    let refused = called(&link, &["plan"]);
    assert_eq!(refused.code, Some(2), "{refused:#?}");
    assert!(refused.stderr.contains("Usage: pipewright plan"), "{refused:#?}");
    // A plan alone is run, whatever the name.
    called(&link, &["missing.json"]).refused(2, "missing.json");
}

#[test]
fn installing_makes_both_names() {
    let dir = scratch("install");
    let target = dir.join("target");
    std::fs::create_dir_all(target.join("release")).unwrap();
    std::fs::copy(RUNNER, target.join("release/runner")).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/runner.sh");
    let install = |target: &Path| {
        let mut command = Command::new(script);
        command.arg("install").env("CARGO_TARGET_DIR", target).env("PREFIX", dir.join("here"));
        command.env_remove("DESTDIR").output().unwrap()
    };
    let done = install(&target);
    assert!(done.status.success(), "{done:?}");
    for name in ["runner", "pipewright"] {
        let version = called(&dir.join("here/bin").join(name), &["--version"]);
        assert!(version.done().stdout.starts_with(&format!("{name} ")), "{version:#?}");
    }
    let nothing = install(&dir.join("nowhere"));
    assert_eq!(nothing.status.code(), Some(2), "{nothing:?}");
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("make runner"), "{nothing:?}");
    std::fs::remove_dir_all(dir).unwrap();
}
