//! The order of a plan's actions: a schedule by name, or one from a file.

use pipewright_core::schedule::{ScheduleKind, UnknownSchedule};
use std::path::PathBuf;
use std::str::FromStr;

/// What `--schedule` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// A schedule by name.
    Kind(ScheduleKind),
    /// PyTorch's CSV of a schedule.
    File(PathBuf),
}

impl FromStr for Order {
    type Err = UnknownSchedule;

    fn from_str(text: &str) -> Result<Self, UnknownSchedule> {
        let path = PathBuf::from(text);
        match path.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv")) {
            true => Ok(Self::File(path)),
            false => text.parse().map(Self::Kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_from_names() {
        assert_eq!("zb-h1".parse(), Ok(Order::Kind(ScheduleKind::ZbH1)));
        for file in ["order.csv", "a/1f1b.CSV"] {
            assert_eq!(file.parse(), Ok(Order::File(file.into())));
        }
        assert!("order.txt".parse::<Order>().is_err());
    }
}
