//! Valid problems, and refused ones.

use super::{node, output};
use crate::recompute::problem::{MOST_BYTES, MOST_EDGES, MOST_NODES};
use crate::recompute::{Node, Problem, ProblemError};

#[test]
fn readers_and_inputs_are_each_others_inverse() {
    let nodes =
        vec![node(1, 1.0, &[]), node(2, 1.0, &[0, 0]), node(4, 0.0, &[1, 0]), output(8, 0.5, &[2])];
    let problem = Problem::new(nodes).unwrap();
    assert_eq!(
        [0, 1, 2, 3].map(|i| problem.inputs(i).to_vec()),
        [vec![], vec![0], vec![0, 1], vec![2]]
    );
    assert_eq!(
        [0, 1, 2, 3].map(|i| problem.readers(i).to_vec()),
        [vec![1, 2], vec![2], vec![3], vec![]]
    );
    assert_eq!((problem.len(), problem.is_empty(), problem.time()), (4, false, 2.5));
}

#[test]
fn what_no_output_needs_is_not_needed() {
    let nodes = vec![node(1, 1.0, &[]), output(1, 1.0, &[0]), node(1, 1.0, &[1])];
    let problem = Problem::new(nodes).unwrap();
    assert_eq!(problem.needed(), [true, true, false]);
    assert_eq!(crate::recompute::without_recomputation(&problem), [0, 1]);
}

#[test]
fn bad_graphs_are_refused() {
    let refused = |nodes: Vec<Node>| Problem::new(nodes).unwrap_err();
    assert_eq!(refused(vec![]), ProblemError::Empty);
    let input = |node, input| ProblemError::Input { node, input };
    assert_eq!(refused(vec![output(1, 1.0, &[0])]), input(0, 0));
    assert_eq!(refused(vec![node(1, 1.0, &[1]), output(1, 1.0, &[0])]), input(0, 1));
    assert_eq!(refused(vec![output(1, 1.0, &[u32::MAX])]), input(0, u32::MAX));
    for time in [-1.0, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(refused(vec![output(1, time, &[])]), ProblemError::Time { node: 0, time });
    }
    let nan = refused(vec![node(1, 1.0, &[]), output(1, f64::NAN, &[])]);
    assert!(matches!(nan, ProblemError::Time { node: 1, .. }), "{nan}");
    let halves = vec![node(MOST_BYTES / 2, 1.0, &[]), output(MOST_BYTES / 2 + 1, 1.0, &[])];
    assert_eq!(refused(halves), ProblemError::Bytes { node: 1 });
    assert_eq!(refused(vec![output(u64::MAX, 1.0, &[])]), ProblemError::Bytes { node: 0 });
    assert_eq!(refused(vec![node(1, 1.0, &[])]), ProblemError::NoOutput);
    let nodes = ProblemError::TooLarge { what: "nodes", count: MOST_NODES + 1, most: MOST_NODES };
    assert_eq!(refused(vec![node(0, 0.0, &[]); MOST_NODES + 1]), nodes);
    let edges = ProblemError::TooLarge { what: "edges", count: MOST_EDGES + 1, most: MOST_EDGES };
    let wide = output(1, 1.0, &vec![0; MOST_EDGES + 1]);
    assert_eq!(refused(vec![node(1, 1.0, &[]), wide]), edges);
    for error in [ProblemError::Empty, nodes, input(3, 4), nan, ProblemError::NoOutput] {
        let text = error.to_string();
        assert!(text.contains("; "), "says what to do: {text}");
    }
}

#[test]
fn marks_are_computed_once() {
    let nodes = |once: bool, is_output: bool| {
        vec![node(1, 1.0, &[]), Node { once, output: is_output, ..output(1, 1.0, &[0]) }]
    };
    let problem = Problem::with_marks(nodes(true, true), vec![1], 0).unwrap();
    assert_eq!((problem.marks(), problem.copies()), (&[1][..], 1));
    let refused = |nodes, marks| Problem::with_marks(nodes, marks, 2).unwrap_err();
    assert_eq!(refused(nodes(true, true), vec![1, 2]), ProblemError::Mark { mark: 2 });
    assert_eq!(refused(nodes(true, true), vec![0]), ProblemError::Mark { mark: 0 });
    assert_eq!(refused(nodes(false, true), vec![1]), ProblemError::Mark { mark: 1 });
    // Copies count towards the sum.
    let large = vec![Node { once: true, ..output(MOST_BYTES / 2 + 1, 1.0, &[]) }];
    assert!(Problem::with_marks(large.clone(), vec![0], 1).is_ok());
    let error = Problem::with_marks(large, vec![0], 2).unwrap_err();
    assert_eq!(error, ProblemError::Bytes { node: 0 });
}
