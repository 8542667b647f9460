//! The Dockerfile and the recipe for Apptainer: what they copy exists, what they install has that name, and both
//! make the same. `scripts/cluster/image-here.sh` goes through the Dockerfile's steps.

use crate::text;
use pipewright::{Outcome, tools};
use std::collections::BTreeSet;
use std::process::Command;

const RECIPES: [&str; 2] = ["Dockerfile", "scripts/cluster/pipewright.def"];

/// The packages that a recipe installs, for each of its stages.
fn packages(recipe: &str) -> Vec<BTreeSet<String>> {
    let joined = recipe.replace("\\\n", " ");
    let installs = joined.lines().filter_map(|line| line.split_once("--no-install-recommends"));
    let names = |list: &str| {
        let words = list.split("&&").next().unwrap_or_default().split_whitespace();
        words.map(str::to_owned).collect()
    };
    installs.map(|(_, list)| names(list)).collect()
}

/// What a recipe copies from the repository.
fn sources(recipe: &str) -> Vec<String> {
    let docker = |line: &str| line.strip_prefix("COPY ")?.split(' ').next().map(str::to_owned);
    let apptainer = |line: &str| {
        let words: Vec<&str> = line.trim().split(' ').collect();
        let [from, to] = words[..] else { return None };
        (!from.starts_with('/') && to.starts_with('/') && from.contains('/'))
            .then(|| from.to_owned())
    };
    let all = recipe.lines().filter_map(|line| docker(line).or_else(|| apptainer(line)));
    all.filter(|source| !source.starts_with("--from=")).collect()
}

#[test]
fn what_is_copied_exists() -> Outcome<()> {
    for path in RECIPES {
        let sources = sources(&text(path)?);
        assert!(sources.len() >= 2, "{path}: {sources:?}");
        for source in sources {
            assert!(tools::root().join(&source).exists(), "{path}: {source}");
        }
    }
    Ok(())
}

#[test]
fn packages_have_these_names() -> Outcome<()> {
    let mut names = BTreeSet::new();
    for path in RECIPES {
        let stages = packages(&text(path)?);
        assert_eq!(stages.len(), 2, "{path}: one to build and one to run: {stages:?}");
        names.extend(stages.into_iter().flatten());
    }
    assert!(names.contains("openmpi-bin"), "{names:?}");
    // Names are Debian's, and nobody else's lists say whether they are right.
    let known = |name: &str| {
        let shown = Command::new("apt-cache").args(["show", "--no-all-versions", name]).output();
        shown.is_ok_and(|shown| shown.status.success() && !shown.stdout.is_empty())
    };
    if !known("openmpi-bin") {
        tools::refused("there are no lists of Debian's packages here (apt-get update)");
        return Ok(());
    }
    let unknown: Vec<_> = names.iter().filter(|name| !known(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert!(!known("libopenmpi-devel"), "a name that is wrong is not known");
    Ok(())
}

#[test]
fn both_recipes_make_the_same() -> Outcome<()> {
    let [docker, apptainer] = RECIPES.map(text);
    let (docker, apptainer) = (docker?, apptainer?);
    let (mut ours, theirs) = (packages(&docker), packages(&apptainer));
    // Workers of Kubernetes are reached by ssh, images of Apptainer by the host's means.
    assert!(ours[1].remove("openssh-server"), "{ours:?}");
    assert_eq!(ours, theirs);
    let build =
        |text: &str| text.lines().find_map(|line| Some(line.split_once("cargo ")?.1.to_owned()));
    assert!(build(&docker).is_some_and(|words| words.contains("--features etcd")));
    assert_eq!(build(&docker), build(&apptainer));
    Ok(())
}
