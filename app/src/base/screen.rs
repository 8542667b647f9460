//! Screens of the page: tabs, number keys, links and help all read this table.

use super::texts::{n, tr};

/// A screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Screen {
    /// Timeline of one plan.
    #[default]
    Plan,
    /// Layers, their costs, and where the plan cuts them.
    Model,
    /// Two plans on one time axis, and which others there are.
    Compare,
    /// What was measured, and why it differs from what was predicted.
    Run,
    /// What less memory costs.
    Recompute,
    /// How gradients travel.
    Communication,
    /// A small network, trained while one looks.
    Playground,
    /// What becomes of a job when nodes come and go.
    Elastic,
}

impl Screen {
    /// In the order of tabs and number keys.
    pub const ALL: [Screen; 8] = [
        Screen::Plan,
        Screen::Model,
        Screen::Compare,
        Screen::Run,
        Screen::Recompute,
        Screen::Communication,
        Screen::Playground,
        Screen::Elastic,
    ];

    /// Its tab, for [`crate::base::texts::t`].
    pub const fn title(self) -> &'static str {
        match self {
            Screen::Plan => n("Plan"),
            Screen::Model => n("Model"),
            Screen::Compare => n("Compare"),
            Screen::Run => n("Run"),
            Screen::Recompute => n("Recompute"),
            Screen::Communication => n("Communication"),
            Screen::Playground => n("Playground"),
            Screen::Elastic => n("Elastic"),
        }
    }

    /// Its word in links.
    pub fn word(self) -> &'static str {
        match self {
            Screen::Plan => "plan",
            Screen::Model => "model",
            Screen::Compare => "compare",
            Screen::Run => "run",
            Screen::Recompute => "recompute",
            Screen::Communication => "communication",
            Screen::Playground => "playground",
            Screen::Elastic => "elastic",
        }
    }

    /// The screen of a link's word.
    ///
    /// # Errors
    /// The words there are.
    pub fn of_word(word: &str) -> Result<Self, String> {
        let words = Self::ALL.map(Self::word);
        let found = Self::ALL.into_iter().find(|screen| screen.word() == word);
        found.ok_or_else(|| tr!("the views are {list}", list = words.join(", ")))
    }
}
