//! Generations of lives for spreadsheets.

use pipewright_core::elastic::life::{Generation, Life};
use pipewright_core::units::Nanos;
use std::fmt::Write;

/// A line for each generation of each life, by the life's name; times in seconds since the job began.
pub fn text(lives: &[(String, &Life)]) -> String {
    let mut out = String::from(
        "life,generation,ranks,replicas,mini_batch,launched_s,training_s,ended_s,cause,first_step,\
         last_step,samples_per_s,detect_ms,recover_ms\n",
    );
    for (name, life) in lives {
        life.generations.iter().for_each(|generation| line(&mut out, name, generation));
    }
    out
}

fn line(out: &mut String, name: &str, g: &Generation) {
    let seconds = |at: Option<Nanos>| at.map_or(String::new(), |at| format!("{:.3}", at.secs()));
    let ms = |at: Option<Nanos>| at.map_or(String::new(), |at| format!("{:.3}", at.secs() * 1e3));
    let cause = g.ended.map_or(String::new(), |(_, cause)| format!("{cause:?}"));
    let rate = g.throughput().map_or(String::new(), |rate| format!("{rate:.3}"));
    // Writing into a String cannot fail.
    let _ = writeln!(
        out,
        "\"{}\",{},{},{},{},{},{},{},{cause},{},{},{rate},{},{}",
        name.replace('"', "'"),
        g.number,
        g.ranks,
        g.replicas,
        g.mini_batch,
        seconds(Some(g.launched)),
        seconds(g.training),
        seconds(g.ended.map(|(at, _)| at)),
        g.first_step,
        g.last_step(),
        ms(g.loss.and_then(|loss| loss.detected)),
        ms(g.recovered),
    );
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_line_has_every_column() {
        let text = include_str!("../../../../../tests/data/elastic/losses.jsonl");
        let recorded = crate::screens::elastic::model::read("losses.jsonl", text).unwrap();
        let csv = super::text(&[("a \"b\"".into(), &recorded.life)]);
        let columns = |line: &str| line.split(',').count();
        assert_eq!(csv.lines().count(), recorded.life.generations.len() + 1);
        assert!(csv.lines().all(|line| columns(line) == 14), "{csv}");
    }
}
