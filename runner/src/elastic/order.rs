//! Orders of the supervisor to the survivors of a loss, in a file beside their heartbeats.
//!
//! The supervisor counts those who live by their processes, survivors by MPI. They meet when both have
//! the same number: who finds an order for more survivors waits for the next one, since the supervisor
//! has not yet seen one of the losses; who finds one for fewer has not, and looks again who lives.

use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// The file, and where it is written.
const FILE: &str = "order";
const BESIDE: &str = ".order";

/// Time between two looks for it.
const LOOK: Duration = Duration::from_millis(2);

/// The supervisor ends those that it has no order for long before.
const LIMIT: Duration = Duration::from_secs(60);

/// What survivors are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The generation that they are from now on.
    pub generation: u64,
    /// How many live.
    pub survivors: u32,
    /// How many of them are its ranks: the first ones.
    pub ranks: u32,
}

impl Order {
    /// Gives it to those who beat in `beats`.
    ///
    /// # Errors
    /// When there can be no file.
    pub fn give(&self, beats: &Path) -> io::Result<()> {
        std::fs::write(beats.join(BESIDE), serde_json::to_vec(self).expect("plain data"))?;
        std::fs::rename(beats.join(BESIDE), beats.join(FILE))
    }

    /// Waits for an order to so many survivors of generation `after`, or to fewer; `None` when none comes.
    pub fn wait(beats: &Path, after: u64, survivors: u32) -> Option<Self> {
        let begin = Instant::now();
        let meant = |order: &Self| order.generation > after && order.survivors <= survivors;
        loop {
            let text = std::fs::read(beats.join(FILE)).unwrap_or_default();
            let order: Option<Self> = serde_json::from_slice(&text).ok();
            if let Some(order) = order.filter(meant) {
                return Some(order);
            }
            if begin.elapsed() > LIMIT {
                return None;
            }
            std::thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survivors_take_the_order_that_is_meant_for_them() {
        let folder = std::env::temp_dir().join(format!("order-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let order = |generation, survivors| Order { generation, survivors, ranks: 2 };
        order(4, 3).give(&folder).unwrap();
        assert_eq!(Order::wait(&folder, 3, 3), Some(order(4, 3)));
        assert_eq!(Order::wait(&folder, 3, 4), Some(order(4, 3)), "one more is lost");
        // Another one died meanwhile: the next order is the one.
        let next = std::thread::scope(|scope| {
            let waits = scope.spawn(|| Order::wait(&folder, 3, 2));
            std::thread::sleep(LOOK);
            order(5, 2).give(&folder).unwrap();
            waits.join().unwrap()
        });
        assert_eq!(next, Some(order(5, 2)));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
