//! What codecs lost and the next step makes up for: the bucket's, whatever codec it has.

use super::pieces::{Parts, Piece};
use std::ops::Range;

/// Whose values a residual belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Residual {
    /// This rank's own.
    Worker,
    /// The sums of the part that this rank owns.
    Server,
}

/// The residuals of a bucket; empty without feedback.
pub(super) struct Residuals {
    /// All values that this rank exchanges, one tensor behind the other.
    worker: Vec<f32>,
    server: Vec<f32>,
    /// Where the own part begins among them.
    own: usize,
    before: Option<Before>,
}

/// Both as they were before a sum.
struct Before {
    worker: Vec<f32>,
    server: Vec<f32>,
    /// Whether there was a sum since they were settled.
    summed: bool,
}

impl Residuals {
    /// For so many values of a worker, and of the server of part `own`.
    pub fn new((worker, server): (usize, usize), parts: &Parts, own: usize) -> Self {
        let first = parts.get(own).into_iter().flatten().flatten().next();
        let own = first.map_or(0, |piece| piece.at);
        Self { worker: vec![0.0; worker], server: vec![0.0; server], own, before: None }
    }

    pub fn worker(&mut self, piece: &Piece) -> &mut [f32] {
        &mut self.worker[piece.dense()]
    }

    pub fn server(&mut self, piece: &Piece) -> &mut [f32] {
        let dense = piece.dense();
        &mut self.server[dense.start - self.own..dense.end - self.own]
    }

    pub fn bytes(&self) -> u64 {
        let copies = 1 + u64::from(self.before.is_some());
        4 * copies * (self.worker.len() + self.server.len()) as u64
    }

    /// Takes memory for a copy.
    pub fn allow_undo(&mut self) {
        let (worker, server) = (self.worker.clone(), self.server.clone());
        self.before = Some(Before { worker, server, summed: false });
    }

    /// A sum begins.
    pub fn remember(&mut self) {
        if let Some(before) = &mut self.before {
            before.worker.copy_from_slice(&self.worker);
            before.server.copy_from_slice(&self.server);
            before.summed = true;
        }
    }

    /// What sums since the last call made stays, or is what it was before them.
    pub fn settle(&mut self, undo: bool) {
        let Some(before) = &mut self.before else { return };
        if std::mem::take(&mut before.summed) && undo {
            self.worker.copy_from_slice(&before.worker);
            self.server.copy_from_slice(&before.server);
        }
    }

    /// Shows the residuals of each piece, with its places in the bucket.
    pub fn visit(
        &mut self,
        parts: &Parts,
        own: usize,
        mut visit: impl FnMut(Residual, Range<usize>, &mut [f32]),
    ) {
        let pieces = |part: &Vec<Vec<Piece>>| part.clone().into_iter().flatten();
        if !self.worker.is_empty() {
            for piece in parts.iter().flat_map(pieces) {
                visit(Residual::Worker, piece.range.clone(), self.worker(&piece));
            }
        }
        if !self.server.is_empty() {
            for piece in parts.get(own).into_iter().flat_map(pieces) {
                visit(Residual::Server, piece.range.clone(), self.server(&piece));
            }
        }
    }
}
