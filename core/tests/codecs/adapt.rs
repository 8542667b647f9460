//! Forecasts against SciPy's fits, awkward inputs, and choices.

use pipewright_core::adapt::{
    Candidate, ChoiceError, Curve, CurveError, Decision, Fitted, Point, Question,
};
use proptest::prelude::*;
use serde_json::Value;
use std::path::Path;

fn golden() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/learning_curves.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// Numbers; null is NaN.
fn numbers(value: &Value) -> Vec<f64> {
    list(value).iter().map(|v| v.as_f64().unwrap_or(f64::NAN)).collect()
}

fn points(case: &Value) -> Vec<Point> {
    let pairs = numbers(&case["x"]).into_iter().zip(numbers(&case["y"]));
    pairs.map(|(x, accuracy)| Point { x, accuracy }).collect()
}

fn curve(name: &str) -> Option<Curve> {
    let names = ["vap", "pow3", "log_power", "ilog2", "weibull"];
    names.iter().position(|n| *n == name).map(|i| Curve::ALL[i])
}

fn fit_of(fits: &[Fitted], curve: Curve) -> &Fitted {
    fits.iter().find(|fitted| fitted.curve == curve).unwrap()
}

#[test]
fn single_fits() {
    let mut checked = 0;
    for case in list(&golden()["single_fits"]) {
        let Some(curve) = curve(case["model"].as_str().unwrap()) else { continue };
        let what = format!("{curve:?}, sigma {}", case["sigma"]);
        let forecast = Curve::forecast(&points(case), 120.0).unwrap();
        let fitted = fit_of(&forecast.fits, curve);
        let tolerance = |key: &str| case["tolerance"][key].as_f64().unwrap();
        let sse = case["sse"].as_f64().unwrap();
        let allowed = (tolerance("sse_rel") * sse).max(tolerance("sse_abs"));
        assert!((fitted.squares - sse).abs() <= allowed, "{what}: {} not {sse}", fitted.squares);
        for (x, expected) in numbers(&case["horizon"]).into_iter().zip(numbers(&case["predicted"]))
        {
            let got = curve.value(&fitted.parameters, x);
            assert!((got - expected).abs() <= tolerance("predicted_abs"), "{what} at {x}: {got}");
        }
        checked += 1;
    }
    assert_eq!(checked, 10, "five shapes, clean and noisy");
}

#[test]
fn two_stages() {
    for case in list(&golden()["five_combination"]["cases"]) {
        let tolerance = case["two_stage"]["tolerance"]["predicted_abs"].as_f64().unwrap();
        let expected = numbers(&case["two_stage"]["predicted"]);
        for (x, expected) in numbers(&case["horizon"]).into_iter().zip(expected) {
            let got = Curve::forecast(&points(case), x).unwrap().accuracy;
            let off = (got - expected).abs();
            assert!(off <= tolerance, "{} at {x}: {got}, not {expected}", case["truth_model"]);
        }
    }
}

#[test]
fn functions_at_their_defaults() {
    for function in list(&golden()["functions"]) {
        let name = function["name"].as_str().unwrap();
        let Some(curve) = curve(name) else { continue };
        let default = |key: &str| function["defaults"][key].as_f64().unwrap();
        let mut parameters = [0.0; 4];
        for (place, name) in parameters.iter_mut().zip(list(&function["params"])) {
            *place = default(name.as_str().unwrap());
        }
        if curve == Curve::Weibull {
            parameters[2] = parameters[2].ln();
        }
        let expected = numbers(&function["y_at_defaults"]);
        for (x, expected) in numbers(&function["x"]).into_iter().zip(expected) {
            let got = curve.value(&parameters, x);
            assert!((got - expected).abs() < 1e-12, "{name} at {x}: {got}, not {expected}");
        }
    }
}

#[test]
fn awkward_inputs() {
    for case in list(&golden()["must_not_panic"]["cases"]) {
        let (name, points) = (case["case"].as_str().unwrap(), points(case));
        let last = points.last().map_or(1.0, |p| p.x);
        let result = Curve::forecast(&points, 2.0 * last);
        match name {
            "constant" => assert!((result.unwrap().accuracy - 0.5).abs() < 1e-3),
            "falling" => assert!((0.0..=0.48).contains(&result.unwrap().accuracy)),
            "two points" | "empty" => {
                assert_eq!(result, Err(CurveError::TooFewPoints { got: points.len() }));
            }
            "nan in middle" => {
                assert!(matches!(result, Err(CurveError::Accuracy { index: 2, .. })));
            }
            "x contains 0" => assert_eq!(result, Err(CurveError::Place { index: 0, x: 0.0 })),
            "accuracy above 1" => {
                assert_eq!(result, Err(CurveError::Accuracy { index: 2, accuracy: 1.1 }));
            }
            other => panic!("what is expected of {other}?"),
        }
    }
}

