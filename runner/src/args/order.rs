//! The order of a plan's actions: a schedule by name, one made for the plan, or one from a file.

use pipewright_core::predict::AUTOMATIC;
use pipewright_core::schedule::{ScheduleKind, UnknownSchedule};
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;

/// What `--schedule` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// A schedule by name.
    Kind(ScheduleKind),
    /// One made for the stages, messages and memory of the plan.
    Automatic,
    /// PyTorch's CSV of a schedule.
    File(PathBuf),
}

/// A name of no order.
#[derive(Debug, Error)]
#[error("{0}; {AUTOMATIC}, which is made for the plan; or PyTorch's CSV of one, FILE.csv")]
pub struct UnknownOrder(UnknownSchedule);

impl FromStr for Order {
    type Err = UnknownOrder;

    fn from_str(text: &str) -> Result<Self, UnknownOrder> {
        let path = PathBuf::from(text);
        match path.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv")) {
            true => Ok(Self::File(path)),
            false if text == AUTOMATIC => Ok(Self::Automatic),
            false => text.parse().map(Self::Kind).map_err(UnknownOrder),
        }
    }
}

/// What `--stage-replicas` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StageReplicas {
    /// As many as are fastest of the ranks.
    Best,
    /// Of each stage.
    Given(Vec<u32>),
}

impl FromStr for StageReplicas {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "best" {
            return Ok(Self::Best);
        }
        let counts: Result<Vec<u32>, _> = text.split(',').map(str::parse).collect();
        let counts = counts.ok().filter(|counts| !counts.contains(&0));
        let wanted = || "it is `best` or a number above 0 for each stage, such as 2,1,1";
        counts.map(Self::Given).ok_or_else(|| wanted().into())
    }
}

/// What `--tensor` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorDegree {
    /// The fastest.
    Auto,
    /// So many ranks.
    Given(u32),
}

impl TensorDegree {
    /// Ranks of a group; one where they are searched.
    pub fn given(self) -> u32 {
        match self {
            Self::Auto => 1,
            Self::Given(degree) => degree,
        }
    }

    /// The same with slices of the sequence, if they are asked for and nothing is searched.
    pub fn given_with(self, sliced: bool) -> (u32, bool) {
        (self.given(), sliced && self != Self::Auto)
    }
}

impl FromStr for TensorDegree {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let degree = text.parse().ok().filter(|degree| (1..=1024).contains(degree));
        degree.map(Self::Given).ok_or_else(|| "it is `auto` or a number in 1..=1024".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_are_numbers_or_searched() {
        let degree = |text: &str| text.parse::<TensorDegree>().ok();
        assert_eq!(degree("auto"), Some(TensorDegree::Auto));
        assert_eq!(degree("8"), Some(TensorDegree::Given(8)));
        assert!(["0", "1025", "two", ""].map(degree).iter().all(Option::is_none));
    }

    #[test]
    fn files_are_told_from_names() {
        let order = |text: &str| text.parse::<Order>();
        assert_eq!(order("zb-h1").ok(), Some(Order::Kind(ScheduleKind::ZbH1)));
        assert_eq!(order("automatic").ok(), Some(Order::Automatic));
        for file in ["order.csv", "a/1f1b.CSV"] {
            assert_eq!(order(file).ok(), Some(Order::File(file.into())));
        }
        let replicas = |text: &str| text.parse::<StageReplicas>();
        assert_eq!(replicas("best"), Ok(StageReplicas::Best));
        assert_eq!(replicas("2,1"), Ok(StageReplicas::Given(vec![2, 1])));
        assert!(["", "2,0", "2;1"].iter().all(|bad| replicas(bad).is_err()));
        let error = order("order.txt").unwrap_err().to_string();
        assert!(error.contains("1f1b, ") && error.contains("v-min; automatic, which"), "{error}");
    }
}
