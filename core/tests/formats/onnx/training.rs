//! Networks exported for training, as the readme advises: nothing is folded away, nothing is copied.

use super::{count, fixture, import};
use pipewright_core::graph::Op;
use pipewright_core::onnx::Loss;

#[test]
fn batch_norms_and_dropout_stay() {
    let imported = import(&fixture("drop_training.onnx"), Loss::CrossEntropy);
    assert!(imported.unsupported.is_empty(), "{:?}", imported.unsupported);
    assert!(imported.warnings.is_empty(), "{:?}", imported.warnings);
    assert_eq!((count(&imported, "conv2d"), count(&imported, "batch_norm2d")), (2, 2));
    let dropped = imported.graph.nodes().iter().find_map(|node| match node.op {
        Op::Dropout { probability } => Some(probability),
        _ => None,
    });
    assert_eq!(dropped, Some(0.25));
    let params = imported.graph.params().iter();
    let statistics: Vec<&str> = params.filter(|p| !p.trainable).map(|p| p.name.as_str()).collect();
    assert_eq!(statistics, ["1.running_mean", "1.running_var", "5.running_mean", "5.running_var"]);
    // PyTorch's count.
    assert_eq!(imported.graph.trainable_elements(), 593);
    // What evaluation exports instead.
    let folded = import(&fixture("batch_norm.onnx"), Loss::CrossEntropy);
    assert_eq!(count(&folded, "batch_norm2d"), 0);
}

#[test]
fn a_tied_table_stays_one() {
    let imported = import(&fixture("tied_training.onnx"), Loss::CrossEntropy);
    assert!(imported.unsupported.is_empty(), "{:?}", imported.unsupported);
    assert!(imported.warnings.is_empty(), "{:?}", imported.warnings);
    assert_eq!((count(&imported, "embedding"), count(&imported, "tied_linear")), (1, 1));
}
