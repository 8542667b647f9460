//! The selected layer and the plan's figures beside the chain, as markup.

use super::chain::Look;
use crate::base::format::{self, Clock, Delta, escape};
use crate::base::texts::{said, t, tr};
use crate::planner::engine::Figures;
use crate::screens::model::anatomy::Passes;
use crate::screens::model::anatomy::fold::LayerRow;
use pipewright_core::graph::Graph;
use pipewright_core::units::Bytes;
use std::fmt::Write;

/// Operations that are listed; a longer list is cut, and says so.
const OPERATIONS: usize = 40;

/// Step time and peak memory against the last edit and A.
pub fn results(now: &Figures, others: [Option<Figures>; 2], problem: Option<&str>) -> String {
    let mut out = format!(
        "<table><thead><tr><th colspan='3'><h2>{}</h2></th><th class='num'>{}</th><th class='num'>{}</th></tr></thead><tbody>",
        t("This plan"),
        t("last edit"),
        t("vs A")
    );
    let (step, unit) = format::hero(now.step);
    let _ = write!(
        out,
        "<tr class='big'><th scope='row'>{}</th><td class='num v' id='model-step' data-value='{}'>{step}</td><td class='u'>{unit}</td>",
        t("Step time"),
        now.step.0
    );
    changes(others, |other| format::relative(now.step.secs(), other.step.secs()), &mut out);
    let (peak, unit) = format::bytes(now.peak);
    let _ = write!(
        out,
        "</tr><tr><th scope='row'>{}</th><td class='num v'>{peak}</td><td class='u'>{unit}</td>",
        t("Peak memory")
    );
    changes(others, |other| format::relative(now.peak.0 as f64, other.peak.0 as f64), &mut out);
    out.push_str("</tr></tbody></table>");
    if let Some(why) = problem {
        let _ = write!(out, "<p class='why'><b class='bad'>{}</b></p>", escape(&said(why)));
    }
    out
}

/// Less is better; an arrow says the direction, so that colour is not alone.
fn changes(others: [Option<Figures>; 2], by: impl Fn(&Figures) -> Delta, out: &mut String) {
    for other in others {
        let (class, sign, text) = match other.as_ref().map(&by) {
            None | Some(Delta::Same) => ("dim", "", "0".into()),
            Some(Delta::By { down: true, text }) => ("good", "▼ ", text),
            Some(Delta::By { text, .. }) => ("bad", "▲ ", text),
        };
        let _ = write!(out, "<td class='num {class}'>{sign}{text}</td>");
    }
}

/// Name and stage; `borders` are the first layers of the stages but the first.
pub fn heading(row: &LayerRow, look: &Look, borders: &[usize]) -> String {
    let (name, count) = look.name(row);
    let stage = |layer: usize| borders.partition_point(|b| *b <= layer);
    let stages = match (stage(row.first), stage(row.end - 1)) {
        (a, b) if a == b => tr!("stage {stage}", stage = a),
        (a, b) => tr!("stages {a} to {b}", a, b),
    };
    let layers =
        if count > 1 { format!(" · {}", tr!("{count} layers", count)) } else { String::new() };
    let name = escape(name);
    format!("<h2 id='layer-name'>{name}</h2><span class='dim small'>{stages}{layers}</span>")
}

