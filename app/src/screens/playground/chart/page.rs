//! Middle and right column of the Playground as markup: what stays, and what is written anew while
//! trainings run.

use super::curves::{Across, Up};
use super::histogram;
use crate::base::format::{self, escape};
use crate::base::texts::{t, tr};
use crate::draw::buttons::buttons;
use crate::screens::playground::model::choice::{CODECS, Choice};
use crate::screens::playground::model::presets;
use crate::screens::playground::model::race::{Race, Run, Twin, keeps_bits};
use pipewright_core::schedule::Updates;
use pipewright_core::units::Bytes;
use std::fmt::Write;

const CLOSE: &str =
    "<svg class='ico' viewBox='0 0 16 16' aria-hidden='true'><path d='m4 4 8 8M12 4l-8 8'/></svg>";

/// The middle: what to look at, the player, room for tiles and curves.
pub fn work() -> String {
    let looks = presets::ALL.iter().enumerate();
    let looks = looks.map(|(at, preset)| (format!("preset={at}"), t(preset.title)));
    let paces = [t("Slow"), t("Steady"), t("Fast")].into_iter().enumerate();
    let paces = paces.map(|(at, name)| (format!("pace={at}"), name));
    let ups = Up::ALL.iter().enumerate().map(|(at, (_, name))| (format!("up={at}"), t(name)));
    let across = Across::ALL.iter().enumerate();
    let across = across.map(|(at, (_, name))| (format!("across={at}"), t(name)));
    format!(
        "<div class='looks'>{}<p class='why' id='pg-look'></p></div>\
         <div class='tbar'><button class='btn pri' id='pg-play' data-do='play'></button>\
         <button class='btn' id='pg-step' data-do='step'>{}</button>\
         <button class='btn' id='pg-reset' data-do='reset'>{}</button>{}\
         <output class='num' id='pg-steps'></output><span class='push'></span>\
         <button class='btn' id='pg-add' data-do='add'>{}</button></div>\
         <p class='rfail' id='pg-stale' role='status' hidden>{}</p>\
         <div class='tiles' id='pg-tiles'></div>\
         <div class='tbar curves-h'><h2>{}</h2>{}{}</div>\
         <div class='rpic curves' id='pg-frame'><div class='plot' id='pg-curves'></div></div>",
        buttons(t("Things to look at"), "seg", looks),
        t("One step"),
        t("Start again"),
        buttons(t("Speed"), "seg", paces),
        t("Add a codec"),
        t("These settings do not fit together; the curves show the previous ones."),
        t("Curves"),
        buttons(t("What is drawn upwards"), "seg", ups),
        buttons(t("What is drawn to the right"), "seg", across),
    )
}

/// The right column: room for the numbers, the step and the bits.
pub fn side() -> String {
    format!(
        "<section class='sum'><table id='pg-runs'><thead><tr><th><h2>{}</h2></th><th class='num'>{}</th>\
         <th class='num'>{}</th><th class='num'>{}</th><th class='num'>{}</th></tr></thead>\
         <tbody id='pg-rows'></tbody></table><p class='small dim'>{}</p></section>\
         <section><div class='sec'><h2>{}</h2><span class='small dim' id='pg-facts'></span></div>\
         <div class='lanes-s' id='pg-lanes'></div></section>\
         <section><h2>{}</h2><ul id='pg-bits'></ul><p class='small dim' id='pg-why'></p></section>",
        t("Training runs"),
        t("accuracy"),
        t("loss"),
        t("sent"),
        t("carried error"),
        t("Accuracy: of 512 unseen points. Sent: per rank. Carried error: what feedback \
             carries over, relative to a gradient."),
        t("A step of one rank"),
        t("Compared with one device without micro-batches"),
    )
}

/// A line as in the chart.
fn sample(at: usize) -> String {
    format!(
        "<svg class='lsm' width='22' height='10' viewBox='0 0 22 10' aria-hidden='true'>\
         <path d='M1 5H21' class='pl p{at}'/></svg>"
    )
}

