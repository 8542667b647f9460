//! Every key of the page in one table: the handlers look commands up in it, the help prints it.
//!
//! Plain letters act only while the timeline or a cut has focus (WCAG 2.1.4), so that typing in a
//! box or speaking to the browser never moves the picture. Number keys change the screen, unless the
//! help's switch turns them off.

use super::screen::Screen;
use super::texts::n;

/// What a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Undo,
    Redo,
    Export,
    Help,
    Screen(Screen),
    Palette,
    ZoomIn,
    ZoomOut,
    PanLeft,
    PanRight,
    Everything,
    Focus,
    Next,
    Previous,
    LaneUp,
    LaneDown,
    LanesTaller,
    LanesLower,
    Find,
    Clear,
    PreviousCut,
    NextCut,
    CutBack,
    CutForward,
    RowUp,
    RowDown,
    PageUp,
    PageDown,
    FirstRow,
    LastRow,
    Fold,
    Unfold,
    Enter,
}

/// Where a key acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Anywhere.
    Page,
    /// While the timeline has focus.
    Timeline,
    /// While a cut has focus, in the split editor or in the chain of layers.
    Cut,
    /// While the chain of layers has focus.
    Chain,
}

impl Scope {
    pub const ALL: [Scope; 4] = [Scope::Page, Scope::Timeline, Scope::Cut, Scope::Chain];

    /// For [`crate::base::texts::t`].
    pub fn title(self) -> &'static str {
        match self {
            Scope::Page => n("Anywhere"),
            Scope::Timeline => n("Timeline (click it or Tab to it)"),
            Scope::Cut => n("Cuts of the split"),
            Scope::Chain => n("Layers of the model"),
        }
    }
}

/// A line of the table.
pub struct Binding {
    pub scope: Scope,
    /// Values of `KeyboardEvent.key`, letters in lower case.
    pub keys: &'static [&'static str],
    pub ctrl: bool,
    /// `None`: with or without.
    pub shift: Option<bool>,
    pub command: Command,
    /// The keys as people read them.
    pub shown: &'static str,
    pub what: &'static str,
}

const fn plain(
    scope: Scope,
    keys: &'static [&'static str],
    command: Command,
    shown: &'static str,
    what: &'static str,
) -> Binding {
    Binding { scope, keys, ctrl: false, shift: None, command, shown, what }
}

const fn ctrl(
    key: &'static [&'static str],
    shift: bool,
    command: Command,
    shown: &'static str,
    what: &'static str,
) -> Binding {
    Binding { scope: Scope::Page, keys: key, ctrl: true, shift: Some(shift), command, shown, what }
}

const fn screen(keys: &'static [&'static str], screen: Screen, shown: &'static str) -> Binding {
    let command = Command::Screen(screen);
    Binding { shift: Some(false), ..plain(Scope::Page, keys, command, shown, screen.title()) }
}