#[test]
fn horizons_too_far_are_refused() {
    let point = |x: u32| Point { x: f64::from(x), accuracy: 0.5 };
    let points: Vec<Point> = (1..=10).map(point).collect();
    assert!(Curve::forecast(&points, 30.0).is_ok());
    for horizon in [30.1, 0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = Curve::forecast(&points, horizon).unwrap_err();
        assert!(matches!(error, CurveError::Horizon { last: 10.0, .. }));
        assert!(error.to_string().contains("3 times"), "{error}");
    }
}

/// The unit of x does not matter.
#[test]
fn steps_or_epochs() {
    let by = |unit: f64| {
        let point = |x: f64| Point { x: x * unit, accuracy: 0.7 - 0.5 / x };
        let points: Vec<Point> = (1..=30).map(|x| point(f64::from(x))).collect();
        Curve::forecast(&points, 60.0 * unit).unwrap().accuracy
    };
    for unit in [1.0 / 1024.0, 512.0] {
        assert!((by(unit) - by(1.0)).abs() < 1e-9);
    }
}

proptest! {
    #[test]
    fn forecasts_are_accuracies(
        ys in proptest::collection::vec(0.0f64..=1.0, 5..60),
        first in 0.001f64..1000.0,
        distance in 0.001f64..1000.0,
        ahead in 0.1f64..=3.0,
    ) {
        let point = |(i, accuracy): (usize, &f64)| Point { x: first + i as f64 * distance, accuracy: *accuracy };
        let points: Vec<Point> = ys.iter().enumerate().map(point).collect();
        match Curve::forecast(&points, ahead * points.last().unwrap().x) {
            Ok(forecast) => prop_assert!((0.0..=1.0).contains(&forecast.accuracy)),
            Err(error) => prop_assert_eq!(error, CurveError::NoFit),
        }
    }
}

fn question(case: &Value, trial_seconds: f64) -> Question {
    let candidates = serde_json::from_value(case["candidates"].clone()).unwrap();
    Question { candidates, steps: case["steps"].as_u64().unwrap(), trial_seconds }
}

#[test]
fn choices() {
    for case in list(&golden()["choice"]["cases"]) {
        let decision = Decision::of(question(case, 0.0)).unwrap();
        assert_eq!(decision.winner().name, case["winner"].as_str().unwrap());
        assert_eq!(decision.gains, numbers(&case["gain_per_second"]));
        let json = serde_json::to_string(&decision).unwrap();
        let logged: pipewright_core::adapt::Decision = serde_json::from_str(&json).unwrap();
        assert_eq!(Decision::of(logged.question.clone()).unwrap(), logged, "it can be replayed");
    }
}

#[test]
fn trials_take_time() {
    let candidate = |name: &str, predicted: f64, seconds_per_step: f64| Candidate {
        name: name.into(),
        current: 0.5,
        predicted,
        seconds_per_step,
    };
    let candidates = vec![candidate("fp32", 0.54, 0.1), candidate("table(1)", 0.52, 0.04)];
    let of = |trial_seconds| {
        let question = Question { candidates: candidates.clone(), steps: 100, trial_seconds };
        Decision::of(question).unwrap().winner().name.clone()
    };
    assert_eq!((of(0.0), of(3.0)), ("table(1)".into(), "fp32".into()), "0.04 / 13 s, 0.02 / 7 s");
    let none = Question { candidates: vec![], steps: 1, trial_seconds: 0.0 };
    assert_eq!(Decision::of(none), Err(ChoiceError::NoCandidates));
    for (predicted, seconds, trials) in [(f64::NAN, 0.1, 0.0), (0.6, 0.0, 1.0), (0.6, 0.1, -1.0)] {
        let candidates = vec![candidate("fp8", predicted, seconds)];
        let question = Question { candidates, steps: 10, trial_seconds: trials };
        assert!(matches!(Decision::of(question), Err(ChoiceError::Numbers { .. })));
    }
}
