//! Operations that no kernel is for: named by kinds, and refused where nothing tells what they take.

use crate::args::OnnxArgs;
use crate::failure::Failure;
use pipewright_core::graph::{Graph, Op};
use pipewright_core::onnx::Unsupported;

/// Names and kinds of which so many are told before the rest is counted.
const FIRST: usize = 3;

/// A line for each kind of operation and of reason, the most frequent first; with `all` one an operation.
pub(super) fn lines(unsupported: &[Unsupported], all: bool) -> Vec<String> {
    if all {
        let line = |one: &Unsupported| format!("{} `{}`: {}", one.op, one.node, one.why);
        return unsupported.iter().map(line).collect();
    }
    let kinds = grouped(unsupported.iter().map(|one| ((&one.op, without_names(&one.why)), one)));
    let mut lines: Vec<String> = kinds
        .iter()
        .map(|(_, ones)| {
            let names: Vec<String> = ones.iter().map(|one| format!("`{}`", one.node)).collect();
            let count = if ones.len() == 1 { String::new() } else { format!("{} ", ones.len()) };
            format!("{count}{} {}: {}", ones[0].op, listed(&names), ones[0].why)
        })
        .collect();
    if kinds.iter().any(|(_, ones)| ones.len() > FIRST) {
        lines.push("--verbose names all of them".into());
    }
    lines
}

/// Refuses figures that leave operations out, unless that is allowed.
pub(in crate::commands) fn priced(
    name: &str,
    graph: &Graph,
    args: &OnnxArgs,
) -> Result<(), Failure> {
    let is_unpriced = |op: &Op| matches!(op, Op::Opaque { unpriced: true, .. });
    let nodes = graph.nodes().iter().filter(|node| is_unpriced(&node.op));
    let names: Vec<&str> = nodes.map(|node| node.name.as_str()).collect();
    let Some(first) = names.first() else { return Ok(()) };
    let kinds: Vec<String> = grouped(names.iter().map(|name| (kind(name), name)))
        .iter()
        .map(|(kind, ones)| format!("{} {kind}", ones.len()))
        .collect();
    let what = format!(
        "{} without a price ({}; the first is `{first}`), because their sizes are not known",
        counted(names.len()),
        listed(&kinds)
    );
    if args.allow_opaque {
        warn!("{name}: {what}: all figures are without them");
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{name}: {what}; give the values of open sizes by --size, export with constants folded, or say \
         --allow-opaque to plan without them"
    )))
}

/// What stands behind a figure that leaves operations out: ` without 3 operations`.
pub(in crate::commands) fn without(graph: &Graph) -> String {
    match graph.unpriced() {
        0 => String::new(),
        count => format!(" without {}", counted(count)),
    }
}

fn counted(count: usize) -> String {
    format!("{count} {}", if count == 1 { "operation" } else { "operations" })
}

/// The first of `names`, and how many more there are.
fn listed(names: &[String]) -> String {
    let more = match names.len().saturating_sub(FIRST) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", names[..names.len().min(FIRST)].join(", "))
}

/// Values by key, the most first, in their order otherwise.
fn grouped<K: PartialEq, T>(values: impl Iterator<Item = (K, T)>) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = vec![];
    for (key, value) in values {
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, group)) => group.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.len()));
    groups
}

/// A reason with what differs from node to node left out: numbers, and names between backticks.
fn without_names(why: &str) -> String {
    let outside = why.split('`').step_by(2);
    outside.flat_map(str::chars).filter(|c| !c.is_ascii_digit()).collect()
}

/// The operation of an opaque node, whose name ends with it and perhaps a number.
fn kind(node: &str) -> &str {
    let last = node.rsplit('.').next().unwrap_or(node);
    match last.rsplit_once('_') {
        Some((op, number)) if number.bytes().all(|b| b.is_ascii_digit()) => op,
        _ => last,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(node: &str, op: &str, why: &str) -> Unsupported {
        Unsupported { node: node.into(), op: op.into(), why: why.into() }
    }

    #[test]
    fn a_kind_is_a_line() {
        let mut all: Vec<Unsupported> = (0..5)
            .map(|i| one(&format!("n{i}"), "Where", &format!("`m{i}` has {i} axes")))
            .collect();
        all.insert(0, one("t", "Tan", "there is no such operation here"));
        all.push(one("w", "Where", "it works along the batch"));
        let told = lines(&all, false);
        assert_eq!(
            told,
            [
                "5 Where `n0`, `n1`, `n2` and 2 more: `m0` has 0 axes",
                "Tan `t`: there is no such operation here",
                "Where `w`: it works along the batch",
                "--verbose names all of them",
            ]
        );
        assert_eq!(lines(&all, true).len(), 7);
    }

    #[test]
    fn nodes_tell_their_operations() {
        assert_eq!(["a.b.Relu", "a.Relu_12", "Relu"].map(kind), ["Relu"; 3]);
    }
}
