//! Exceptions of the checks: what there was when a check was made. The numbers may only shrink.

/// Functions of a file with a bare bool or number in a tuple among their parameters.
pub const PACKED: &[(&str, usize)] = &[
    ("app/src/draw/chart.rs", 1),
    ("app/src/draw/hit.rs", 2),
    ("app/src/draw/raster.rs", 1),
    ("app/src/planner/compare.rs", 1),
    ("app/src/screens/communication/chart.rs", 2),
    ("app/src/screens/communication/chart/forms.rs", 1),
    ("app/src/screens/communication/view.rs", 1),
    ("app/src/screens/compare/chart/pareto.rs", 3),
    ("app/src/screens/model/chart/chain.rs", 1),
    ("app/src/screens/plan/chart.rs", 2),
    ("app/src/screens/playground/chart/curves.rs", 2),
    ("app/src/screens/playground/chart/histogram.rs", 1),
    ("app/src/screens/playground/chart/tile.rs", 1),
    ("app/src/screens/recompute/chart.rs", 1),
    ("app/src/screens/recompute/chart/cells.rs", 1),
    ("app/src/screens/recompute/chart/memory.rs", 1),
    ("app/src/screens/recompute/chart/progress.rs", 1),
    ("app/src/screens/recompute/chart/trade_offs.rs", 2),
    ("app/src/screens/run/chart/drift.rs", 2),
    ("app/src/screens/run/chart/metrics.rs", 3),
    ("app/src/widgets/pair/painter.rs", 1),
    ("app/src/widgets/selection.rs", 1),
    ("app/src/widgets/size.rs", 1),
    ("core/src/predict/explain.rs", 1),
    ("core/src/predict/search/choice.rs", 1),
    ("core/src/predict/search/evaluate.rs", 2),
    ("core/src/predict/sums.rs", 1),
    ("core/src/schedule/generate/replicated.rs", 1),
    ("runner/kernels/src/cpu/attention/head.rs", 1),
    ("runner/kernels/src/cpu/chunks.rs", 5),
    ("runner/kernels/src/cpu/conv/mod.rs", 1),
    ("runner/kernels/src/cpu/conv/places.rs", 1),
    ("runner/kernels/src/cpu/conv/unfold.rs", 2),
    ("runner/kernels/src/cpu/math.rs", 1),
    ("runner/kernels/src/cpu/matmul.rs", 3),
    ("runner/kernels/src/cpu/pool.rs", 1),
    ("runner/kernels/src/cpu/product.rs", 1),
    ("runner/src/commands/frame.rs", 4),
    ("runner/src/device/cuda/cache.rs", 1),
];

/// Module docs below a folder that begin with a relative clause.
pub const LOOSE_HEADERS: &[(&str, usize)] = &[
    ("app/src/", 34),
    ("core/src/onnx/", 3),
    ("core/src/partition/", 2),
    ("core/src/predict/", 5),
    ("core/src/schedule/", 5),
    ("runner/src/commands/plan", 3),
];

/// Type names that a crate defines more than four times, and how often.
pub const HOMONYMS: &[(&str, &str, usize)] = &[("app/src", "Frame", 8), ("app/src", "Row", 5)];
