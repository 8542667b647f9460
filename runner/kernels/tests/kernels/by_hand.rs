//! Cases beyond the golden vectors, on numbers small enough to check by hand.

use crate::case::{Case, Launch};
use pipewright_core::graph::{DType, Op, TensorSpec, Window};
use pipewright_kernels::Phase;

pub fn suite(launch: Launch) {
    padding_samples_count_for_nothing(launch);
    running_statistics_move_once(launch);
    windows_in_ceil_mode_end_with_the_padding(launch);
    maxima_are_first_of_equals_and_not_numbers_win(launch);
    weight_gradients_are_added(launch);
}

fn padding_samples_count_for_nothing(launch: Launch) {
    let target = TensorSpec { shape: vec![], dtype: DType::U32 };
    let mut case = Case::new(
        Op::SoftmaxCrossEntropy { label_smoothing: 0.0 },
        vec![TensorSpec::f32(vec![2]), target],
        3,
    );
    case.inputs = vec![
        vec![1.0, 1.0, 0.0, 3f32.ln(), 5.0, -5.0],
        [0, 1, u32::MAX].map(f32::from_bits).to_vec(),
    ];
    case.loss_scale = 0.5;
    let forward = case.forward(launch);
    // -ln(1/2) - ln(3/4); the tie goes to class 0, so both predictions are right.
    assert!((forward.output[0] - (8f32 / 3.0).ln()).abs() < 1e-6);
    assert_eq!(forward.output[1].to_bits(), 2);
    let gradient = case.backward(launch, &forward, &[1.0]).inputs.swap_remove(0);
    let expected = [-0.25, 0.25, 0.125, -0.125, 0.0, 0.0];
    assert!(gradient.iter().zip(expected).all(|(g, e)| (g - e).abs() < 1e-6), "{gradient:?}");
}

/// `torch.nn.BatchNorm2d(1, momentum=0.1)` on 1, 2, 3, 6: mean 3, variance 14/4, unbiased 14/3.
fn running_statistics_move_once(launch: Launch) {
    let op = Op::BatchNorm2d { eps: 0.0, momentum: 0.1 };
    let mut case = Case::new(op, vec![TensorSpec::f32(vec![1, 1, 2])], 2);
    case.inputs[0] = vec![1.0, 2.0, 3.0, 6.0];
    case.params = vec![vec![2.0], vec![1.0], vec![0.0], vec![1.0]];
    let train = case.forward(launch);
    let saved = train.saved.as_deref().expect("statistics");
    assert!((saved[0] - 3.0).abs() < 1e-6 && (saved[1] - 3.5f32.sqrt().recip()).abs() < 1e-6);
    let statistics = [case.params[2][0], case.params[3][0]];
    let expected = [0.3, 0.9 + 0.1 * 14.0 / 3.0];
    assert!(statistics.iter().zip(expected).all(|(s, e)| (s - e).abs() < 1e-6), "{statistics:?}");

    case.phase = Phase::Recompute;
    assert_eq!(case.forward(launch), train, "computed again");
    assert_eq!([case.params[2][0], case.params[3][0]], statistics, "moved twice");

    case.phase = Phase::Evaluate;
    let output = case.forward(launch).output;
    let scale = 2.0 / statistics[1].sqrt();
    for (y, x) in output.iter().zip(&case.inputs[0]) {
        assert!((y - ((x - statistics[0]) * scale + 1.0)).abs() < 1e-5);
    }
    assert_eq!([case.params[2][0], case.params[3][0]], statistics, "moved by evaluation");
}

/// `torch.nn.functional.avg_pool2d(torch.arange(1., 5)[None, None, None], (1, 3), stride=(1, 2),
/// padding=(0, 1), ceil_mode=True)`: windows (0 1 2), (2 3 4), and (4 0), cut at the padding.
fn windows_in_ceil_mode_end_with_the_padding(launch: Launch) {
    let window = Window { kernel: [1, 3], stride: [1, 2], padding: [0, 1], ceil_mode: true };
    let mut case = Case::new(
        Op::AvgPool2d { window, count_padding: true },
        vec![TensorSpec::f32(vec![1, 1, 4])],
        1,
    );
    case.inputs[0] = vec![1.0, 2.0, 3.0, 4.0];
    assert_eq!(case.forward(launch).output, [1.0, 3.0, 2.0]);
}

fn maxima_are_first_of_equals_and_not_numbers_win(launch: Launch) {
    let window = Window { kernel: [1, 2], stride: [1, 2], padding: [0, 0], ceil_mode: false };
    let mut case = Case::new(Op::MaxPool2d { window }, vec![TensorSpec::f32(vec![1, 1, 8])], 1);
    let low = f32::NEG_INFINITY;
    case.inputs[0] = vec![7.0, 7.0, f32::NAN, 1.0, 1.0, f32::NAN, low, low];
    let forward = case.forward(launch);
    let positions = forward.saved.expect("positions");
    assert_eq!(bytemuck::cast_slice::<f32, u32>(&positions), [0, 2, 5, 6]);
    assert!(forward.output[1].is_nan() && forward.output[2].is_nan());
    assert_eq!([forward.output[0], forward.output[3]], [7.0, low]);
}

fn weight_gradients_are_added(launch: Launch) {
    let image = || vec![TensorSpec::f32(vec![2, 4, 3])];
    let pair = [1, 1];
    let conv = Op::Conv2d {
        out_channels: 3,
        kernel: [3, 3],
        stride: pair,
        padding: pair,
        dilation: pair,
        groups: 1,
        bias: true,
    };
    let norm = Op::BatchNorm2d { eps: 1e-5, momentum: 0.1 };
    for op in [Op::Linear { out_features: 5, bias: true }, conv, norm] {
        let mut case = Case::new(op, image(), 2);
        case.fill(11);
        let forward = case.forward(launch);
        let upstream = vec![1.0; forward.output.len()];
        let once = case.backward(launch, &forward, &upstream);
        let mut twice = once.clone();
        case.backward_into(launch, &forward, &upstream, &mut twice);
        assert_eq!(once.inputs, twice.inputs, "input gradients are written, not added");
        for (a, b) in once.params.concat().iter().zip(twice.params.concat()) {
            assert!((2.0 * a - b).abs() <= 1e-5 * (1.0 + b.abs()), "{:?}: {a}, {b}", case.op);
        }
    }
}
