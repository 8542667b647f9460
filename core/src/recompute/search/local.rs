//! Changes of one sequence, and the repair of what they break.

use super::super::Problem;
use super::super::closure::{Closure, Closures, Prices};
use super::super::edit::Editor;
use super::super::state::{NONE, State, Ticks};
use super::rng::Rng;

/// A sequence that is being improved.
pub(super) struct Local<'p> {
    pub editor: Editor<'p>,
    pub closures: Closures,
    pub closure: Closure,
    best: Closure,
    living: Vec<u32>,
    pub rng: Rng,
    /// Ticks that a byte is worth: what the last steps paid.
    pub worth: f64,
    /// Moves since last asked.
    pub moves: u64,
}

/// How to repair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repair {
    /// Bytes that may be used.
    pub limit: i64,
    /// Values to look at for each that is given up; all if there are no more.
    pub looks: u32,
    /// Values to give up.
    pub rounds: u32,
    /// Ticks that the sequence may take.
    pub longest: u64,
    /// Whether prices are disturbed.
    pub random: bool,
}

/// A value to give up: until when it is not needed, and what its bytes count.
#[derive(Clone, Copy, Debug)]
struct Loss {
    node: u32,
    next: u32,
    from: u32,
    bytes: i64,
}

impl<'p> Local<'p> {
    pub fn new(problem: &'p Problem, ticks: Ticks, sequence: &[u32], seed: u64) -> Self {
        let state = State::new(problem, ticks, sequence);
        let worth = state.time() as f64 / state.peak().max(1) as f64;
        Self {
            editor: Editor::new(state),
            closures: Closures::new(problem.len()),
            closure: Closure::default(),
            best: Closure::default(),
            living: vec![],
            rng: Rng::new(seed),
            worth,
            moves: 0,
        }
    }

    pub fn state(&self) -> &State<'p> {
        self.editor.state()
    }

    /// Starts from a sequence that can be run.
    pub fn load(&mut self, sequence: &[u32]) {
        self.editor.load(sequence);
        let state = self.editor.state();
        self.worth = state.time() as f64 / state.peak().max(1) as f64;
    }

    pub fn sequence(&self) -> Vec<u32> {
        self.state().sequence()
    }

    pub fn peak(&self) -> i64 {
        self.state().peak()
    }

    /// Gives values up at the peak until the limit is kept. What was changed is for the caller to
    /// keep or to take back.
    pub fn repair(&mut self, how: Repair) -> bool {
        for _ in 0..how.rounds {
            let excess = self.peak() - how.limit;
            if excess <= 0 {
                return true;
            }
            if self.state().time() > how.longest || !self.give_up(how, excess) {
                return false;
            }
        }
        self.peak() <= how.limit
    }

    /// Gives up the value whose loss costs least for each byte.
    fn give_up(&mut self, how: Repair, excess: i64) -> bool {
        // Bytes beyond some times the excess are of no use.
        const USEFUL: i64 = 8;
        let at = self.state().peak_at();
        self.find_living(at);
        let count = self.living.len() as u32;
        let factor = if how.random { self.rng.factor(4.0) } else { 1.0 };
        let byte = self.worth * factor;
        let mut best: Option<(f64, u32)> = None;
        for look in 0..count.min(how.looks) {
            let index = if count <= how.looks { look } else { self.rng.below(count) };
            let Some(loss) = self.loss(self.living[index as usize], at) else { continue };
            let prices = Prices { byte, limit: how.limit, at: loss.from };
            self.moves += 1;
            let state = self.editor.state();
            let found = &mut self.closure;
            if !self.closures.find(state, loss.node, loss.next, prices, found) {
                continue;
            }
            let noise = if how.random { 1.0 + 0.5 * self.rng.unit() } else { 1.0 };
            let bytes = loss.bytes.min(excess.saturating_mul(USEFUL)).max(1);
            let cost = self.closure.price * noise / bytes as f64;
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, loss.next));
                std::mem::swap(&mut self.closure, &mut self.best);
            }
        }
        let Some((_, next)) = best else { return false };
        let Some(next) = self.editor.insert_before(next, &self.best.nodes) else { return false };
        self.editor.merge(next, &self.best.nodes, how.limit);
        true
    }

    /// The slots whose values can be given up to save memory at slot `at`: those that live there,
    /// and everywhere those that live across marks.
    fn find_living(&mut self, at: u32) {
        self.living.clear();
        let state = self.editor.state();
        let problem = state.problem;
        // Where nothing but what lives across marks needs memory, the peak may be at an empty slot.
        let running = match state.item(at) {
            NONE => &[],
            node => problem.inputs(node),
        };
        let living = &mut self.living;
        state.living(at, |slot| {
            let node = state.item(slot);
            if !problem.node(node).once && !running.contains(&node) {
                living.push(slot);
            }
        });
        for (i, &mark) in state.marks().iter().enumerate() {
            let before = &state.marks()[..i];
            state.living(mark, |slot| {
                let node = state.item(slot);
                let counted =
                    before.iter().any(|m| slot < *m) || (slot < at && state.end(slot) >= at);
                if !problem.node(node).once && !counted && problem.node(node).bytes > 0 {
                    living.push(slot);
                }
            });
        }
    }

    /// What giving up the value at `slot` means.
    fn loss(&self, slot: u32, at: u32) -> Option<Loss> {
        let state = self.editor.state();
        let node = state.item(slot);
        let end = state.end(slot);
        let copies = match state.crosses(slot, end) {
            true => i64::from(state.problem.copies()),
            false => 1,
        };
        let lives = slot < at && end >= at;
        let mark = || state.marks().iter().find(|m| slot < **m && **m <= end).copied();
        // A value across a mark is given up there: it is read after it for the first time.
        let from = match (copies > 1, lives) {
            (true, _) | (_, false) => mark()?,
            (false, true) => at,
        };
        let next = state.first_use(node, from)?;
        (next <= end).then_some(Loss { node, next, from, bytes: state.bytes(node) * copies })
    }
}
