//! Optimizers: their formulas, the state that each keeps, and their text form.
//!
//! Formulas are PyTorch's; `g` is the gradient of the mini-batch's mean loss, `w` a weight, `r` the
//! learning rate of the step, `t` the number of updates so far, this one included.
//!
//! ```text
//! sgd     d = g + decay w      v = momentum v + d       w -= r v      (nesterov: w -= r (d + momentum v))
//! adam    d = g + decay w      m = beta1 m + (1 - beta1) d      s = beta2 s + (1 - beta2) d²
//!         w -= r (m / (1 - beta1^t)) / (sqrt(s / (1 - beta2^t)) + eps)
//! adamw   w *= 1 - r decay, then as adam with d = g            (Loshchilov and Hutter 2019)
//! lars    d = g + decay w      l = trust |w| / (|g| + decay |w|)
//!         v = momentum v + l d      w -= r v                   (You et al. 2017)
//! ```

use crate::cost::memory::{Precision, Sharding, States, UpdateRule};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How parameters change. Prints and parses as `sgd:lr=0.1,nesterov=true` or
/// `adamw:lr=0.003,beta2=0.99`; what is not named has its usual value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Optimizer {
    /// Stochastic gradient descent.
    Sgd {
        /// Learning rate.
        learning_rate: f32,
        /// 0 for none.
        momentum: f32,
        /// L2 penalty.
        weight_decay: f32,
        /// Whether to look one step ahead along the momentum (Nesterov).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        nesterov: bool,
    },
    /// Adam (Kingma and Ba 2015).
    Adam {
        /// Learning rate.
        learning_rate: f32,
        /// Share of the old mean of gradients in the new one.
        beta1: f32,
        /// Share of the old mean of squared gradients in the new one.
        beta2: f32,
        /// Added to the root of the second mean.
        eps: f32,
        /// L2 penalty.
        weight_decay: f32,
    },
    /// Adam whose decay acts on the weights themselves.
    #[serde(rename = "adamw")]
    AdamW {
        /// Learning rate.
        learning_rate: f32,
        /// Share of the old mean of gradients in the new one.
        beta1: f32,
        /// Share of the old mean of squared gradients in the new one.
        beta2: f32,
        /// Added to the root of the second mean.
        eps: f32,
        /// Share of a weight that a step at learning rate 1 takes away.
        weight_decay: f32,
    },
    /// Momentum with a learning rate per parameter, for large mini-batches. Parameters of one axis
    /// (biases, scales and shifts of normalisations) take the plain momentum step without decay,
    /// as is usual.
    Lars {
        /// Learning rate.
        learning_rate: f32,
        /// Share of the last direction in the next one.
        momentum: f32,
        /// L2 penalty.
        weight_decay: f32,
        /// How far a parameter may move relative to its length.
        trust: f32,
    },
}

/// A number of an optimizer: its field, its value and what may stand there.
pub(super) type Number<'a> = (&'static str, &'a mut f32, Range);

/// Values that a number may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    /// 0 or more.
    NotNegative,
    /// More than 0.
    Positive,
    /// From 0 to below 1.
    Share,
}

impl Range {
    pub(super) fn holds(self, value: f32) -> bool {
        match self {
            Range::NotNegative => value.is_finite() && value >= 0.0,
            Range::Positive => value.is_finite() && value > 0.0,
            Range::Share => (0.0..1.0).contains(&value),
        }
    }

    pub(super) fn must(self) -> &'static str {
        match self {
            Range::NotNegative => "a number of at least 0",
            Range::Positive => "a number above 0",
            Range::Share => "at least 0 and below 1",
        }
    }
}

/// The optimizers as one writes them.
const NAMES: &str = "sgd, adam, adamw, lars";

impl Optimizer {
    /// The optimizer of that name with its usual numbers, PyTorch's where it has them.
    fn named(name: &str) -> Option<Self> {
        let (learning_rate, beta1, beta2, eps) = (1e-3, 0.9, 0.999, 1e-8);
        match name {
            "sgd" => Some(Self::default()),
            "adam" => Some(Self::Adam { learning_rate, beta1, beta2, eps, weight_decay: 0.0 }),
            "adamw" => Some(Self::AdamW { learning_rate, beta1, beta2, eps, weight_decay: 0.01 }),
            "lars" => Some(Self::Lars {
                learning_rate: 0.1,
                momentum: 0.9,
                weight_decay: 1e-4,
                trust: 1e-3,
            }),
            _ => None,
        }
    }

