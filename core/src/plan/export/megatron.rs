//! Megatron-LM's `--pipeline-model-parallel-layout`: `Et*3|(tt|)*29,m|L`.
//!
//! | part | meaning |
//! |---|---|
//! | `E` `t` `m` `L` | embedding, transformer (decoder) layer, multi-token prediction layer, loss |
//! | `\|` | end of a stage; stage i is chunk i div p of pipeline rank i mod p |
//! | `x*3` | a letter or bar three times |
//! | `(..)*3` | a sequence three times; parentheses do not nest |
//! | `,` | nothing, for the eye |

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// What a layer is to Megatron.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// `E`.
    Embedding,
    /// `t`.
    Decoder,
    /// `m`.
    MultiTokenPrediction,
    /// `L`.
    Loss,
}

impl LayerKind {
    const ALL: [LayerKind; 4] = [
        LayerKind::Embedding,
        LayerKind::Decoder,
        LayerKind::MultiTokenPrediction,
        LayerKind::Loss,
    ];

    /// E, t, m or L.
    pub fn letter(self) -> char {
        match self {
            LayerKind::Embedding => 'E',
            LayerKind::Decoder => 't',
            LayerKind::MultiTokenPrediction => 'm',
            LayerKind::Loss => 'L',
        }
    }
}

/// Why there is no such layout.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// A character that does not belong where it stands.
    #[error("character {position} of the layout is `{found}`, where {expected} should be")]
    Character {
        /// From 0.
        position: usize,
        /// What stands there; empty at the end.
        found: String,
        /// What may stand there.
        expected: &'static str,
    },
    /// More layers and stages than any model has.
    #[error("the layout has more than {LIMIT} layers and bars")]
    TooLong,
    /// Stages that do not divide.
    #[error("{stages} stages do not divide into {lanes} pipeline ranks; add or remove bars")]
    Lanes {
        /// Stages of the layout.
        stages: usize,
        /// Pipeline ranks.
        lanes: u32,
    },
    /// An order of layers that Megatron refuses.
    #[error("Megatron refuses the layout: {0}")]
    Refused(&'static str),
    /// A cut outside of the layers or out of order.
    #[error("cut {index} is before layer {cut}; cuts ascend and lie between 1 and {last}")]
    Cut {
        /// Which cut.
        index: usize,
        /// Where.
        cut: usize,
        /// The last layer.
        last: usize,
    },
}

/// Most layers and bars.
const LIMIT: usize = 1 << 16;

/// The layers of each stage, in the order of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// By stage; a stage may be empty.
    pub stages: Vec<Vec<LayerKind>>,
}

impl Layout {
    /// Divides `layers` before the layers `cuts`.
    ///
    /// # Errors
    /// A cut outside of the layers or out of order.
    pub fn new(layers: &[LayerKind], cuts: &[usize]) -> Result<Self, LayoutError> {
        let mut stages = vec![];
        let mut start = 0;
        for (index, &cut) in cuts.iter().enumerate() {
            if cut <= start || cut >= layers.len() {
                let last = layers.len().saturating_sub(1);
                return Err(LayoutError::Cut { index, cut, last });
            }
            stages.push(layers[start..cut].to_vec());
            start = cut;
        }
        stages.push(layers[start..].to_vec());
        Ok(Self { stages })
    }

    /// First layers of the stages after the first.
    pub fn cuts(&self) -> Vec<usize> {
        let ends = self.stages.iter().scan(0, |end, stage| {
            *end += stage.len();
            Some(*end)
        });
        ends.take(self.stages.len().saturating_sub(1)).collect()
    }

