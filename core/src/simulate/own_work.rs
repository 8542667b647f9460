//! Encoding and decoding of gradients on the device that computes.

use crate::units::Nanos;

/// What a lane's device still has to encode and decode of gradients beside its passes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnWork {
    owed: Nanos,
}

impl OwnWork {
    /// Gradients are complete that take so much work.
    pub fn owe(&mut self, work: Nanos) {
        self.owed += work;
    }

    /// How much longer `pass`, or a part of one, takes: both get half of the device until one of them
    /// is done.
    pub fn delay(&mut self, pass: Nanos) -> Nanos {
        let done = self.owed.min(pass);
        self.owed -= done;
        done
    }

    /// The lane waits for its sums, whose time has the rest in it.
    pub fn wait(&mut self) {
        self.owed = Nanos::ZERO;
    }
}