/// What is known of a row besides its times, then its operations with the shapes that they give.
pub fn facts(row: &LayerRow, look: &Look, graph: &Graph) -> String {
    let layers = &look.anatomy.layers[row.first..row.end];
    let time = look.time(row);
    let all = Passes::sum(look.times).both();
    let share = time.both().secs() / all.secs().max(1e-12);
    let clock = Clock::of(time.both());
    let kept = look.anatomy.kept(row.first..row.end, look.samples);
    let sends = layers.last().map_or(Bytes::ZERO, |l| l.sends * look.samples);
    let flops: u64 = layers.iter().map(|l| l.flops).sum();
    let mut list = vec![];
    if row.group().is_some() {
        list.push((t("Forward"), clock.text(time.forward)));
        list.push((t("Backward"), clock.text(time.backward)));
    }
    list.push((t("Share of all layers"), format!("{} %", format::percent(share, 1))));
    list.push((t("Parameters"), look.params(row)));
    list.push((t("Forward, one sample"), format!("{}FLOP", format::scaled(flops as f64))));
    list.push((t("Kept for backward"), format::bytes_text(kept)));
    list.push((t("Sent if cut here"), format::bytes_text(sends)));
    let mut out = String::from("<dl class='facts'>");
    for (name, value) in list {
        let _ = write!(out, "<dt>{name}</dt><dd>{value}</dd>");
    }
    out.push_str("</dl>");
    if let (Some(first), Some(last)) = (layers.first(), layers.last()) {
        operations(graph, first.nodes.start as usize, last.nodes.end as usize, &mut out);
    }
    out
}

fn operations(graph: &Graph, first: usize, end: usize, out: &mut String) {
    let nodes = graph.nodes().get(first..end).unwrap_or_default();
    let (operation, gives) = (t("operation"), t("output, one sample"));
    let _ = write!(
        out,
        "<table class='shares ops'><thead><tr><th>{operation}</th><th class='num'>{gives}</th></tr></thead><tbody>"
    );
    for node in nodes.iter().take(OPERATIONS) {
        let shape: Vec<String> = node.output.shape.iter().map(u64::to_string).collect();
        let _ = write!(
            out,
            "<tr><td title='{}'>{}</td><td class='num'>{}</td></tr>",
            escape(&node.name).replace('\'', "&#39;"),
            node.op.name(),
            shape.join(" × ")
        );
    }
    out.push_str("</tbody></table>");
    if nodes.len() > OPERATIONS {
        let _ = write!(
            out,
            "<p class='note'>{}</p>",
            tr!("and {count} more", count = nodes.len() - OPERATIONS)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::engine::{self, Ground};
    use crate::planner::presets::EXAMPLES;
    use crate::screens::model::anatomy::chain::Chain;
    use crate::screens::model::anatomy::{Anatomy, fold};

    #[test]
    fn figures_say_their_direction() {
        let inputs = EXAMPLES[0].inputs();
        let now = engine::solve(&inputs, &Ground::of(&inputs)).unwrap().figures;
        let slower = Figures { step: now.step + now.step, ..now };
        let markup = results(&now, [Some(slower), None], Some("a < b"));
        assert_eq!(markup.matches("▼ 50 %").count(), 1);
        assert_eq!(markup.matches("num dim").count(), 3);
        assert!(
            markup.contains(&format!("data-value='{}'", now.step.0)) && markup.contains("a &lt; b")
        );
    }

    #[test]
    fn a_layer_and_a_group_are_described() {
        let inputs = EXAMPLES[2].inputs();
        let ground = Ground::of(&inputs);
        let anatomy = Anatomy::new(&ground.graph);
        let groups = fold::groups(anatomy.layers.iter().map(|l| l.name.as_str()));
        let times = anatomy.times(&ground.costs);
        let look = Look {
            anatomy: &anatomy,
            groups: &groups,
            times: &times,
            typed: &[],
            samples: 4,
            selected: None,
        };
        let chain = Chain::new(anatomy.layers.len(), &groups, &vec![false; groups.len()], &[]);
        assert!(heading(&chain.rows[3], &look, &[9, 12]).contains("stages 0 to 2 · 6 layers"));
        let group = facts(&chain.rows[3], &look, &ground.graph);
        assert!(group.contains("<dt>Backward</dt>") && group.contains("more</p>"));
        let layer = facts(&chain.rows[0], &look, &ground.graph);
        assert!(!layer.contains("<dt>Backward</dt>") && layer.contains("64 × 112 × 112"));
    }
}
