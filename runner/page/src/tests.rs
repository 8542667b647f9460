//! Pages that go into programs and come out again.

use super::{LIST, MARK, Page, embed};
use pipewright::tools::scratch;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A folder with a page, and with a file that does not belong to it.
fn dist(dir: &Path, script: &[u8]) -> PathBuf {
    let dist = dir.join("dist");
    fs::create_dir_all(dist.join("app-1")).unwrap();
    fs::write(dist.join("index.html"), "<head>").unwrap();
    fs::write(dist.join("app-1/app.js"), script).unwrap();
    fs::write(dist.join("secret.txt"), "no").unwrap();
    fs::write(dist.join(LIST), "fingerprint\nindex.html\napp-1/app.js\n").unwrap();
    dist
}

#[test]
fn a_folder_comes_out_as_it_went_in_and_the_program_runs_as_before() {
    let dir = scratch("page-embedded").unwrap();
    let program = dir.join("echo");
    // A real program: the system must not mind what follows it.
    fs::copy("/bin/echo", &program).unwrap();
    let own = fs::read(&program).unwrap();
    assert!(Page::of(&program).unwrap().is_none());
    let every_byte: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    embed(&program, &dist(&dir, &every_byte)).unwrap();

    let page = Page::of(&program).unwrap().unwrap();
    assert_eq!(page.unpacked("index.html").unwrap().unwrap(), b"<head>");
    assert_eq!(page.unpacked("app-1/app.js").unwrap().unwrap(), every_byte);
    assert!(page.packed("app-1/app.js").unwrap().len() < every_byte.len() / 10);
    for other in ["secret.txt", LIST, "/index.html", ""] {
        assert!(page.packed(other).is_none(), "{other}");
    }
    assert!(fs::read(&program).unwrap().starts_with(&own));
    assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o111, 0o111);
    let said = std::process::Command::new(&program).arg("here").output().unwrap();
    assert_eq!(said.stdout, b"here\n");
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_new_page_takes_the_place_of_the_old_one() {
    let dir = scratch("page-again").unwrap();
    let (program, once) = (dir.join("program"), dir.join("once"));
    fs::write(&program, "code").unwrap();
    fs::copy(&program, &once).unwrap();
    embed(&program, &dist(&dir, b"old, and longer than the other")).unwrap();
    let dist = dist(&dir, b"new");
    embed(&program, &dist).unwrap();
    embed(&once, &dist).unwrap();
    assert_eq!(fs::read(&program).unwrap(), fs::read(&once).unwrap());
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn what_is_broken_is_said() {
    let dir = scratch("page-broken").unwrap();
    let program = dir.join("program");
    fs::write(&program, "code").unwrap();
    let error = embed(&program, &dir.join("nowhere")).unwrap_err().to_string();
    assert!(error.contains(LIST), "{error}");
    assert_eq!(fs::read(&program).unwrap(), b"code", "a failure leaves the program alone");

    embed(&program, &dist(&dir, b"script")).unwrap();
    let whole = fs::read(&program).unwrap();
    let length = whole.len() - MARK.len() - 8;
    // A path longer than the page, and a page longer than the file.
    for at in [b"code".len() + 1, length + 4] {
        let mut bytes = whole.clone();
        bytes[at] = 0xff;
        fs::write(&program, &bytes).unwrap();
        let error = Page::of(&program).err().unwrap().to_string();
        assert!(error.contains("broken"), "{error}");
    }
    // One that lost its end has none.
    fs::write(&program, &whole[..whole.len() - 1]).unwrap();
    assert!(Page::of(&program).unwrap().is_none());
    fs::remove_dir_all(dir).unwrap();
}
