//! Middle and right column of the Elastic view as markup: what stays, and what is written anew when a
//! life changes.

use super::scale::{Rows, Scale};
use crate::base::format::{count, escape};
use crate::base::texts::{t, tr};
use crate::draw::buttons::buttons;
use crate::screens::elastic::model::moments::{self, Moment};
use crate::screens::elastic::model::presets;
use crate::screens::elastic::model::scenario::{Event, SLOTS_MOST, Scenario};
use crate::screens::elastic::model::time::{self, spoken};
use crate::screens::elastic::model::totals::Row;
use pipewright_core::elastic::Size;
use pipewright_core::elastic::life::What;
use std::fmt::Write;

/// Moments that are listed.
const LISTED: usize = 400;

/// The middle: what to look at, both pictures, the table of events.
pub fn work() -> String {
    let looks = presets::ALL.iter().enumerate();
    let looks = looks.map(|(at, preset)| (format!("preset={at}"), t(preset.title)));
    let sources = [("sim", t("Simulated")), ("rec", t("Recorded"))];
    let sources = sources.map(|(word, name)| (format!("show={word}"), name));
    format!(
        "<div class='looks'><div class='el-src' id='el-src' hidden>{}<button class='btn' data-do='adopt'>{}</button></div>\
         <div id='el-looks'>{}</div><p class='why' id='el-look'></p></div>\
         <p class='rfail' id='el-busy' role='status'></p>\
         <div class='tbar'><h2 id='el-name-0'></h2><span class='push'></span>\
         <button class='btn' id='el-add' data-do='node'>{}</button>\
         <button class='btn' id='el-all' data-do='all'>{}</button>\
         <button class='btn' id='el-csv' data-do='csv'>CSV</button></div>\
         {}<p class='tfoot el-hint' id='el-hint'></p>\
         <div id='el-other'><div class='tbar'><h2 id='el-name-1'></h2></div>{}</div>\
         <section class='el-events' id='el-table'><div class='tbar'><h2>{}</h2>\
         <span class='small dim' id='el-count'></span></div><div id='el-events'></div></section>",
        buttons(t("What is shown"), "seg", sources),
        t("Simulate these events"),
        buttons(t("Things to look at"), "seg", looks),
        t("Add a node"),
        t("Whole time"),
        frame(0),
        frame(1),
        t("Events"),
    )
}

/// A picture with room for what lies over it.
fn frame(at: usize) -> String {
    let name =
        if at == 0 { t("Job timeline under policy A") } else { t("Job timeline under policy B") };
    format!(
        "<div class='el-frame' id='el-frame-{at}' data-frame='{at}' tabindex='0' role='group' aria-label='{}' \
         aria-describedby='el-hint el-say'><div class='el-pic' id='el-pic-{at}'></div>\
         <div class='el-marks' id='el-marks-{at}'></div><i class='el-cursor' id='el-cursor-{at}' hidden></i>\
         <div class='tip' id='el-tip-{at}' hidden></div></div>",
        escape(name)
    )
}

/// The right column.
pub fn side() -> String {
    let which = [("a", "A"), ("b", "B")].map(|(word, name)| (format!("list={word}"), name));
    format!(
        "<section class='sum'><table id='el-totals'></table><p class='small' id='el-end'></p></section>\
         <section><div class='sec'><h2>{}</h2><span id='el-which'>{}</span></div>\
         <p class='sr' id='el-say' role='status'></p>\
         <ol class='el-log' id='el-log' tabindex='0' aria-label='{}'></ol></section>\
         <section id='el-sizes-s'><h2>{}</h2><table id='el-sizes'></table><p class='small dim'>{}</p></section>",
        t("What happened"),
        buttons(t("Which policy"), "seg", which),
        escape(t("What happened")),
        t("Sizes of this plan"),
        t(
            "As the planner would make them: stages stay where a whole pipeline fits, else the network is cut anew."
        ),
    )
}

/// The marks of events over the lanes: buttons that can be moved.
pub fn marks(scenario: &Scenario, nodes: &[String], scale: &Scale) -> String {
    let rows = Rows::of(nodes.len());
    let mut out = String::new();
    for (at, event) in scenario.events.iter().enumerate() {
        let nanos = event.at as f64 * 1e6;
        let Some(lane) = nodes.iter().position(|node| *node == event.node) else { continue };
        if !scale.sees(nanos, nanos) {
            continue;
        }
        let (sign, class) = sign(event.what);
        let _ = write!(
            out,
            "<button class='el-mark {class}' id='el-mark-{at}' data-ev='{at}' tabindex='-1' style='left:{:.1}px;top:{:.1}px' \
             aria-label='{}'>{sign}</button>",
            scale.x(nanos),
            rows.lane(lane) + rows.bar() / 2.0,
            escape(&spoken_event(event))
        );
    }
    out
}

