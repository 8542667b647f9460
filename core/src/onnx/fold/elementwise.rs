//! Arithmetic, comparisons, choices.

use crate::onnx::node::Attributes;
use crate::onnx::tensor::{Elem, Tensor};

pub(super) fn fold(
    op: &str,
    attributes: &Attributes,
    inputs: &[Option<&Tensor>],
) -> Option<Tensor> {
    match inputs {
        [Some(x)] => unary(op, attributes, x),
        [Some(a), Some(b)] => binary(op, a, b).or_else(|| variadic(op, inputs)),
        [Some(test), Some(a), Some(b)] if op == "Where" => choose(test, a, b),
        _ => variadic(op, inputs),
    }
}

fn unary(op: &str, attributes: &Attributes, x: &Tensor) -> Option<Tensor> {
    let float = |f: fn(f64) -> f64| Some(x.map(x.elem, f));
    match op {
        "Neg" => float(|x| -x),
        "Abs" => float(f64::abs),
        "Sqrt" => float(f64::sqrt),
        "Exp" => float(f64::exp),
        "Log" => float(f64::ln),
        "Sin" => float(f64::sin),
        "Cos" => float(f64::cos),
        "Floor" => float(f64::floor),
        "Ceil" => float(f64::ceil),
        "Reciprocal" => float(|x| 1.0 / x),
        "Sign" => float(|x| if x == 0.0 { 0.0 } else { x.signum() }),
        "Round" => float(f64::round_ties_even),
        "Tanh" => float(f64::tanh),
        "Relu" => float(|x| x.max(0.0)),
        "Not" => Some(x.map(Elem::Bool, |x| f64::from(x == 0.0))),
        "IsNaN" => Some(x.map(Elem::Bool, |x| f64::from(x.is_nan()))),
        "Cast" => {
            let to = Elem::of(i32::try_from(attributes.int("to")?).ok()?)?;
            Some(cast(x, to))
        }
        _ => None,
    }
}

fn cast(x: &Tensor, to: Elem) -> Tensor {
    match to {
        Elem::Float => x.map(to, |x| x),
        Elem::Int => x.map(to, f64::trunc),
        Elem::Bool => x.map(to, |x| f64::from(x != 0.0)),
    }
}

fn binary(op: &str, a: &Tensor, b: &Tensor) -> Option<Tensor> {
    let whole = a.elem == Elem::Int && b.elem == Elem::Int;
    let number = |f: fn(f64, f64) -> f64| a.zip(b, a.elem, f);
    let truth = |f: fn(&f64, &f64) -> bool| a.zip(b, Elem::Bool, |x, y| f64::from(f(&x, &y)));
    match op {
        "CastLike" => Some(cast(a, b.elem)),
        "Add" => number(|x, y| x + y),
        "Sub" => number(|x, y| x - y),
        "Mul" => number(|x, y| x * y),
        "Div" if whole => number(|x, y| (x / y).trunc()),
        "Div" => number(|x, y| x / y),
        "Mod" if whole => number(|x, y| x - y * (x / y).floor()),
        "Pow" => number(power),
        "Equal" => truth(f64::eq),
        "Less" => truth(f64::lt),
        "LessOrEqual" => truth(f64::le),
        "Greater" => truth(f64::gt),
        "GreaterOrEqual" => truth(f64::ge),
        "And" => truth(|x, y| *x != 0.0 && *y != 0.0),
        "Or" => truth(|x, y| *x != 0.0 || *y != 0.0),
        "Xor" => truth(|x, y| (*x != 0.0) != (*y != 0.0)),
        _ => None,
    }
}

/// Square roots and small whole powers are the same on every machine.
fn power(x: f64, y: f64) -> f64 {
    match y {
        0.5 => x.sqrt(),
        -0.5 => 1.0 / x.sqrt(),
        _ if y.fract() == 0.0 && y.abs() < 64.0 => x.powi(y as i32),
        _ => x.powf(y),
    }
}

fn choose(test: &Tensor, a: &Tensor, b: &Tensor) -> Option<Tensor> {
    // Two passes instead of a three-way one: NaN marks what the second takes from `b`.
    let marked = test.zip(a, a.elem, |test, a| if test != 0.0 { a } else { f64::NAN })?;
    let taken = test.zip(b, Elem::Bool, |test, _| test)?;
    let chosen = marked.zip(&taken, a.elem, |x, _| x)?;
    let other = taken.zip(b, a.elem, |test, b| if test != 0.0 { f64::NAN } else { b })?;
    chosen.zip(&other, a.elem, |x, y| if x.is_nan() { y } else { x })
}

fn variadic(op: &str, inputs: &[Option<&Tensor>]) -> Option<Tensor> {
    let f = match op {
        "Min" => f64::min,
        "Max" => f64::max,
        "Sum" => |a, b| a + b,
        _ => return None,
    };
    let (first, rest) = inputs.split_first()?;
    rest.iter().try_fold((*first)?.clone(), |sum, x| sum.zip((*x)?, sum.elem, f))
}
