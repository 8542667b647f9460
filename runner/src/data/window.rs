//! Window: a sample that changes between two passes, such as a text that grows.

use std::sync::{Arc, Mutex, PoisonError};

/// One sample of tokens. Cloning shares it: who holds a clone changes what ranks read next.
#[derive(Clone, Debug)]
pub struct Window {
    tokens: Arc<Mutex<Vec<u32>>>,
}

impl Window {
    /// A window of `length` tokens, all 0.
    pub fn new(length: usize) -> Self {
        Self { tokens: Arc::new(Mutex::new(vec![0; length])) }
    }

    /// Shows `tokens`, and `rest` in the places behind them.
    ///
    /// # Panics
    /// When there are more tokens than places.
    pub fn show(&self, tokens: &[u32], rest: u32) {
        let mut shown = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        shown[..tokens.len()].copy_from_slice(tokens);
        shown[tokens.len()..].fill(rest);
    }

    /// Writes what is shown.
    pub(super) fn write(&self, out: &mut [u32]) {
        out.copy_from_slice(&self.tokens.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
