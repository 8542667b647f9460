//! The program's failures and their exit codes.

use pipewright_core::predict::PredictError;

/// An error that ends the program.
#[derive(Debug)]
pub struct Failure {
    /// The process's exit code.
    pub code: Code,
    /// What happened, where, what to do.
    pub message: String,
}

/// Exit codes; 0 is success, 2 (usage) is also clap's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// The run failed.
    Failed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// The plan is no plan, is broken, or is too new.
    Plan = 3,
    /// The plan does not fit the machine.
    Hardware = 4,
    /// Peers were lost.
    Peers = 5,
    /// A signal ended the run.
    Interrupted = 130,
}

impl Code {
    /// An elastic job's policy ended it: of those, no plan is ever wrong so late.
    pub const POLICY: Self = Self::Plan;

    /// The code with that number; unknown ones are failures.
    pub fn from_number(number: u8) -> Self {
        let all = [Code::Usage, Code::Plan, Code::Hardware, Code::Peers, Code::Interrupted];
        all.into_iter().find(|code| *code as u8 == number).unwrap_or(Code::Failed)
    }
}

impl Failure {
    /// With a message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// An end that another rank explains.
    pub fn silent(code: Code) -> Self {
        Self::new(code, "")
    }

    /// A command line that makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }

    /// A file that cannot be read or written.
    pub fn file(path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::usage(format!("{}: {error}", path.display()))
    }
}

impl From<PredictError> for Failure {
    fn from(error: PredictError) -> Self {
        Self::new(Code::Plan, error.to_string())
    }
}
