//! Links that were handed out before keep their meaning: `tests/data/links.txt` has a link a line, and
//! what it meant on the day when it was written down.

use super::*;

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
