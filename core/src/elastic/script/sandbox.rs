//! The engine that scripts run in: what they can call, and how much of everything they may use.

use crate::elastic::Verdict;
use rhai::packages::{
    ArithmeticPackage, BasicArrayPackage, BasicIteratorPackage, BasicMapPackage,
    BasicStringPackage, LogicPackage, MoreStringPackage, Package,
};
use rhai::{Engine, EvalAltResult, Position};

/// Steps of the interpreter; some milliseconds.
const OPERATIONS: u64 = 50_000;

/// Calls within calls, and expressions within expressions: what the stack of a browser holds.
const DEPTH_CALLS: usize = 16;
const DEPTH_EXPRESSIONS: usize = 32;

const VARIABLES: usize = 200;
const FUNCTIONS: usize = 100;

/// Bytes of a string, elements of an array or a map.
const STRING: usize = 4096;
const ELEMENTS: usize = 4096;

type Result<T> = std::result::Result<T, Box<EvalAltResult>>;

pub(super) fn engine() -> Engine {
    let mut engine = Engine::new_raw();
    // Not the language's core package, which can sleep, nor that of mathematics, whose last bits
    // are the platform's.
    for package in [
        ArithmeticPackage::new().as_shared_module(),
        BasicArrayPackage::new().as_shared_module(),
        BasicIteratorPackage::new().as_shared_module(),
        BasicMapPackage::new().as_shared_module(),
        BasicStringPackage::new().as_shared_module(),
        LogicPackage::new().as_shared_module(),
        MoreStringPackage::new().as_shared_module(),
    ] {
        engine.register_global_module(package);
    }
    engine.disable_symbol("eval");
    engine.disable_symbol("**");
    engine.set_strict_variables(true);
    engine.set_fail_on_invalid_map_property(true);
    engine.set_max_operations(OPERATIONS);
    engine.set_max_call_levels(DEPTH_CALLS);
    engine.set_max_expr_depths(DEPTH_EXPRESSIONS, DEPTH_EXPRESSIONS);
    engine.set_max_variables(VARIABLES);
    engine.set_max_functions(FUNCTIONS);
    engine.set_max_string_size(STRING);
    engine.set_max_array_size(ELEMENTS);
    engine.set_max_map_size(ELEMENTS);
    verdicts(&mut engine);
    numbers(&mut engine);
    engine
}

fn verdicts(engine: &mut Engine) {
    engine.register_type_with_name::<Verdict>("Verdict");
    engine.register_fn("run", || Verdict::Run { ranks: u32::MAX });
    engine.register_fn("run", |ranks: i64| match u32::try_from(ranks) {
        Ok(ranks) => Ok(Verdict::Run { ranks }),
        Err(_) => Err(error(format!("run({ranks}): no such number of ranks"))),
    });
    engine.register_fn("wait", |why: &str| Verdict::wait(why));
    engine.register_fn("fail", |why: &str| Verdict::fail(why));
}

/// The few functions that round alike on every platform, and units of time in seconds.
fn numbers(engine: &mut Engine) {
    engine.register_fn("floor", |x: f64| whole(x.floor()));
    engine.register_fn("ceil", |x: f64| whole(x.ceil()));
    engine.register_fn("round", |x: f64| whole(x.round()));
    engine.register_fn("to_float", |x: i64| x as f64);
    engine.register_fn("hours", |x: i64| x as f64 * 3600.0);
    engine.register_fn("hours", |x: f64| x * 3600.0);
    engine.register_fn("minutes", |x: i64| x as f64 * 60.0);
    engine.register_fn("minutes", |x: f64| x * 60.0);
}

fn whole(x: f64) -> Result<i64> {
    let fits = x.abs() < 9e15;
    if fits { Ok(x as i64) } else { Err(error(format!("{x} is no whole number that fits"))) }
}

fn error(what: String) -> Box<EvalAltResult> {
    EvalAltResult::ErrorRuntime(what.into(), Position::NONE).into()
}
