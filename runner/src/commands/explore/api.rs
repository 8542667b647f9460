//! Requests of the page. All of them are POST with JSON, from the page itself: a browser sends such a
//! request of another page only after a preflight, which nobody answers.

use super::access::Access;
use super::jobs::{Asked, Jobs, Refusal};
use super::site::Site;
use super::watch;
use pipewright_serve::{Reply, Request};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;

/// Longest plan that is taken: one of 64 lanes and 512 micro-batches has 1 MiB.
const PLAN_MAX: u64 = 32 << 20;

/// Longest other question.
const BODY_MAX: u64 = 4096;

/// What answers are written in.
const JSON: &str = "application/json";

/// The plan of the command line.
#[derive(Debug, Serialize)]
pub struct Given {
    /// Its file's name.
    pub name: String,
    /// The file.
    pub text: String,
}

/// All that answers.
pub struct Api {
    /// Who may ask.
    pub access: Access,
    /// The page.
    pub site: Site,
    /// Runs.
    pub jobs: Arc<Jobs>,
    /// What is shown first.
    pub plan: Option<Given>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    token: String,
}

impl Api {
    /// Answers a request.
    pub fn answer(&self, request: &mut Request) -> Reply {
        let answer = self.access.host(request).and_then(|()| {
            match request.path().strip_prefix("/api/").map(str::to_owned) {
                None => Ok(self.site.answer(request)),
                Some(name) => self.asked(&name, request),
            }
        });
        answer.unwrap_or_else(|refusal| refusal)
    }

    fn asked(&self, name: &str, request: &mut Request) -> Result<Reply, Reply> {
        if request.method() != "POST" {
            return Err(Reply::text(405, "POST only").with("Allow", "POST"));
        }
        self.access.origin(request)?;
        if request.header("content-type") != Some(JSON) {
            return Err(Reply::text(415, "questions are application/json"));
        }
        if name == "session" {
            return self.begin(request);
        }
        self.access.session(request)?;
        match name {
            "facts" => Ok(self.facts()),
            "run" => self.run(request),
            "watch" => Ok(match self.jobs.newest() {
                Some(job) => watch::stream(job),
                None => Reply::new(200, watch::LINES, &b"{\"event\":\"none\"}\n"[..]),
            }),
            "stop" => {
                self.jobs.stop();
                Ok(Reply::new(200, JSON, &b"{}"[..]))
            }
            "trace" => {
                let trace = self.jobs.newest().and_then(|job| job.trace());
                trace
                    .map(|text| Reply::new(200, JSON, text))
                    .ok_or_else(|| Reply::text(404, "the run has written no trace yet"))
            }
            _ => Err(Reply::text(404, "nobody answers that")),
        }
    }

    fn begin(&self, request: &mut Request) -> Result<Reply, Reply> {
        let Token { token } = read(&request.body(BODY_MAX)?)?;
        let failed = |e| Reply::text(500, &format!("no session: {e}"));
        match self.access.exchange(&token).map_err(failed)? {
            Some(session) => {
                say!("Opened. For another window: {}", self.access.address());
                Ok(Reply::new(200, JSON, json!({ "session": session }).to_string().into_bytes()))
            }
            None => Err(Reply::text(
                401,
                "this address was opened before; runner explore printed another one since",
            )),
        }
    }

    fn facts(&self) -> Reply {
        let facts = json!({
            "how": self.jobs.how(),
            "folder": self.jobs.folder().display().to_string(),
            "plan": self.plan,
        });
        Reply::new(200, JSON, facts.to_string().into_bytes())
    }

    fn run(&self, request: &mut Request) -> Result<Reply, Reply> {
        let asked: Asked = read(&request.body(PLAN_MAX)?)?;
        match self.jobs.start(&asked) {
            Ok(job) => {
                Ok(Reply::new(200, JSON, json!({ "run": job.number }).to_string().into_bytes()))
            }
            Err(Refusal::Busy) => Err(Reply::text(409, "a run goes on; stop it first")),
            Err(Refusal::Plan(why)) => Err(Reply::text(400, &why)),
            Err(Refusal::Failed(why)) => Err(Reply::text(500, &why)),
        }
    }
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Reply> {
    serde_json::from_slice(body).map_err(|e| Reply::text(400, &format!("the question: {e}")))
}