    /// Its name on the command line and in the plan file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Sgd { .. } => "sgd",
            Self::Adam { .. } => "adam",
            Self::AdamW { .. } => "adamw",
            Self::Lars { .. } => "lars",
        }
    }

    /// The learning rate before any schedule.
    pub fn learning_rate(&self) -> f32 {
        match *self {
            Self::Sgd { learning_rate, .. }
            | Self::Adam { learning_rate, .. }
            | Self::AdamW { learning_rate, .. }
            | Self::Lars { learning_rate, .. } => learning_rate,
        }
    }

    /// What is kept for each trained parameter between steps, under PyTorch's names. Each tensor
    /// has the parameter's shape, holds f32 and begins as zeros.
    pub fn state_names(&self) -> &'static [&'static str] {
        match *self {
            Self::Sgd { momentum, .. } | Self::Lars { momentum, .. } if momentum == 0.0 => &[],
            Self::Sgd { .. } | Self::Lars { .. } => &["momentum_buffer"],
            Self::Adam { .. } | Self::AdamW { .. } => &["exp_avg", "exp_avg_sq"],
        }
    }

    /// How many tensors are kept for each trained parameter: 0 to 2.
    pub fn state_tensors(&self) -> usize {
        self.state_names().len()
    }

    /// What a parameter takes in memory, for searches that do not lower a plan.
    pub fn states(&self) -> States {
        let rule = match self.state_tensors() {
            0 => UpdateRule::Sgd,
            1 => UpdateRule::Momentum,
            _ => UpdateRule::Adam,
        };
        States { rule, precision: Precision::Single, sharding: Sharding::Whole }
    }

    /// All numbers, in the order in which they are printed.
    pub(super) fn numbers(&mut self) -> Vec<Number<'_>> {
        use Range::{NotNegative, Positive, Share};
        const RATE: &str = "optimizer.learning_rate";
        const MOMENTUM: &str = "optimizer.momentum";
        const DECAY: &str = "optimizer.weight_decay";
        match self {
            Self::Sgd { learning_rate, momentum, weight_decay, .. } => vec![
                (RATE, learning_rate, NotNegative),
                (MOMENTUM, momentum, Share),
                (DECAY, weight_decay, NotNegative),
            ],
            Self::Adam { learning_rate, beta1, beta2, eps, weight_decay }
            | Self::AdamW { learning_rate, beta1, beta2, eps, weight_decay } => vec![
                (RATE, learning_rate, NotNegative),
                ("optimizer.beta1", beta1, Share),
                ("optimizer.beta2", beta2, Share),
                // Without it a weight whose gradients were all zero would become 0 / 0.
                ("optimizer.eps", eps, Positive),
                (DECAY, weight_decay, NotNegative),
            ],
            Self::Lars { learning_rate, momentum, weight_decay, trust } => vec![
                (RATE, learning_rate, NotNegative),
                (MOMENTUM, momentum, Share),
                (DECAY, weight_decay, NotNegative),
                ("optimizer.trust", trust, Positive),
            ],
        }
    }
}

impl Default for Optimizer {
    fn default() -> Self {
        Optimizer::Sgd { learning_rate: 0.01, momentum: 0.9, weight_decay: 0.0, nesterov: false }
    }
}

/// How a number is called in the text form.
fn key(field: &str) -> &str {
    match field.strip_prefix("optimizer.").unwrap_or(field) {
        "learning_rate" => "lr",
        other => other,
    }
}

impl fmt::Display for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut this, mut usual) =
            (*self, Self::named(self.name()).expect("every optimizer has a name"));
        let numbers = this.numbers().into_iter().zip(usual.numbers());
        let changed = numbers.filter(|((_, a, _), (_, b, _))| a != b);
        let mut parts: Vec<String> =
            changed.map(|((field, value, _), _)| format!("{}={value}", key(field))).collect();
        if matches!(self, Self::Sgd { nesterov: true, .. }) {
            parts.push("nesterov=true".into());
        }
        write!(f, "{}", self.name())?;
        if !parts.is_empty() {
            write!(f, ":{}", parts.join(","))?;
        }
        Ok(())
    }
}

