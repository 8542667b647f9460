//! Links that were handed out before keep their meaning: `tests/data/links.txt` has a link a line, and
//! what it meant on the day when it was written down.

use super::*;
use crate::base::texts::speak;
use std::collections::BTreeMap;
use std::path::Path;

/// What a link means, in a line.
fn meaning(link: &Link) -> String {
    let inputs = |i: &Inputs| {
        let communication = &i.rest.communication;
        format!(
            "{} on {}, cuts {:?}, {}, batch {}, m {}, replicas {}, {}, hosts {}, edges {}",
            i.model.key(),
            i.cluster.key(),
            i.cuts,
            i.schedule,
            i.mini_batch,
            i.micro_batches,
            i.rest.data_parallel.replicas,
            communication.gradients,
            communication.hierarchical,
            communication.edges.across
        )
    };
    let a = link.inputs.a.as_ref().map(|a| format!("; A: {}", inputs(a))).unwrap_or_default();
    format!(
        "{}{a}; {}, stage {}, keep {:.3}; {} problems",
        inputs(&link.inputs),
        link.screen.word(),
        link.asked.stage,
        link.asked.keep,
        link.problems.len()
    )
}

#[test]
fn old_links_keep_their_meaning() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/links.txt");
    let text = std::fs::read_to_string(file).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("//")).collect();
    assert!(lines.len() > 20);
    for pair in lines.chunks(2) {
        let [link, meant] = pair else { panic!("{pair:?}: a link, then its meaning") };
        assert_eq!(meaning(&read(link, None)), *meant, "{link}");
    }
}

#[test]
fn what_is_wrong_in_a_link_is_said_in_the_pages_language() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("texts/ja.json");
    let table: BTreeMap<String, String> =
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    speak(table.into_iter().map(|(english, other)| (leak(english), leak(other))).collect());
    for bad in ["s=nope", "model=nope", "codec=fp7", "codec=bf16+up", "batch=0", "a=s%3Dnope"] {
        let problems = read(bad, None).problems;
        let said = problems.first().unwrap_or_else(|| panic!("{bad} is taken"));
        let of_japanese = said.chars().any(|c| ('ぁ'..='ん').contains(&c));
        assert!(problems.len() == 1 && of_japanese, "{bad}: {problems:?}");
    }
    speak(vec![]);
}
