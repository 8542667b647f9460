//! The Elastic view's controls as markup, written once: every control is a word of the link, whose value
//! is put into it later and whose text is read by the link's own reader.

use crate::base::format::escape;
use crate::base::texts::{n, t, tr};
use crate::draw::buttons::buttons;
use crate::screens::elastic::model::presets::{SCRIPTS, built_in};
use crate::screens::elastic::model::scenario::EPOCHS_MOST;

/// Rules for the mini-batch, with their names.
const RULES: [(&str, &str); 4] = [
    ("keep", n("unchanged")),
    ("scale:linear", n("grows with replicas; rate × k")),
    ("scale:sqrt", n("grows with replicas; rate × √k")),
    ("scale:none", n("grows with replicas; same rate")),
];

const CHEVRON: &str =
    "<svg class='ico' viewBox='0 0 16 16' aria-hidden='true'><path d='m6 4 4 4-4 4'/></svg>";

/// The left column; `replica` is how many ranks a pipeline of the plan has.
pub fn controls(replica: u32) -> String {
    let mut out = group(
        t("Job"),
        &format!(
            "{}<p class='note wide'>{}</p>{}{}<p class='note wide' id='el-plan'></p>",
            text("work", t("Work")),
            t("What all of it takes on the plan's ranks, without interruption."),
            number("epochs", t("Epochs"), EPOCHS_MOST),
            rule()
        ),
    );
    out += &group(
        t("Times"),
        &format!(
            "{}{}{}<p class='note wide'>{}</p>",
            text("settle", t("Settle window")),
            text("detect", t("Detection")),
            text("restart", t("Restart")),
            t("Write 90s, 30m or 1h30m. In order: time to gather changes, to notice a \
                 failure, to restart.")
        ),
    )[..];
    out += &group(&policy_title(0), &policy(0, replica))[..];
    out += &group(&policy_title(1), &policy(1, replica))[..];
    out
}

fn policy_title(at: usize) -> String {
    if at == 0 { t("Policy A").to_owned() } else { t("Policy B, to compare").to_owned() }
}

fn group(title: &str, body: &str) -> String {
    format!(
        "<details class='grp' open><summary>{CHEVRON} <h2>{title}</h2></summary>{body}</details>"
    )
}

fn text(key: &str, label: &str) -> String {
    format!(
        "<div class='row'><label for='el-{key}'>{label}</label>\
         <input id='el-{key}' data-key='{key}' class='find' type='text' autocomplete='off' spellcheck='false'></div>"
    )
}

fn number(key: &str, label: &str, most: u64) -> String {
    format!(
        "<div class='row'><label for='el-{key}'>{label}</label>\
         <input id='el-{key}' data-key='{key}' type='number' inputmode='numeric' min='1' max='{most}'></div>"
    )
}

fn rule() -> String {
    let options: String = RULES.iter().map(|(word, name)| option(word, t(name))).collect();
    format!(
        "<div class='row'><label for='el-rule'>{}</label><span class='sel'>\
         <select id='el-rule' data-key='rule'>{options}</select></span></div>",
        t("Mini-batch")
    )
}

fn option(value: &str, name: &str) -> String {
    format!("<option value='{}'>{}</option>", escape(value), escape(name))
}

/// What a policy begins with, and the box where it is edited.
fn policy(at: usize, replica: u32) -> String {
    let key = ["a", "b"][at];
    let built: String = built_in(replica).iter().map(|text| option(text, text)).collect();
    let scripts: String = (SCRIPTS.iter())
        .map(|(name, _)| option(&format!("ex:{name}"), &format!("{name}.rhai")))
        .collect();
    let letter = ["A", "B"][at];
    format!(
        "<div class='row'><label for='el-like-{key}'>{}</label><span class='sel'>\
         <select id='el-like-{key}' data-like='{key}'><option value=''>{}</option>\
         <optgroup label='{}'>{built}</optgroup><optgroup label='{}'>{scripts}</optgroup></select></span></div>\
         {}<textarea id='el-{key}' data-policy='{key}' aria-label='{}' aria-describedby='el-wrong-{key}' spellcheck='false' \
         autocomplete='off' autocapitalize='off' rows='3'></textarea>\
         <p class='note wide bad' id='el-wrong-{key}' role='status'></p>",
        t("Begin with"),
        t("– choose –"),
        t("Built in"),
        t("Scripts"),
        buttons(
            &tr!("Source of policy {letter}", letter),
            "seg wide",
            [
                (format!("kind={key}:text"), t("Built in")),
                (format!("kind={key}:script"), t("Script"))
            ]
        ),
        escape(&tr!("Policy {letter}", letter)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screens::elastic::model::scenario::Scenario;

    #[test]
    fn every_control_is_a_word_of_the_link_with_a_label() {
        let markup = controls(4);
        for key in ["work", "epochs", "settle", "detect", "restart", "rule"] {
            assert!(markup.contains(&format!("data-key='{key}'")), "{key}");
            assert!(markup.contains(&format!("<label for='el-{key}'>")), "{key}");
        }
        let mut scenario = Scenario::default();
        for (rule, _) in RULES {
            assert_eq!(scenario.take("rule", rule), Ok(()));
        }
        assert!(markup.contains("min-max:4:16") && markup.contains("value='ex:burst'"));
        assert_eq!(markup.matches("<textarea").count(), markup.matches("</textarea>").count());
    }
}
