//! LARS: a learning rate per parameter, from the lengths of weight and gradient.

use super::super::sums::squares;
use super::sgd::Step;
use crate::{Parameter, Update};

/// The step of a parameter. Those of one axis take the plain momentum step without decay; so does,
/// with decay, a parameter that is all zero or has no gradient: its ratio of lengths says nothing.
pub(super) fn step(
    update: &Update,
    momentum: f32,
    weight_decay: f32,
    trust: f32,
    parameter: &Parameter,
) -> Step {
    if parameter.axes <= 1 {
        return Step { momentum, nesterov: false, weight_decay: 0.0, local: 1.0 };
    }
    let weight = squares(update.threads, parameter.weight).sqrt();
    let gradient = squares(update.threads, parameter.gradient).sqrt() * f64::from(update.scale);
    let local = if weight > 0.0 && gradient > 0.0 {
        (f64::from(trust) * weight / (gradient + f64::from(weight_decay) * weight)) as f32
    } else {
        1.0
    };
    Step { momentum, nesterov: false, weight_decay, local }
}