    /// Stages of a lane, on `lanes` pipeline ranks; checks what Megatron checks.
    ///
    /// # Errors
    /// Stages that do not divide, or an order of layers that Megatron refuses.
    pub fn chunks(&self, lanes: u32) -> Result<u32, LayoutError> {
        let stages = self.stages.len();
        if lanes == 0 || !stages.is_multiple_of(lanes as usize) {
            return Err(LayoutError::Lanes { stages, lanes });
        }
        let layers = self.stages.concat();
        let count = |kind| layers.iter().filter(|l| **l == kind).count();
        let refuse = |why| Err(LayoutError::Refused(why));
        if layers.first() != Some(&LayerKind::Embedding) || count(LayerKind::Embedding) != 1 {
            return refuse("it begins with the embedding, E, and has no other");
        }
        if layers.last() != Some(&LayerKind::Loss) || count(LayerKind::Loss) != 1 {
            return refuse("it ends with the loss, L, and has no other");
        }
        let prediction = LayerKind::MultiTokenPrediction;
        if let Some(first) = layers.iter().position(|l| *l == prediction) {
            if layers[first..].contains(&LayerKind::Decoder) {
                return refuse("transformer layers, t, stand before multi-token prediction, m");
            }
            if self.stages.iter().filter(|s| s.contains(&prediction)).count() > 1 {
                return refuse("all multi-token prediction layers, m, are in one stage");
            }
        }
        Ok(stages as u32 / lanes)
    }
}

impl FromStr for Layout {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Self, LayoutError> {
        let mut reader = Reader { chars: text.chars().collect(), at: 0 };
        let symbols = reader.sequence(false)?;
        let mut stages = vec![vec![]];
        for symbol in symbols {
            match symbol {
                Some(layer) => stages.last_mut().expect("begins with one").push(layer),
                None => stages.push(vec![]),
            }
        }
        Ok(Self { stages })
    }
}

/// A layer, or a bar.
type Symbol = Option<LayerKind>;

struct Reader {
    chars: Vec<char>,
    at: usize,
}

impl Reader {
    /// The next character that is no comma.
    fn peek(&mut self) -> Option<char> {
        while self.chars.get(self.at) == Some(&',') {
            self.at += 1;
        }
        self.chars.get(self.at).copied()
    }

    fn error(&mut self, expected: &'static str) -> LayoutError {
        let found = self.peek().map_or(String::new(), String::from);
        LayoutError::Character { position: self.at, found, expected }
    }

    /// Up to the end, or to the closing parenthesis.
    fn sequence(&mut self, inside: bool) -> Result<Vec<Symbol>, LayoutError> {
        let mut symbols: Vec<Symbol> = vec![];
        while let Some(c) = self.peek().filter(|c| !(inside && *c == ')')) {
            let unit = match c {
                '|' => vec![None],
                '(' if !inside => {
                    self.at += 1;
                    let unit = self.sequence(true)?;
                    if self.peek() != Some(')') {
                        return Err(self.error("`)`"));
                    }
                    unit
                }
                _ => match LayerKind::ALL.into_iter().find(|kind| kind.letter() == c) {
                    Some(kind) => vec![Some(kind)],
                    None if inside => return Err(self.error("E, t, m, L, `|` or `)`")),
                    None => return Err(self.error("E, t, m, L, `|` or `(`")),
                },
            };
            self.at += 1;
            let times = if self.peek() == Some('*') { self.times()? } else { 1 };
            if symbols.len() + unit.len().saturating_mul(times) > LIMIT {
                return Err(LayoutError::TooLong);
            }
            (0..times).for_each(|_| symbols.extend(&unit));
        }
        Ok(symbols)
    }

    fn times(&mut self) -> Result<usize, LayoutError> {
        self.at += 1;
        let mut times = None;
        while let Some(digit) = self.chars.get(self.at).and_then(|c| c.to_digit(10)) {
            let so_far: usize = times.unwrap_or(0);
            times = Some(so_far.saturating_mul(10).saturating_add(digit as usize).min(LIMIT + 1));
            self.at += 1;
        }
        times.ok_or_else(|| self.error("a number"))
    }
}