/// The tiles of so many trainings; values of controls are put in later.
pub fn tiles(count: usize) -> String {
    let mut codecs: Vec<String> = CODECS.iter().map(ToString::to_string).collect();
    codecs.extend(["fp8-e5m2+operator", "fp8-e5m2:truncate+operator"].map(str::to_owned));
    let options: String =
        codecs.iter().map(|codec| format!("<option value='{codec}'>{codec}</option>")).collect();
    let mut out = String::new();
    for at in 0..count {
        let number = at + 1;
        let remove = match count {
            1 => String::new(),
            _ => format!(
                "<button class='ib' data-do='remove={at}' aria-label='{}'>{CLOSE}</button>",
                tr!("Remove training run {number}", number)
            ),
        };
        let _ = write!(
            out,
            "<article class='tile' aria-label='{}'><div class='tile-h'>{}<span class='sel'>\
             <select id='pg-codec-{at}' data-way='{at}' aria-label='{}'>{options}</select></span>{remove}\
             <label class='chk' id='pg-owed-{at}' title='{}'><input type='checkbox' id='pg-feedback-{at}' data-way='{at}'>\
             <span>{}</span></label></div>\
             <canvas class='plane' id='pg-plane-{at}' role='img' aria-label='{}'></canvas>\
             <p class='tile-n' id='pg-now-{at}'></p><div class='hist' id='pg-hist-{at}'></div></article>",
            tr!("Training run {number}", number),
            sample(at),
            tr!("Codec of training run {number}", number),
            escape(t("What the codec loses is added to the next step")),
            t("Feedback"),
            escape(t(
                "The network's class at every point: blue and squares are one class, orange and \
                 circles the other"
            )),
        );
    }
    out
}

/// What a person should look at.
pub fn look(choice: &Choice) -> &'static str {
    match presets::ALL.iter().find(|preset| preset.choice() == *choice) {
        Some(preset) => t(preset.look),
        None => {
            t("Your own: change one thing at a time, and watch where the curves part. All runs \
             start from the same weights and see the same samples.")
        }
    }
}

fn or_dash(value: f64, text: String) -> String {
    if value.is_nan() { "–".into() } else { text }
}

/// The newest numbers of a training, under its picture.
pub fn newest(run: &Run) -> String {
    let now = run.now();
    if let Some(step) = run.lost {
        return format!("<b class='bad'>{}</b>", tr!("✕ diverged at step {step}", step));
    }
    format!(
        "<b>{}<i> %</i></b><span>{} {}</span><span class='end'>{}</span>",
        format::percent(now.accuracy, 1),
        t("loss"),
        or_dash(now.loss, format!("{:.3}", now.loss)),
        format::bytes_text(Bytes(now.sent as u64))
    )
}

/// Its gradient.
pub fn gradient(run: &Run) -> String {
    let seen = &run.trainer().seen;
    histogram::draw(&seen.exact, &seen.received, (200.0, 58.0))
}

/// A line of the table for each training.
pub fn rows(race: &Race) -> String {
    let mut out = String::new();
    for (at, run) in race.runs.iter().enumerate() {
        let (now, way) = (run.now(), run.way);
        let owed = if way.method.feedback { now.carried } else { f64::NAN };
        let _ = write!(
            out,
            "<tr data-run='{way}'><th scope='row'>{} <span>{}</span></th>\
             <td class='num'>{}</td><td class='num'>{}</td><td class='num'>{}</td><td class='num'>{}</td></tr>",
            sample(at),
            way.to_string().replace('+', "<wbr>+"),
            or_dash(now.accuracy, format!("{} %", format::percent(now.accuracy, 1))),
            or_dash(now.loss, format!("{:.3}", now.loss)),
            format::bytes_text(Bytes(now.sent as u64)),
            or_dash(owed, format!("{owed:.1}")),
        );
    }
    out
}

/// How many lanes, and how idle.
pub fn facts(race: &Race) -> String {
    let pipeline = &race.recipe.pipeline;
    let bubble = format::percent(pipeline.bubble(), 0);
    match pipeline.lanes.len() {
        1 => t("one lane, never idle").to_owned(),
        lanes if !pipeline.flushes() => {
            tr!("{lanes} lanes, {bubble} % idle once they are full", lanes, bubble)
        }
        lanes => tr!("{lanes} lanes, {bubble} % idle", lanes, bubble),
    }
}

