//! A worker's whole life: one graph, and what is asked about it.

use crate::open::{self, Work};
use crate::protocol::{Reply, Request};
use crate::working::Working;
use std::collections::VecDeque;

/// Works on what it is asked; replies wait until they are taken.
#[derive(Default)]
pub struct Session {
    work: Option<Working>,
    out: VecDeque<Reply>,
}

impl Session {
    /// Does what is asked; what comes of it is in the replies. Before a graph is open, and to open a
    /// second one, nothing is done.
    pub fn receive(&mut self, request: Request) {
        match (request, &mut self.work) {
            (Request::Stage { plan, stage }, None) => self.open(open::stage(&plan, stage)),
            (_, None) => {}
            (request, Some(working)) => working.receive(request, &mut self.out),
        }
    }

    /// Opens a file of a graph, unpacked.
    pub fn open_file(&mut self, name: &str, text: &[u8]) {
        if self.work.is_none() {
            self.open(open::file(name, text));
        }
    }

    fn open(&mut self, work: Result<Work, String>) {
        match work {
            Ok(work) => {
                // Searches borrow the graph. A worker opens one and ends with it, so it is never
                // given back.
                let mut working = Working::new(Box::leak(Box::new(work)));
                self.out.push_back(Reply::Opened(working.opened()));
                working.show(&mut self.out);
                self.work = Some(working);
            }
            Err(why) => self.out.push_back(Reply::Failed { why }),
        }
    }

    /// Searches for about `moves` moves; whether there is more to do.
    pub fn step(&mut self, moves: u64) -> bool {
        self.work.as_mut().is_some_and(|working| working.step(moves))
    }

    /// Says how far it is, and shows the answer if there is another one.
    pub fn report(&mut self) {
        if let Some(working) = &mut self.work {
            working.report(&mut self.out);
        }
    }

    /// The next reply.
    pub fn take(&mut self) -> Option<Reply> {
        self.out.pop_front()
    }
}