fn sign(what: What) -> (&'static str, &'static str) {
    match what {
        What::Joins => ("+", ""),
        What::Leaves => ("−", "warn"),
        What::IsLost => ("×", "bad"),
    }
}

/// An event in words.
pub fn spoken_event(event: &Event) -> String {
    let (node, at) = (&event.node, time::text(event.at));
    match event.what {
        What::Joins => tr!("{node} joins at {at}", node, at),
        What::Leaves => tr!("{node} leaves at {at}", node, at),
        What::IsLost => tr!("{node} fails at {at}", node, at),
    }
}

/// The table in which events are edited, by time.
pub fn events(scenario: &Scenario, replica: u32) -> String {
    let mut order: Vec<usize> = (0..scenario.events.len()).collect();
    order.sort_by_key(|at| scenario.events[*at].at);
    let mut out = format!(
        "<table><thead><tr><th>{}</th><th>{}</th><th>{}</th><th>{}</th><th><span class='sr'>{}</span></th></tr></thead><tbody>",
        t("When"),
        t("Node"),
        t("What"),
        t("Slots"),
        t("Remove")
    );
    for at in order {
        let event = &scenario.events[at];
        let options: String = [
            (What::Joins, "join", t("joins")),
            (What::Leaves, "leave", t("leaves")),
            (What::IsLost, "lose", t("fails")),
        ]
        .iter()
        .map(|(what, word, name)| {
            let chosen = if *what == event.what { " selected" } else { "" };
            format!("<option value='{word}'{chosen}>{name}</option>")
        })
        .collect();
        let slots = if event.slots == 0 { replica } else { event.slots };
        let slots = match event.what {
            What::Joins => format!(
                "<input type='number' id='el-slots-{at}' data-cell='slots:{at}' min='1' max='{SLOTS_MOST}' value='{slots}' aria-label='{}'>",
                t("Slots")
            ),
            _ => String::new(),
        };
        let spoken = escape(&spoken_event(event));
        let _ = write!(
            out,
            "<tr><td><input class='find' type='text' id='el-at-{at}' data-cell='at:{at}' value='{}' aria-label='{}'></td>\
             <td><input class='find' type='text' id='el-node-{at}' data-cell='node:{at}' value='{}' aria-label='{}'></td>\
             <td><span class='sel'><select id='el-what-{at}' data-cell='what:{at}' aria-label='{}'>{options}</select></span></td>\
             <td>{slots}</td><td><button class='ib' data-do='remove={at}' aria-label='{}'>×</button></td></tr>",
            time::text(event.at),
            t("When"),
            escape(&event.node),
            t("Node"),
            t("What"),
            tr!("Remove: {event}", event = spoken)
        );
    }
    out + "</tbody></table>"
}

/// The table of figures: of one life, or of two with their difference.
pub fn totals(rows: &[Row], names: &[String]) -> String {
    let heads: String =
        names.iter().map(|name| format!("<th class='num'>{}</th>", escape(name))).collect();
    let change = if names.len() > 1 {
        format!("<th class='num'>{}</th>", t("B to A"))
    } else {
        String::new()
    };
    let mut out =
        format!("<thead><tr><th><h2>{}</h2></th>{heads}{change}</tr></thead><tbody>", t("Figures"));
    for row in rows {
        let cells: String = row
            .values
            .iter()
            .map(|value| format!("<td class='num'>{}</td>", escape(value)))
            .collect();
        let change = match names.len() {
            1 => String::new(),
            _ => format!("<td class='num dim'>{}</td>", row.change),
        };
        let _ = write!(
            out,
            "<tr data-row='{}'><th scope='row'>{}</th>{cells}{change}</tr>",
            row.key, row.name
        );
    }
    out + "</tbody>"
}