/// Runs of equal items, with their lengths.
fn runs<T: PartialEq>(items: &[T]) -> Vec<(&T, usize)> {
    let mut runs: Vec<(&T, usize)> = vec![];
    for item in items {
        match runs.last_mut().filter(|(last, _)| *last == item) {
            Some((_, count)) => *count += 1,
            None => runs.push((item, 1)),
        }
    }
    runs
}

/// The shortest form of this shape: letters repeat with `*`, equal stages in parentheses.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = |layers: &Vec<LayerKind>| -> String {
            let run = |(kind, count): (&LayerKind, usize)| match count {
                1 | 2 => String::from(kind.letter()).repeat(count),
                _ => format!("{}*{count}", kind.letter()),
            };
            runs(layers).into_iter().map(run).collect()
        };
        let Some((last, rest)) = self.stages.split_last() else { return Ok(()) };
        for (layers, count) in runs(rest) {
            match count {
                1 => write!(f, "{}|", stage(layers))?,
                _ => write!(f, "({}|)*{count},", stage(layers))?,
            }
        }
        f.write_str(&stage(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn megatrons_own_example_is_read_and_written() {
        // DeepSeek-V3: 61 layers, 16 ranks, 2 chunks.
        let layout: Layout = "Et*3|(tt|)*29,m|L".parse().unwrap();
        let sizes: Vec<usize> = layout.stages.iter().map(Vec::len).collect();
        assert_eq!((sizes.len(), sizes[0], sizes[1], sizes[30], sizes[31]), (32, 4, 2, 1, 1));
        assert_eq!(layout.chunks(16), Ok(2));
        assert_eq!(layout.to_string(), "Et*3|(tt|)*29,m|L");
        let long: Layout = "Ettt|(tt|)*29m|L".parse().unwrap();
        assert_eq!(long, layout);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |text: &str| text.parse::<Layout>().unwrap_err().to_string();
        assert_eq!(
            error("Et|x"),
            "character 3 of the layout is `x`, where E, t, m, L, `|` or `(` should be"
        );
        assert!(error("E(tt|*3").contains("`)` should be"));
        assert!(error("E((t)*2)*3").contains("is `(`"));
        assert!(error("Et*").contains("a number should be"));
        assert!(error("Et*99999999999999999999L").contains("more than 65536"));
        let refused = |text: &str, lanes| {
            text.parse::<Layout>().unwrap().chunks(lanes).unwrap_err().to_string()
        };
        assert!(refused("Et|tt|L", 2).contains("3 stages do not divide into 2"));
        assert!(refused("t|L", 2).contains("begins with the embedding"));
        assert!(refused("Et|t", 2).contains("ends with the loss"));
        assert!(refused("Em|tL", 2).contains("stand before"));
        assert!(refused("Etm|mL", 2).contains("in one stage"));
    }

    fn layer() -> impl Strategy<Value = LayerKind> {
        prop::sample::select(LayerKind::ALL.to_vec())
    }

    proptest! {
        #[test]
        fn layouts_round_trip(
            stages in prop::collection::vec((prop::collection::vec(layer(), 0..6), 1usize..5), 1..8),
        ) {
            let repeat = |(layers, times)| std::iter::repeat_n(layers, times);
            let layout = Layout { stages: stages.into_iter().flat_map(repeat).collect() };
            prop_assert_eq!(layout.to_string().parse(), Ok(layout));
        }

        #[test]
        fn cuts_round_trip(layers in prop::collection::vec(layer(), 2..40), seed in 0usize..1000) {
            let cuts: Vec<usize> = (1..layers.len()).filter(|i| (i * 7 + seed) % 3 == 0).collect();
            let layout = Layout::new(&layers, &cuts).unwrap();
            prop_assert_eq!(layout.cuts(), cuts);
            prop_assert_eq!(layout.stages.concat(), layers);
        }

        #[test]
        fn no_text_is_too_much(text in "[EtmL|()*,0-9x]{0,40}") {
            if let Ok(layout) = text.parse::<Layout>() {
                prop_assert_eq!(layout.to_string().parse(), Ok(layout));
            }
        }
    }
}
