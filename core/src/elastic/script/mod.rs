//! Policies that a user writes, in the script language Rhai.
//!
//! A script is an expression that ends in `run()`, `run(ranks)`, `wait("why")` or `fail("why")`,
//! with the facts as constants ([`Script::NAMES`]); or, as in eChainer, a function `ok2run(hosts, initial)`
//! that returns `"ok"`, `"wait"` or `"fail"`.
//!
//! Nothing outside can be reached: no file, module, clock or random number, no `eval`. Operations,
//! depths and sizes are limited; a script that exceeds them, or fails otherwise, ends the job with
//! the reason. Results are the same everywhere: there are no functions whose last bit is the
//! platform's, and a script keeps nothing from one call to the next.

mod sandbox;
mod view;

use super::policy::{Answer, hosts};
use super::{Facts, ScalePolicy, Verdict};
use rhai::{AST, CallFnOptions, Dynamic, Engine, EvalAltResult, Scope};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use thiserror::Error;

/// Longest text of a script, in bytes.
const TEXT_MOST: usize = 64 << 10;

/// Longest reason that a script may give, in characters.
const WHY_MOST: usize = 400;

/// The function that makes a script an eChainer policy.
const OK2RUN: &str = "ok2run";

/// A text that is no policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("policy `{name}`: {what}")]
pub struct ScriptError {
    /// Name of the script.
    pub name: String,
    /// What is wrong, and where.
    pub what: String,
}

/// A compiled policy.
pub struct Script {
    name: String,
    engine: Engine,
    tree: AST,
    ok2run: bool,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Script {
    /// Name and meaning of every constant.
    pub const NAMES: [(&'static str, &'static str); 22] = view::NAMES;

    /// Reads a script; `name` is for messages.
    ///
    /// # Errors
    /// What cannot be read, with its line, and names that are neither constants nor variables.
    pub fn compile(name: &str, text: &str) -> Result<Self, ScriptError> {
        let refuse = |what: String| ScriptError { name: name.into(), what: plain(&what) };
        if text.len() > TEXT_MOST {
            return Err(refuse(format!("{} bytes of text, {TEXT_MOST} at most", text.len())));
        }
        let engine = sandbox::engine();
        // Any facts do: only the names matter here.
        let scope = view::scope(&Facts::initial(1, 1, 1));
        let compile = || engine.compile_with_scope(&scope, text);
        let tree = guarded(compile).map_err(refuse)?.map_err(|e| refuse(e.to_string()))?;
        let ok2run = tree.iter_functions().any(|f| f.name == OK2RUN && f.params.len() == 2);
        Ok(Self { name: name.into(), engine, tree, ok2run })
    }

    fn run(&self, facts: &Facts) -> Result<Verdict, Box<EvalAltResult>> {
        let mut scope = view::scope(facts);
        let result: Dynamic = self.engine.eval_ast_with_scope(&mut scope, &self.tree)?;
        let kind = result.type_name();
        let told = "it must end with run(), run(ranks), wait(why) or fail(why)";
        Ok(result.try_cast().unwrap_or_else(|| Verdict::fail(format!("{told}, not with {kind}"))))
    }

    fn ok2run(&self, facts: &Facts) -> Result<Verdict, Box<EvalAltResult>> {
        let hosts = hosts(facts);
        let names: rhai::Array = hosts.iter().map(|&name| name.into()).collect();
        let arguments = (names, facts.initial);
        let options = CallFnOptions::new().eval_ast(false);
        let mut scope = Scope::new();
        let answer: Dynamic =
            self.engine.call_fn_with_options(options, &mut scope, &self.tree, OK2RUN, arguments)?;
        let answer = answer.into_string().unwrap_or_default();
        Ok(match answer.as_str() {
            "ok" => Answer::Ok.verdict(&hosts),
            "wait" => Answer::Wait.verdict(&hosts),
            "fail" => Answer::Fail.verdict(&hosts),
            _ => Verdict::fail(format!("{OK2RUN} must return \"ok\", \"wait\" or \"fail\"")),
        })
    }
}

impl ScalePolicy for Script {
    fn decide(&self, facts: &Facts) -> Verdict {
        let run = || if self.ok2run { self.ok2run(facts) } else { self.run(facts) };
        match guarded(run) {
            Ok(Ok(Verdict::Run { ranks })) => Verdict::Run { ranks },
            Ok(Ok(Verdict::Wait { why })) => Verdict::wait(plain(&why)),
            Ok(Ok(Verdict::Fail { why })) => Verdict::fail(plain(&why)),
            Ok(Err(error)) => Verdict::fail(plain(&format!("policy `{}`: {error}", self.name))),
            Err(panic) => Verdict::fail(plain(&format!("policy `{}`: {panic}", self.name))),
        }
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// A mistake of the interpreter ends the job, not the process.
fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| "the script's interpreter panicked".into())
}

/// A text of bounded length in one line, fit for a terminal.
fn plain(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(WHY_MOST).map(clean).collect()
}
