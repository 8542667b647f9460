//! State of the Elastic screen, set even before it is seen.

use super::model::Recorded;
use crate::base::shared::Shared;
use crate::state::State;
use crate::state::request::Request;
use leptos::prelude::*;

/// All of it.
#[derive(Clone, Copy)]
pub struct ElasticState {
    /// The job to simulate, as its word in links.
    pub job: RwSignal<String>,
    /// What it was before, and what was undone.
    jobs: RwSignal<[Vec<String>; 2]>,
    /// A job's records, to be shown.
    pub record: RwSignal<Option<Shared<Recorded>>>,
}

impl ElasticState {
    /// The usual job.
    pub fn new() -> Self {
        Self {
            job: RwSignal::new(String::new()),
            jobs: RwSignal::new([vec![], vec![]]),
            record: RwSignal::new(None),
        }
    }

    /// Another job to simulate: a step of undo where it is another.
    pub fn ask(self, page: State, job: String) {
        let before = self.job.get_untracked();
        if job != before {
            self.jobs.update(|[past, future]| {
                past.push(before);
                future.clear();
            });
        }
        self.job.set(job);
        page.request(Request::Remember);
    }

    /// Whether undo (0) or redo (1) would change something.
    pub fn can_travel(self, way: usize) -> bool {
        self.jobs.with(|jobs| !jobs[way].is_empty())
    }

    /// Undo (0) and redo (1).
    pub fn travel(self, page: State, way: usize) {
        let mut to = None;
        let now = self.job.get_untracked();
        self.jobs.update(|jobs| {
            to = jobs[way].pop();
            if to.is_some() {
                jobs[1 - way].push(now);
            }
        });
        if let Some(job) = to {
            self.job.set(job);
            page.request(Request::Follow);
        }
    }
}
