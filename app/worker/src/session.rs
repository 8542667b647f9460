//! A worker's whole life: one graph or one question for plans, and what is asked about it.

use crate::advising::Advising;
use crate::making::make;
use crate::open::{self, Work};
use crate::orders::Ordering;
use crate::plans::Planning;
use crate::protocol::{Reply, Request};
use crate::working::Working;
use std::collections::VecDeque;

/// Works on what it is asked; replies wait until they are taken.
#[derive(Default)]
pub struct Session {
    work: Option<Task>,
    out: VecDeque<Reply>,
}

/// What a worker works on.
enum Task {
    Graph(Box<Working>),
    Plans(Box<Planning>),
    Advice(Box<Advising>),
    Orders(Box<Ordering>),
}

impl Session {
    /// Does what is asked; what comes of it is in the replies. Before something is open, and to open
    /// a second thing, nothing is done.
    pub fn receive(&mut self, request: Request) {
        match (request, &mut self.work) {
            (Request::Stage { plan, stage }, None) => self.open(open::stage(&plan, stage)),
            (Request::Plans { plan, devices }, None) => match Planning::new(&plan, devices) {
                Ok(planning) => self.work = Some(Task::Plans(Box::new(planning))),
                Err(why) => self.out.push_back(Reply::Failed { why }),
            },
            // The screen changes faster than its plans are looked at: the newest one counts.
            (Request::Advise { plan }, None | Some(Task::Advice(_))) => {
                match Advising::new(&plan) {
                    Ok(advising) => self.work = Some(Task::Advice(Box::new(advising))),
                    Err(why) => self.out.push_back(Reply::Failed { why }),
                }
            }
            (Request::Orders { plan, orders }, None | Some(Task::Orders(_))) => {
                match Ordering::new(&plan, orders) {
                    Ok(ordering) => self.work = Some(Task::Orders(Box::new(ordering))),
                    Err(why) => self.out.push_back(Reply::Failed { why }),
                }
            }
            (Request::Make { plan, what }, None) => self.out.push_back(match make(&plan, what) {
                Ok(made) => Reply::Made(made),
                Err(why) => Reply::Failed { why },
            }),
            (_, None | Some(Task::Advice(_) | Task::Orders(_))) => {}
            (request, Some(Task::Graph(working))) => working.receive(request, &mut self.out),
            (Request::Run { on }, Some(Task::Plans(planning))) => planning.run(on),
            (_, Some(Task::Plans(_))) => {}
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
                self.work = Some(Task::Graph(Box::new(working)));
            }
            Err(why) => self.out.push_back(Reply::Failed { why }),
        }
    }

    /// Searches for about `moves` moves; whether there is more to do.
    pub fn step(&mut self, moves: u64) -> bool {
        match &mut self.work {
            Some(Task::Graph(working)) => working.step(moves),
            Some(Task::Plans(planning)) => planning.step(moves),
            Some(Task::Advice(advising)) => advising.step(),
            Some(Task::Orders(ordering)) => ordering.step(),
            None => false,
        }
    }

    /// Says how far it is, and shows the answer if there is another one.
    pub fn report(&mut self) {
        match &mut self.work {
            Some(Task::Graph(working)) => working.report(&mut self.out),
            Some(Task::Plans(planning)) => self.out.push_back(planning.report()),
            Some(Task::Advice(advising)) => self.out.push_back(advising.report()),
            Some(Task::Orders(ordering)) => self.out.push_back(ordering.report()),
            None => {}
        }
    }

    /// The next reply.
    pub fn take(&mut self) -> Option<Reply> {
        self.out.pop_front()
    }
}