/// What happened, as a list; the one that is looked at is marked.
pub fn log(moments: &[Moment], selected: Option<usize>) -> String {
    let first =
        selected.unwrap_or(0).saturating_sub(LISTED / 2).min(moments.len().saturating_sub(LISTED));
    let mut out = String::new();
    for (at, moment) in moments.iter().enumerate().skip(first).take(LISTED) {
        let current = if selected == Some(at) { " aria-current='true'" } else { "" };
        let _ = write!(
            out,
            "<li data-do='moment={at}' value='{}'{current}><b class='{}' aria-hidden='true'>{}</b><span class='num'>{}</span><span>{}</span></li>",
            at + 1,
            moment.kind.class(),
            moment.kind.sign(),
            spoken(moment.at.0),
            escape(&moment.text)
        );
    }
    if moments.len() > LISTED {
        let left = moments.len() - LISTED;
        let _ = write!(
            out,
            "<li class='dim'>{}</li>",
            tr!("and {left} more, in the CSV file and under the arrow keys", left)
        );
    }
    out
}

/// The sizes that the plan can have, with what they give.
pub fn sizes(sizes: &[Size], asked: u32) -> String {
    let mut out = format!(
        "<thead><tr><th class='num'>{}</th><th class='num'>{}</th><th class='num'>{}</th><th class='num'>{}</th></tr></thead><tbody>",
        t("ranks"),
        t("replicas"),
        t("step"),
        t("samples/s")
    );
    for size in sizes {
        let own = if size.ranks == asked { " class='own'" } else { "" };
        let step = size.step_ns.unwrap_or_default();
        let rate =
            if step.0 > 0 { count(size.mini_batch as f64 / step.secs()) } else { "–".into() };
        let _ = write!(
            out,
            "<tr{own}><td class='num'>{}</td><td class='num'>{}</td><td class='num'>{}</td><td class='num'>{rate}</td></tr>",
            size.ranks,
            size.replicas,
            spoken(step.0)
        );
    }
    out + "</tbody>"
}

/// A moment in words, with its time.
pub fn said(moment: &moments::Moment) -> String {
    format!("{}: {}", spoken(moment.at.0), moment.text)
}

/// What a person should look at.
pub fn look(scenario: &Scenario) -> &'static str {
    match presets::ALL.iter().find(|preset| preset.scenario().events == scenario.events) {
        Some(preset) => t(preset.look),
        None => t("Your own events. Click a lane to add a join or a failure; with Shift, a leave."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screens::elastic::model::totals::{Totals, rows};
    use pipewright_core::elastic::life::Life;

    fn life() -> Life {
        let text = include_str!("../../../../../tests/data/elastic/losses.jsonl");
        crate::screens::elastic::model::read("losses.jsonl", text).unwrap().life
    }

    fn balanced(markup: &str) {
        for tag in ["div", "p", "button", "section", "table", "tr", "td", "span", "li", "ol"] {
            let exact = |rest: &&str| rest.starts_with([' ', '>']);
            let opened = markup.split(&format!("<{tag}")[..]).skip(1).filter(exact).count();
            assert_eq!(
                opened,
                markup.matches(&format!("</{tag}>")[..]).count(),
                "{tag} in {markup}"
            );
        }
    }

    #[test]
    fn markup_is_closed() {
        let scenario = Scenario::default();
        let nodes = scenario.nodes();
        let scale = Scale { from: 0.0, to: 4e12, width: 700.0 };
        let life = life();
        let moments = moments::of(&life);
        let totals_ = Totals::of(&life);
        let table = rows(&[totals_.clone(), totals_]);
        let parts = [
            work(),
            side(),
            marks(&scenario, &nodes, &scale),
            events(&scenario, 4),
            log(&moments, Some(3)),
            totals(&table, &["A".into(), "<B>".into()]),
            sizes(&[Size::ranks(2, 8)], 2),
        ];
        parts.iter().for_each(|markup| balanced(markup));
        assert_eq!(parts[2].matches("data-ev=").count(), scenario.events.len());
        assert_eq!(parts[3].matches("data-do='remove=").count(), scenario.events.len());
        assert_eq!(parts[4].matches("<li").count(), moments.len());
        assert!(parts[4].contains("aria-current") && parts[5].contains("&lt;B&gt;"));
        assert!(look(&scenario).starts_with("Two nodes"));
        let mine = Scenario { events: vec![], ..scenario };
        assert!(look(&mine).starts_with("Your own"));
    }

    #[test]
    fn long_lists_show_what_is_looked_at() {
        let moment = moments::of(&life())[0].clone();
        let many = vec![moment; 1000];
        let list = log(&many, Some(700));
        assert!(list.contains("data-do='moment=700'") && !list.contains("data-do='moment=100'"));
        assert_eq!(list.matches("<li").count(), LISTED + 1);
    }
}
