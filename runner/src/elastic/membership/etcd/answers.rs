//! Answers of etcd that are none: what they are called, and which to ask for again.

use super::MembershipError;
use etcd_client::Error;
use std::error::Error as _;
use std::iter::successors;
use std::time::{Duration, Instant};

/// What words begin with that are etcd's own: somebody is there.
const ANSWERED: &str = "etcdserver: ";

/// Time between two questions to members that elect.
const AGAIN: Duration = Duration::from_millis(100);

/// The innermost cause of an error, or what etcd says itself. gRPC prints the whole chain otherwise.
pub(super) fn why(error: &Error) -> String {
    let Error::GRpcStatus(status) = error else { return error.to_string() };
    match successors(status.source(), |&cause| cause.source()).last() {
        Some(cause) => cause.to_string(),
        None if status.message().is_empty() => status.code().description().into(),
        None => status.message().into(),
    }
}

/// Asks again, for so long, where somebody answers that members elect their leader.
pub(super) fn patiently<T>(
    patience: Duration,
    mut ask: impl FnMut() -> Result<T, MembershipError>,
) -> Result<T, MembershipError> {
    let begin = Instant::now();
    loop {
        match ask() {
            Err(MembershipError::Unreachable { why, .. })
                if why.starts_with(ANSWERED) && begin.elapsed() < patience =>
            {
                std::thread::sleep(AGAIN);
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A coordinator that answers so, one word after another, and then that all is well.
    fn asked(patience: Duration, answers: &[&str]) -> (Result<(), MembershipError>, usize) {
        let mut left = answers.iter();
        let answer = patiently(patience, || match left.next() {
            Some(&why) => {
                Err(MembershipError::Unreachable { address: "there".into(), why: why.into() })
            }
            None => Ok(()),
        });
        (answer, answers.len() - left.len())
    }

    #[test]
    fn members_that_elect_are_asked_again() {
        let electing = ["etcdserver: leader changed", "etcdserver: no leader"];
        let (answer, questions) = asked(Duration::MAX, &electing);
        assert!(answer.is_ok() && questions == 2, "{answer:?} after {questions}");
    }

    #[test]
    fn patience_ends() {
        let (answer, questions) = asked(Duration::ZERO, &["etcdserver: leader changed"; 2]);
        assert!(answer.is_err() && questions == 1, "{answer:?} after {questions}");
    }

    #[test]
    fn where_nobody_answers_nobody_is_asked_again() {
        let (answer, questions) = asked(Duration::MAX, &["Connection refused (os error 111)"; 2]);
        assert!(answer.is_err() && questions == 1, "{answer:?} after {questions}");
    }

    #[test]
    fn a_long_chain_is_named_by_its_innermost_cause() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // No port 1 here: whatever it says, it is one short line.
        let refused = runtime.block_on(async {
            let mut client = etcd_client::Client::connect(["http://127.0.0.1:1"], None).await?;
            client.get("key", None).await.map(drop)
        });
        let refused = why(&refused.unwrap_err());
        assert!(refused.starts_with("Connection refused"), "{refused}");
    }
}
