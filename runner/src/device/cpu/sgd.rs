//! Stochastic gradient descent with momentum and weight decay, as PyTorch's `SGD` does it.

/// Settings of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdStep {
    /// How far to go.
    pub learning_rate: f32,
    /// Share of the last direction in the next one.
    pub momentum: f32,
    /// Share of the weight added to its gradient.
    pub weight_decay: f32,
}

/// One step: `d = g + decay w; buffer = momentum buffer + d; w -= rate buffer` (without a buffer
/// `w -= rate d`). The gradient is zero afterwards, ready for the next mini-batch. A buffer begins
/// as zeros, which makes the first direction `d` itself, as in PyTorch.
///
/// # Panics
/// When the tensors differ in size.
pub fn sgd(weight: &mut [f32], gradient: &mut [f32], momentum: Option<&mut [f32]>, step: SgdStep) {
    assert_eq!(weight.len(), gradient.len(), "one gradient per weight");
    let SgdStep { learning_rate, momentum: share, weight_decay } = step;
    match momentum {
        Some(buffer) => {
            assert_eq!(weight.len(), buffer.len(), "one momentum per weight");
            for ((w, g), buffer) in weight.iter_mut().zip(gradient).zip(buffer) {
                *buffer = share * *buffer + (*g + weight_decay * *w);
                *w -= learning_rate * *buffer;
                *g = 0.0;
            }
        }
        None => {
            for (w, g) in weight.iter_mut().zip(gradient) {
                *w -= learning_rate * (*g + weight_decay * *w);
                *g = 0.0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two steps of `torch.optim.SGD([2.0], lr=0.1, momentum=0.9, weight_decay=0.5)` with
    /// gradients 1 and -1, by hand: d = 1 + 1 = 2, w = 1.8; d = -1 + 0.9 = -0.1, buffer = 1.7.
    #[test]
    fn two_steps_by_hand() {
        let (mut w, mut g, mut buffer) = ([2.0], [1.0], [0.0]);
        let step = SgdStep { learning_rate: 0.1, momentum: 0.9, weight_decay: 0.5 };
        sgd(&mut w, &mut g, Some(&mut buffer), step);
        assert!((w[0] - 1.8).abs() < 1e-6 && g[0] == 0.0);
        g[0] = -1.0;
        sgd(&mut w, &mut g, Some(&mut buffer), step);
        assert!((buffer[0] - 1.7).abs() < 1e-6 && (w[0] - 1.63).abs() < 1e-6);
    }

    #[test]
    fn without_a_buffer_momentum_is_not_used() {
        let (mut w, mut g) = ([2.0], [1.0]);
        let step = SgdStep { learning_rate: 0.5, momentum: 0.9, weight_decay: 0.0 };
        sgd(&mut w, &mut g, None, step);
        assert_eq!((w, g), ([1.5], [0.0]));
    }
}