/// The table.
pub const KEYS: [Binding; 48] = [
    screen(&["1"], Screen::Plan, "1"),
    screen(&["2"], Screen::Model, "2"),
    screen(&["3"], Screen::Compare, "3"),
    screen(&["4"], Screen::Run, "4"),
    screen(&["5"], Screen::Recompute, "5"),
    screen(&["6"], Screen::Communication, "6"),
    screen(&["7"], Screen::Playground, "7"),
    screen(&["8"], Screen::Elastic, "8"),
    ctrl(&["z"], false, Command::Undo, "Ctrl Z", n("undo")),
    ctrl(&["z"], true, Command::Redo, "Ctrl Shift Z", n("redo")),
    ctrl(&["y"], false, Command::Redo, "Ctrl Y", n("redo")),
    ctrl(&["k"], false, Command::Palette, "Ctrl K", n("command palette")),
    ctrl(&["s"], false, Command::Export, "Ctrl S", n("export plan.json")),
    plain(Scope::Page, &["Escape"], Command::Clear, "Esc", n("close help, clear the selection")),
    plain(Scope::Timeline, &["w", "+", "="], Command::ZoomIn, "W +", n("zoom in")),
    plain(Scope::Timeline, &["s", "-"], Command::ZoomOut, "S −", n("zoom out")),
    plain(Scope::Timeline, &["a"], Command::PanLeft, "A", n("pan left")),
    plain(Scope::Timeline, &["d"], Command::PanRight, "D", n("pan right")),
    plain(Scope::Timeline, &["e"], Command::LanesTaller, "E", n("taller lanes")),
    plain(Scope::Timeline, &["q"], Command::LanesLower, "Q", n("lower lanes")),
    plain(Scope::Timeline, &["0"], Command::Everything, "0", n("the whole step")),
    plain(
        Scope::Timeline,
        &["f"],
        Command::Focus,
        "F",
        n("zoom to the selection; again: the whole step"),
    ),
    plain(
        Scope::Timeline,
        &["ArrowRight", "."],
        Command::Next,
        "→ .",
        n("next action of the lane"),
    ),
    plain(Scope::Timeline, &["ArrowLeft", ","], Command::Previous, "← ,", n("previous action")),
    plain(Scope::Timeline, &["ArrowUp"], Command::LaneUp, "↑", n("same micro-batch, lane above")),
    plain(
        Scope::Timeline,
        &["ArrowDown"],
        Command::LaneDown,
        "↓",
        n("same micro-batch, lane below"),
    ),
    plain(Scope::Timeline, &["/"], Command::Find, "/", n("find an action: 3F7")),
    plain(Scope::Timeline, &["?"], Command::Help, "?", n("this list")),
    plain(Scope::Timeline, &["["], Command::PreviousCut, "[", n("go to the previous cut")),
    plain(Scope::Timeline, &["]"], Command::NextCut, "]", n("go to the next cut")),
    plain(
        Scope::Cut,
        &["ArrowUp", "ArrowLeft"],
        Command::CutBack,
        "↑ ←",
        n("back one layer; Shift: ten"),
    ),
    plain(
        Scope::Cut,
        &["ArrowDown", "ArrowRight"],
        Command::CutForward,
        "↓ →",
        n("forward one layer; Shift: ten"),
    ),
    plain(Scope::Cut, &["PageUp"], Command::CutBack, "Page up", n("back four layers")),
    plain(Scope::Cut, &["PageDown"], Command::CutForward, "Page down", n("forward four layers")),
    plain(Scope::Cut, &["["], Command::PreviousCut, "[", n("previous cut")),
    plain(Scope::Cut, &["]"], Command::NextCut, "]", n("next cut")),
    plain(Scope::Chain, &["ArrowUp"], Command::RowUp, "↑", n("layer before")),
    plain(Scope::Chain, &["ArrowDown"], Command::RowDown, "↓", n("layer after")),
    plain(Scope::Chain, &["PageUp"], Command::PageUp, "Page up", n("back ten layers")),
    plain(Scope::Chain, &["PageDown"], Command::PageDown, "Page down", n("forward ten layers")),
    plain(Scope::Chain, &["Home"], Command::FirstRow, "Home", n("first layer")),
    plain(Scope::Chain, &["End"], Command::LastRow, "End", n("last layer")),
    plain(Scope::Chain, &["ArrowRight"], Command::Unfold, "→", n("unfold, or into the block")),
    plain(Scope::Chain, &["ArrowLeft"], Command::Fold, "←", n("fold, or to the block")),
    plain(Scope::Chain, &["Enter", " "], Command::Enter, "Enter", n("fold or unfold; edit a time")),
    plain(Scope::Chain, &["/"], Command::Find, "/", n("find a layer")),
    plain(Scope::Chain, &["["], Command::PreviousCut, "[", n("to the cut before")),
    plain(Scope::Chain, &["]"], Command::NextCut, "]", n("to the cut after")),
];

/// The command of a key in a scope. `ctrl` is also the Mac's command key.
pub fn find(scope: Scope, key: &str, with_ctrl: bool, with_shift: bool) -> Option<Command> {
    let lower = if key.chars().count() == 1 { key.to_ascii_lowercase() } else { key.to_owned() };
    let fits = |b: &&Binding| {
        b.scope == scope
            && b.ctrl == with_ctrl
            && b.shift.is_none_or(|shift| shift == with_shift)
            && b.keys.contains(&lower.as_str())
    };
    KEYS.iter().find(fits).map(|b| b.command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shift_tells_undo_from_redo() {
        assert_eq!(find(Scope::Page, "z", true, false), Some(Command::Undo));
        assert_eq!(find(Scope::Page, "Z", true, true), Some(Command::Redo));
        assert_eq!(find(Scope::Page, "z", false, false), None);
    }

    #[test]
    fn plain_letters_do_nothing_outside_of_their_widget() {
        for binding in KEYS.iter().filter(|b| b.scope == Scope::Page && !b.ctrl) {
            let switched = matches!(binding.command, Command::Screen(_));
            assert!(switched || binding.keys == ["Escape"], "{}", binding.shown);
        }
        assert_eq!(find(Scope::Timeline, "W", false, true), Some(Command::ZoomIn));
        assert_eq!(find(Scope::Timeline, "s", true, false), None);
    }

    #[test]
    fn every_screen_has_the_number_of_its_tab() {
        for (at, screen) in Screen::ALL.into_iter().enumerate() {
            let key = (at + 1).to_string();
            assert_eq!(find(Scope::Page, &key, false, false), Some(Command::Screen(screen)));
        }
    }

    #[test]
    fn no_key_has_two_meanings_in_one_place() {
        for (i, a) in KEYS.iter().enumerate() {
            for b in &KEYS[i + 1..] {
                let clash = a.scope == b.scope
                    && a.ctrl == b.ctrl
                    && a.shift == b.shift
                    && a.keys.iter().any(|k| b.keys.contains(k));
                assert!(!clash, "{} and {}", a.shown, b.shown);
            }
        }
    }
}