/// Whether the weights of each training are those of the one beside it.
pub fn bits(race: &Race) -> String {
    if race.runs.iter().all(|run| run.twin() == Twin::None) {
        let text = t("One stage with one micro-batch is that device. Choose more on the left.");
        return format!("<li class='dim'>{text}</li>");
    }
    let mut out = String::new();
    for run in &race.runs {
        let (class, text) = match run.twin() {
            Twin::None => ("dim", String::new()),
            Twin::Same(hash) => {
                let hash = format!("{:08x}", hash >> 32);
                ("good", tr!("✓ all weights bit-identical: {hash}", hash))
            }
            Twin::Apart(by) => {
                let by = format!("{by:.1e}");
                ("warn", tr!("≠ weights differ by up to {by}", by))
            }
        };
        let age = run.trainer().staleness;
        let late = race.recipe.pipeline.schedule.updates != Updates::Synchronous && age > 0;
        let old = if late { tr!("gradients up to {age} updates late", age) } else { String::new() };
        let way = run.way;
        let _ = write!(
            out,
            "<li data-run='{way}'><b>{way}</b> <span class='{class}'>{text}</span> \
             <span class='dim'>{old}</span></li>"
        );
    }
    out
}

/// Why bits are the same or not.
pub fn why(race: &Race) -> &'static str {
    let pipeline = &race.recipe.pipeline;
    match pipeline.schedule.updates {
        _ if pipeline.order.len() == 2 => "",
        Updates::Stashed => t(
            "Every stage updates after every micro-batch; a backward pass uses the weights of its forward pass, which are stashed.",
        ),
        Updates::DoubleBuffered => {
            t("All passes of a step use the weights of one update before: two versions are kept.")
        }
        Updates::Synchronous if keeps_bits(pipeline) => {
            t("Gradients are added in micro-batch order under every schedule, so not even a \
             rounding differs.")
        }
        Updates::Synchronous if pipeline.copies() > 1 => {
            t("This schedule keeps two copies of every stage. Each adds up its own micro-batches, \
             and the two are summed like replicas: roundings differ, learning does not.")
        }
        Updates::Synchronous => {
            t("This schedule runs backward passes in reverse, so sums round in another order: the \
             last bits differ, learning does not.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_bits_and_reasons_follow_the_race() {
        let mut choice = presets::ALL[3].choice();
        let mut race = Race::new(&choice).ok().unwrap();
        (0..3).for_each(|_| race.advance());
        assert_eq!(bits(&race).matches("bit-identical: ").count(), 3, "{}", bits(&race));
        assert!(rows(&race).matches("<tr").count() == 3 && !rows(&race).contains("NaN<"));
        assert!(why(&race).contains("not even a rounding") && facts(&race).starts_with("4 lanes"));
        assert!(newest(&race.runs[0]).contains("loss 0."));
        assert!(look(&choice).starts_with("Four stages"));
        choice.schedule = pipewright_core::schedule::ScheduleKind::PipeDream;
        let mut race = Race::new(&choice).ok().unwrap();
        (0..3).for_each(|_| race.advance());
        assert!(bits(&race).contains("up to 3 updates late") && why(&race).contains("stashed"));
        assert_eq!(facts(&race), "4 lanes, 0 % idle once they are full");
        assert!(look(&choice).starts_with("Your own"));
    }

    #[test]
    fn markup_is_closed() {
        for markup in [work(), side(), tiles(1), tiles(4)] {
            for tag in ["div", "p", "button", "section", "table", "article", "span", "label"] {
                let (opened, closed) = (format!("<{tag}"), format!("</{tag}>"));
                let exact = |rest: &&str| rest.starts_with([' ', '>']);
                let count = markup.split(&opened[..]).skip(1).filter(exact).count();
                assert_eq!(count, markup.matches(&closed[..]).count(), "{tag} in {markup}");
            }
        }
        assert_eq!(tiles(4).matches("data-do='remove=").count(), 4);
        assert!(!tiles(1).contains("remove="));
    }
}
