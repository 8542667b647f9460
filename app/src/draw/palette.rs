//! The style sheet's colours for the canvas: read once per theme (`style`), so that both draw alike.

use super::raster::Rgb;
use crate::base::texts::n;
use pipewright_core::schedule::ActionKind;
use pipewright_core::timeline::Work;

/// What the colour of an action says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColourBy {
    Kind,
    MicroBatch,
    Stage,
}

impl ColourBy {
    pub const ALL: [(ColourBy, &'static str); 3] = [
        (ColourBy::Kind, n("Kind")),
        (ColourBy::MicroBatch, n("Micro-batch")),
        (ColourBy::Stage, n("Stage")),
    ];
}

/// A colour for the canvas and for pixels.
#[derive(Clone, Debug, Default)]
pub struct Colour {
    pub css: String,
    pub rgb: Rgb,
}

/// Colours of one theme.
#[derive(Clone, Debug)]
pub struct Palette {
    /// Fills of actions; see [`Palette::index`].
    pub actions: Vec<Colour>,
    pub font: String,
    pub chart: Colour,
    pub sunk: Colour,
    pub line: Colour,
    pub line_2: Colour,
    pub text: Colour,
    pub text_2: Colour,
    pub text_3: Colour,
    pub ink: Colour,
    pub bad: Colour,
    pub warn: Colour,
    pub warn_fill: Colour,
    pub hatch: Colour,
    pub mem: Colour,
    pub mem_2: Colour,
    pub path: Colour,
    pub path_case: Colour,
    pub measured: Colour,
}

/// F, B, I, W, each with its parity step, then the optimizer.
pub(super) const KINDS: [&str; 9] = ["f", "f-2", "b", "b-2", "b", "b-2", "w", "w-2", "mem-2"];

/// Hues for micro-batches and stages: white text at least 4.5:1, shapes at least 3:1 on both
/// chart grounds.
pub(super) const HUES: [&str; 8] =
    ["#2b70b6", "#995e24", "#1d7c4d", "#c62f7a", "#8f49d4", "#4a781c", "#ca2f2f", "#1c7878"];

/// What drawings that leave the page are coloured by: kinds, on a light ground.
pub const HUES_OF_KINDS: [(&str, &str); 4] = [
    (n("forward"), "#0072b2"),
    (n("backward"), "#b84a00"),
    (n("weight gradient"), "#00795a"),
    (n("update"), "#6b7480"),
];

/// The colour of a piece of work in such a drawing.
pub fn colour_of(work: Work) -> &'static str {
    let Work::Run(action) = work else { return HUES_OF_KINDS[3].1 };
    let kind = match action.kind {
        ActionKind::Forward => 0,
        ActionKind::Backward | ActionKind::BackwardInput => 1,
        ActionKind::BackwardWeight => 2,
    };
    HUES_OF_KINDS[kind].1
}

impl Palette {
    /// Place of a piece of work's colour in [`Palette::actions`].
    pub fn index(by: ColourBy, work: Work) -> usize {
        let Work::Run(action) = work else { return KINDS.len() - 1 };
        let hue = |n: u32| KINDS.len() + n as usize % HUES.len();
        match by {
            ColourBy::Kind => {
                let kind = match action.kind {
                    ActionKind::Forward => 0,
                    ActionKind::Backward => 2,
                    ActionKind::BackwardInput => 4,
                    ActionKind::BackwardWeight => 6,
                };
                kind + action.micro_batch.index() % 2
            }
            ColourBy::MicroBatch => hue(action.micro_batch.0),
            ColourBy::Stage => hue(action.stage.0),
        }
    }
}

/// The style sheet writes the canvas's colours as `#rrggbb`.
pub(super) fn rgb(css: &str) -> Rgb {
    let part = |at: usize| css.get(at..at + 2).and_then(|h| u8::from_str_radix(h, 16).ok());
    [1, 3, 5].map(|at| part(at).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipewright_core::ids::StageId;
    use pipewright_core::schedule::Action;

    #[test]
    fn colours_are_read_from_hex() {
        assert_eq!(rgb("#0072b2"), [0, 0x72, 0xb2]);
        assert_eq!(rgb(""), [0, 0, 0]);
    }

    #[test]
    fn neighbouring_micro_batches_differ() {
        let run = |m| Work::Run(Action::new(0, ActionKind::Backward, m));
        for by in [ColourBy::Kind, ColourBy::MicroBatch] {
            assert_ne!(Palette::index(by, run(3)), Palette::index(by, run(4)));
        }
        assert_eq!(Palette::index(ColourBy::Stage, Work::Optimizer(StageId(2))), KINDS.len() - 1);
    }
}
