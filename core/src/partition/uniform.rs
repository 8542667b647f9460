//! Stages with as many layers as each other (Takisawa et al. 2022, section 7).
//!
//! Known limit: layers without parameters count like any other, so a deep split leaves stages
//! with almost nothing to do; the paper's 16-way VGG16 is slower than its 8-way one for it.

use super::PartitionError;
use crate::graph::Graph;

/// Cuts after every n-th layer; sizes differ by at most one, the larger ones first. Returns the
/// first node of each stage but the first.
///
/// # Errors
/// More stages than layers, or none.
pub fn uniform(graph: &Graph, stages: u32) -> Result<Vec<u32>, PartitionError> {
    super::check(graph, stages)?;
    let layers = graph.layers();
    let (each, larger) = (layers.len() / stages as usize, layers.len() % stages as usize);
    let first = |stage: usize| layers[stage * each + stage.min(larger)].first_node.0;
    Ok((1..stages as usize).map(first).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::presets::Preset;

    #[test]
    fn sizes_differ_by_at_most_one() {
        let graph = Preset::Vgg16.graph().unwrap();
        let first_layers = |stages| -> Vec<usize> {
            let cuts = uniform(&graph, stages).unwrap();
            let layer = |cut: &u32| graph.layers().iter().position(|l| l.first_node.0 == *cut);
            cuts.iter().map(|cut| layer(cut).unwrap()).collect()
        };
        assert_eq!(graph.layers().len(), 36);
        assert_eq!(first_layers(1), [0; 0]);
        assert_eq!(first_layers(4), [9, 18, 27]);
        assert_eq!(first_layers(5), [8, 15, 22, 29]);
    }

    #[test]
    fn no_stage_stays_empty() {
        let graph = Preset::Mlp4.graph().unwrap();
        assert!(uniform(&graph, 4).is_ok());
        let error = uniform(&graph, 5).unwrap_err().to_string();
        assert!(error.contains("`mlp4` has 4"), "{error}");
        assert_eq!(uniform(&graph, 0), Err(PartitionError::NoStage));
    }
}
