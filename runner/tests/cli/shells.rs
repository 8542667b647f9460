//! Help for shells and for `man`: scripts that a shell takes, pages that roff renders.

use crate::common::{runner_in, scratch, write};
use std::path::Path;
use std::process::{Command, Stdio};

/// What bash offers for a command line whose last word is begun.
fn offered(dir: &Path, line: &[&str]) -> Vec<String> {
    let last = line.len() - 1;
    let words: Vec<String> = line.iter().map(|word| format!("'{word}'")).collect();
    let script = format!(
        "source runner.bash; COMP_WORDS=({}); COMP_CWORD={last}; \
         _runner runner '{}' '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.join(" "),
        line[last],
        line[last - 1]
    );
    let output = Command::new("bash")
        .args(["--norc", "-c", &script])
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_flags_and_values() {
    let dir = scratch("shells");
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        let script = runner_in(&dir, &["completions", shell]);
        assert!(script.done().stdout.contains("simulate"), "{shell}");
    }
    runner_in(&dir, &["completions", "tcsh"]).refused(2, "possible values: bash");
    write(&dir, "runner.bash", &runner_in(&dir, &["completions", "bash"]).done().stdout);
    let check =
        Command::new("bash").args(["-n", "runner.bash"]).current_dir(&dir).output().unwrap();
    assert!(check.status.success() && check.stderr.is_empty(), "{check:?}");
    assert_eq!(offered(&dir, &["runner", "che"]), ["check"]);
    assert_eq!(offered(&dir, &["runner", "plan", "--sch"]), ["--schedule"]);
    assert_eq!(offered(&dir, &["runner", "plan", "--split", "ba"]), ["balanced"]);
    assert_eq!(offered(&dir, &["runner", "bench", "all"]), ["allreduce"]);
    let all = offered(&dir, &["runner", ""]);
    assert!(
        ["run", "plan", "export"].iter().all(|name| all.iter().any(|one| one == name)),
        "{all:?}"
    );
}

#[test]
fn every_command_has_a_man_page() {
    let dir = scratch("shells-man");
    let said = runner_in(&dir, &["man", "man1"]).done().stderr.clone();
    let pages: Vec<_> =
        std::fs::read_dir(dir.join("man1")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(said, format!("wrote {} man pages to man1\n", pages.len()));
    for name in ["runner", "runner-plan", "runner-bench-codecs"] {
        assert!(dir.join(format!("man1/{name}.1")).exists(), "{name}");
    }
    let Some(man) = pipewright::tools::find("MAN", &["mandoc", "man"]) else {
        // No part of what tests need: the pages were written all the same.
        return;
    };
    for page in &pages {
        let mut command = Command::new(&man);
        if !man.ends_with("mandoc") {
            command.args(["--warnings", "-l"]);
        }
        let output =
            command.arg(page).env("MANPAGER", "cat").env("MANWIDTH", "80").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let name = page.file_stem().unwrap().to_str().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{name}: {output:?}");
        assert!(text.contains("SYNOPSIS") && text.contains(name), "{name}: {text}");
    }
}
