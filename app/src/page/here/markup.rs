//! The panel's parts as markup: a table that changes with every step, a form that is filled in by the
//! browser. As views they were twice the code.

use super::{Form, How, Offer, Run, Status};
use crate::base::format::{escape, hero};
use crate::base::texts::{t, tr};
use pipewright_core::units::Nanos;

/// Most steps that can be asked for.
pub const STEPS_MAX: u64 = 10_000_000;

/// Most threads of a rank.
pub const THREADS_MAX: u64 = 1024;

/// How a run goes: a bar, the numbers, and of one that failed the last lines.
pub fn progress(run: &Run) -> String {
    let percent = (100.0 * run.share()).round();
    let mut out = format!(
        "<div class=\"bar1\" role=\"progressbar\" aria-label=\"{}\" aria-valuenow=\"{percent}\">\
         <i style=\"width:{percent}%\"></i></div><table class=\"shares\"><tbody>",
        t("Steps of the run")
    );
    let none = || "–".to_owned();
    let mut row = |id: &str, title: &str, value: String| {
        out += &format!(
            "<tr><th scope=\"row\">{title}</th><td class=\"num\" id=\"here-{id}\">{value}</td></tr>"
        );
    };
    row("step", t("Step"), tr!("{done} of {steps}", done = run.done, steps = run.steps));
    row("loss", t("Loss"), run.loss.map_or_else(none, |loss| format!("{loss:.4}")));
    row("time", t("Step time, measured"), run.time().map_or_else(none, time));
    row("plan", t("Step time, predicted"), time(run.predicted));
    row("drift", t("Difference"), run.drift().unwrap_or_else(none));
    out += "</tbody></table>";
    if let Some(ended) = run.ended.as_ref().filter(|ended| ended.status == Status::Failed) {
        let (label, said) = (t("The last lines of the run"), escape(&ended.said.join("\n")));
        out += &format!("<pre class=\"log\" tabindex=\"0\" aria-label=\"{label}\">{said}</pre>");
    }
    out
}

fn time(time: Nanos) -> String {
    let (value, unit) = hero(time);
    format!("{value} <span class=\"dim\">{unit}</span>")
}

/// How the next run is started.
pub fn how(offer: &Offer, ranks: u32) -> String {
    let folder = &offer.folder;
    match offer.how {
        How::Mpirun => {
            tr!("{ranks} ranks as processes of mpirun; files go to {folder}.", ranks, folder)
        }
        How::Threads => {
            tr!(
                "{ranks} ranks as threads: mpirun is not there, or starts nothing as root. Files go to {folder}.",
                ranks,
                folder
            )
        }
    }
}

/// What the next run is to be, with a button that starts it.
pub fn form(form: &Form, planned: u64) -> String {
    let steps = form.steps.unwrap_or(planned);
    let threads = form.threads.map_or_else(String::new, |n| n.to_string());
    let checked = |on: bool, word: &str| if on { format!(" {word}") } else { String::new() };
    format!(
        "<div class=\"row\"><label for=\"here-steps\">{}</label>\
         <input id=\"here-steps\" type=\"number\" min=\"1\" max=\"{STEPS_MAX}\" value=\"{steps}\"></div>\
         <div class=\"row\"><label for=\"here-device\">{}</label><span class=\"sel\">\
         <select id=\"here-device\"><option value=\"cpu\">{}</option>\
         <option value=\"model\"{}>{}</option></select></span></div>\
         <div class=\"row\"><label for=\"here-threads\">{}</label><input id=\"here-threads\" type=\"number\" \
         min=\"1\" max=\"{THREADS_MAX}\" placeholder=\"{}\" value=\"{threads}\"></div>\
         <p class=\"row tight\"><label class=\"wide\"><input id=\"here-save\" type=\"checkbox\"{}> {}</label></p>\
         <button class=\"btn pri\" id=\"here-start\">{}</button>",
        t("Steps"),
        t("Computes"),
        t("this machine"),
        checked(form.model, "selected"),
        t("nothing (replay planned times)"),
        t("Threads"),
        t("cores are shared"),
        checked(form.save, "checked"),
        t("Save the weights when it ends"),
        t("Start"),
    )
}

/// The one button of a run that goes on.
pub fn going(run: &Run, listening: bool) -> String {
    let (id, label) = match (listening, run.stopping) {
        (false, _) => ("here-listen", t("Ask again")),
        (true, false) => ("here-stop", t("Stop after this step")),
        (true, true) => ("here-stop", t("Stop at once")),
    };
    format!("<button class=\"btn\" id=\"{id}\">{label}</button>")
}

/// What was typed for a number: nothing, a number from 1 on, or why it is none.
pub fn typed(text: &str, max: u64) -> Result<Option<u64>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let number = text.parse().ok().filter(|number| (1..=max).contains(number));
    number.map(Some).ok_or_else(|| tr!("{text} is not a whole number from 1 to {max}.", text, max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::here::Ended;

    #[test]
    fn what_a_run_said_is_text() {
        let said = vec!["<b>one</b>".to_owned(), "two".to_owned()];
        let ended = Some(Ended { status: Status::Failed, why: String::new(), said });
        let run = Run { steps: 20, done: 5, loss: Some(1.0), ended, ..Run::default() };
        let text = progress(&run);
        assert!(text.contains("&lt;b&gt;one&lt;/b&gt;\ntwo</pre>"), "{text}");
        assert!(text.contains("id=\"here-step\">5 of 20<"), "{text}");
        assert!(
            text.contains("aria-valuenow=\"25\"") && text.contains("id=\"here-time\">–<"),
            "{text}"
        );
        assert!(!progress(&Run { ended: None, ..run }).contains("<pre"));
    }

    #[test]
    fn the_form_shows_what_was_chosen() {
        let text = form(&Form { steps: None, threads: Some(2), model: true, save: true }, 100);
        for part in ["value=\"100\"", "value=\"2\"", "\"model\" selected", "checkbox\" checked"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = form(&Form { steps: Some(7), ..Form::default() }, 100);
        assert!(text.contains("value=\"7\""), "{text}");
        assert!(!text.contains("selected") && !text.contains("checked"), "{text}");
        let offer = |how| Offer { session: "x".into(), how, folder: "runs".into() };
        let how = |kind| how(&offer(kind), 4);
        assert_eq!(how(How::Mpirun), "4 ranks as processes of mpirun; files go to runs.");
        assert!(how(How::Threads).contains("ranks as threads: mpirun is not there"));
    }

    #[test]
    fn one_button_at_a_time() {
        let mut run = Run::default();
        assert!(going(&run, false).contains("here-listen"));
        assert!(going(&run, true).contains("Stop after this step"));
        run.stopping = true;
        assert!(going(&run, true).contains("Stop at once"));
    }

    #[test]
    fn numbers_are_whole_and_not_too_large() {
        assert_eq!(typed(" 12 ", 100), Ok(Some(12)));
        assert_eq!(typed("", 100), Ok(None));
        for wrong in ["0", "101", "-1", "1.5", "ten", "1e2"] {
            assert!(typed(wrong, 100).is_err_and(|why| why.contains(wrong)), "{wrong}");
        }
    }
}
