//! The schedule as text, a line a lane: `0F0 0F1 0B0`.

use crate::base::texts::tr;
use pipewright_core::schedule::Schedule;

/// Actions of a lane that are written out; the rest is counted.
const SHOWN_MAX: usize = 256;

pub fn lines(schedule: &Schedule) -> String {
    let mut out = String::new();
    for (lane, actions) in schedule.lanes.iter().enumerate() {
        let words: Vec<String> = actions.iter().take(SHOWN_MAX).map(ToString::to_string).collect();
        out += &tr!(
            "lane {lane} {actions}",
            lane = format_args!("{lane:<3}"),
            actions = words.join(" ")
        );
        if let Some(more) = actions.len().checked_sub(SHOWN_MAX + 1) {
            out += " … ";
            out += &tr!("and {count} more", count = more + 1);
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipewright_core::schedule::ScheduleKind;

    #[test]
    fn a_line_a_lane_and_no_end_of_text() {
        let text = lines(&ScheduleKind::GPipe.generate(2, 2).unwrap());
        assert_eq!(text, "lane 0   0F0 0F1 0B0 0B1\nlane 1   1F0 1F1 1B0 1B1\n");
        assert!(lines(&ScheduleKind::GPipe.generate(1, 500).unwrap()).contains("… and 744 more"));
    }
}
