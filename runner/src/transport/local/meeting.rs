//! Collective calls of threads: everybody brings something, leaves when all have come.

use super::{REDUCE_MAX, ReduceOp};

/// What the ranks meet for. All must mean the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    AllReduce { op: ReduceOp, len: usize },
    Gather,
    Barrier,
}

impl Call {
    pub(super) fn name(self) -> &'static str {
        match self {
            Call::AllReduce { .. } => "all_reduce",
            Call::Gather => "gather",
            Call::Barrier => "barrier",
        }
    }
}

/// The meeting that is open now. What was brought to the last one stays readable until a rank
/// brings something to the next: a rank only does so after it has read, but others may not have.
/// Hence two tables in turn. A third meeting cannot begin before all have left the first.
#[derive(Debug)]
pub(super) struct Meeting {
    ranks: u32,
    /// Number of meetings that have closed.
    closed: u64,
    arrived: u32,
    /// Who came first, and what for.
    first: Option<(u32, Call)>,
    values: [Vec<[f64; REDUCE_MAX]>; 2],
    bytes: Vec<Vec<u8>>,
}

impl Meeting {
    pub(super) fn new(ranks: u32) -> Self {
        let table = || vec![[0.0; REDUCE_MAX]; ranks as usize];
        Self {
            ranks,
            closed: 0,
            arrived: 0,
            first: None,
            values: [table(), table()],
            bytes: vec![vec![]; ranks as usize],
        }
    }

    /// Checks that `rank` wants what the others want; else a sentence for people.
    pub(super) fn agree(&mut self, rank: u32, call: Call) -> Result<(), String> {
        let &mut (first, wanted) = self.first.get_or_insert((rank, call));
        if wanted == call {
            return Ok(());
        }
        Err(format!("rank {first} calls {wanted:?} where rank {rank} calls {call:?}"))
    }

    pub(super) fn bring_values(&mut self, rank: u32, values: [f64; REDUCE_MAX]) {
        self.values[self.closed as usize % 2][rank as usize] = values;
    }

    /// What `rank` brought to the meeting that closed last.
    pub(super) fn values(&self, rank: u32) -> &[f64; REDUCE_MAX] {
        &self.values[(self.closed as usize + 1) % 2][rank as usize]
    }

    pub(super) fn bring_bytes(&mut self, rank: u32, bytes: Vec<u8>) {
        self.bytes[rank as usize] = bytes;
    }

    pub(super) fn take_bytes(&mut self) -> Vec<Vec<u8>> {
        self.bytes.iter_mut().map(std::mem::take).collect()
    }

    /// Counts a rank in; the last one closes the meeting. Returns the meeting's number.
    pub(super) fn arrive(&mut self) -> u64 {
        let number = self.closed;
        self.arrived += 1;
        if self.arrived == self.ranks {
            self.closed += 1;
            self.arrived = 0;
            self.first = None;
        }
        number
    }

    pub(super) fn is_open(&self, number: u64) -> bool {
        self.closed == number
    }
}
