//! What page and worker say to each other: one JSON text a message.

use serde::{Deserialize, Serialize};

/// From the page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Ends the search under way; the answer is [`Reply::Stopped`], also when there is none.
    Stop,
}

/// From the worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Nothing is being searched any more.
    Stopped,
    /// An order that makes no sense; the worker goes on with what it was doing.
    Refused {
        /// What is wrong with it.
        why: String,
    },
    /// The worker did not start, or it panicked. It answers nothing more; `worker.js` writes this.
    Failed {
        /// The browser's or the panic's message.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failure_that_the_script_writes_is_a_reply() {
        let script = include_str!("../worker.js");
        assert!(script.contains("JSON.stringify({ failed: { why: String(error) } })"), "{script}");
        let reply: Reply = serde_json::from_str(r#"{"failed":{"why":"out of memory"}}"#).unwrap();
        assert_eq!(reply, Reply::Failed { why: "out of memory".into() });
    }
}