impl FromStr for Optimizer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        let mut optimizer = Self::named(name)
            .ok_or_else(|| format!("`{name}` is no optimizer; there are {NAMES}"))?;
        for setting in settings.split(',').filter(|s| !s.is_empty()) {
            let (wanted, value) = setting
                .split_once('=')
                .ok_or_else(|| format!("`{setting}` is no setting; write lr=0.1"))?;
            optimizer.set(wanted, value)?;
        }
        Ok(optimizer)
    }
}

impl Optimizer {
    /// Sets a number by its name in the plan file; whether it makes sense is for the plan's check
    /// to say.
    ///
    /// # Errors
    /// A number that this optimizer does not have.
    pub fn replace(&mut self, wanted: &str, value: f32) -> Result<(), String> {
        *self.number(wanted)?.0 = value;
        Ok(())
    }

    fn number(&mut self, wanted: &str) -> Result<(&mut f32, Range), String> {
        let wanted_key = if wanted == "learning_rate" { "lr" } else { wanted };
        let name = self.name();
        let numbers = self.numbers();
        let known = numbers.iter().map(|(field, ..)| key(field)).collect::<Vec<_>>().join(", ");
        let more = if name == "sgd" { ", nesterov" } else { "" };
        let found = numbers.into_iter().find(|(field, ..)| key(field) == wanted_key);
        found
            .map(|(_, number, range)| (number, range))
            .ok_or_else(|| format!("{name} has no `{wanted}`; it has {known}{more}"))
    }

    fn set(&mut self, wanted: &str, value: &str) -> Result<(), String> {
        let wrong = |must: &str| format!("{wanted}={value}: must be {must}");
        if let (Self::Sgd { nesterov, .. }, "nesterov") = (&mut *self, wanted) {
            *nesterov = value.parse().map_err(|_| wrong("true or false"))?;
            return Ok(());
        }
        let (number, range) = self.number(wanted)?;
        let parsed = value.parse().ok().filter(|value| range.holds(*value));
        *number = parsed.ok_or_else(|| wrong(range.must()))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_there_and_back() {
        for text in [
            "sgd",
            "sgd:lr=0.1,momentum=0,nesterov=true",
            "adam:beta1=0.8",
            "adamw:lr=0.003,beta2=0.99,weight_decay=0.1",
            "lars:lr=2,trust=0.002",
        ] {
            let optimizer: Optimizer = text.parse().expect(text);
            assert_eq!(optimizer.to_string(), text);
        }
        let long: Optimizer = "sgd:learning_rate=0.5".parse().expect("the long name");
        assert_eq!(long.to_string(), "sgd:lr=0.5");
    }

    #[test]
    fn wrong_texts_say_what_may_stand_there() {
        let refusal = |text: &str| text.parse::<Optimizer>().expect_err(text);
        assert_eq!(
            refusal("adagrad"),
            "`adagrad` is no optimizer; there are sgd, adam, adamw, lars"
        );
        assert!(refusal("sgd:beta1=0.9").contains("has no `beta1`; it has lr, momentum"));
        assert_eq!(refusal("adam:beta2=1"), "beta2=1: must be at least 0 and below 1");
        assert!(refusal("adam:eps=0").contains("above 0"));
        assert!(refusal("adam:lr=nan").contains("at least 0"));
        assert!(refusal("adam:lr").contains("is no setting"));
        assert!(refusal("sgd:nesterov=maybe").contains("true or false"));
    }

    #[test]
    fn state_follows_from_the_rule() {
        let names = |text: &str| text.parse::<Optimizer>().expect(text).state_names();
        assert_eq!(names("sgd"), ["momentum_buffer"]);
        assert_eq!(names("sgd:momentum=0"), [""; 0]);
        assert_eq!(names("lars"), ["momentum_buffer"]);
        assert_eq!(names("adamw"), ["exp_avg", "exp_avg_sq"]);
        let bytes =
            |text: &str| text.parse::<Optimizer>().expect(text).states().bytes(1, 1).optimizer.0;
        assert_eq!((bytes("sgd:momentum=0"), bytes("sgd"), bytes("adam")), (0, 4, 8));
    }
}
