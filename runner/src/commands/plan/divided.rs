//! Search again where nothing fits, with replicas that divide what they keep.

use super::Question;
use super::search::{Shortlist, find_among};
use crate::failure::{Code, Failure};
use pipewright_core::graph::Graph;
use pipewright_core::plan::Draft;

/// Where nothing fits: what does if replicas divide what the optimizer keeps, and if need be gradients; else why nothing
/// fits.
pub(super) fn search(
    question: &Question,
    graph: &Graph,
    drafts: &[Draft],
    mut failure: Failure,
) -> Result<Shortlist, Failure> {
    let tried =
        failure.code != Code::Hardware || drafts.iter().any(|d| d.data_parallel.divides_updates());
    if tried {
        return Err(failure);
    }
    for (zero, what) in [
        (1, "all of the optimizer's state: here they divide it, as with --zero 1"),
        (2, "whole gradients: here they divide them and the optimizer's state, as with --zero 2"),
    ] {
        let mut drafts = drafts.to_vec();
        drafts.iter_mut().for_each(|draft| draft.data_parallel.zero = zero);
        drafts.retain(|draft| draft.check().is_ok());
        if drafts.is_empty() {
            continue;
        }
        match find_among(question, graph, &drafts) {
            Ok(found) => {
                note!("nothing fits where each replica keeps {what}");
                return Ok(found);
            }
            // What needs least memory needs less now.
            Err(less) if less.code == Code::Hardware => failure = less,
            Err(_) => {}
        }
    }
    Err(failure)
}
