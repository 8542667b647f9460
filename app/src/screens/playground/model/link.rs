//! Choices as a word of the page's link: `data=moons;ranks=8;runs=fp32,table:1+feedback`. What is as at
//! first is left out.

use super::choice::{
    BATCHES, Choice, LAYERS_MAX, MICRO_BATCHES, NOISE_MAX, RANKS, RUNS_MAX, SLOWNESS, WIDTHS,
};
use super::data::Set;
use super::network::Activation;
use crate::base::words;
use pipewright_core::compress::Reduction;

impl Choice {
    /// Every word with its value.
    pub fn words(&self) -> [(&'static str, String); 15] {
        let ways: Vec<String> = self.ways.iter().map(Reduction::to_string).collect();
        let relu = self.activation == Activation::Relu;
        [
            ("data", self.set.word().to_owned()),
            ("noise", self.noise.to_string()),
            ("seed", self.seed.to_string()),
            ("layers", self.layers.to_string()),
            ("width", self.width.to_string()),
            ("act", if relu { "relu" } else { "tanh" }.to_owned()),
            ("rate", self.rate.to_string()),
            ("momentum", self.momentum.to_string()),
            ("batch", self.batch.to_string()),
            ("ranks", self.ranks.to_string()),
            ("stages", self.stages.to_string()),
            ("mb", self.micro_batches.to_string()),
            ("s", self.schedule.to_string()),
            ("slow", self.slowness.to_string()),
            ("runs", ways.join(",")),
        ]
    }

    /// The words that differ from the first choice; empty for it.
    pub fn to_link(&self) -> String {
        words::differing(&self.words(), &Self::default().words())
    }

    /// Reads a word: everything valid is used, the rest is listed, a sentence each.
    pub fn of_link(text: &str) -> (Self, Vec<String>) {
        let mut choice = Self::default();
        let problems = words::read(text, |key, value| choice.take(key, value));
        (choice, problems)
    }

    /// Takes the value of a word.
    ///
    /// # Errors
    /// What may stand there.
    pub fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "data" => {
                let words = Set::ALL.map(Set::word).join(", ");
                let found = Set::ALL.into_iter().find(|set| set.word() == value);
                self.set = found.ok_or(format!("the sets are {words}"))?;
            }
            "noise" => self.noise = number(value, 0..=NOISE_MAX)?,
            "seed" => self.seed = number(value, 0..=9999)?,
            "layers" => self.layers = number(value, 1..=LAYERS_MAX)?,
            "width" => self.width = one_of(value, &WIDTHS)?,
            "act" => {
                self.activation = match value {
                    "tanh" => Activation::Tanh,
                    "relu" => Activation::Relu,
                    _ => return Err("must be tanh or relu".into()),
                }
            }
            "rate" => self.rate = share(value, 1e-4, 10.0)?,
            "momentum" => self.momentum = share(value, 0.0, 0.99)?,
            "batch" => self.batch = one_of(value, &BATCHES)?,
            "ranks" => self.ranks = one_of(value, &RANKS)?,
            "stages" => self.stages = number(value, 1..=LAYERS_MAX + 1)?,
            "mb" => self.micro_batches = one_of(value, &MICRO_BATCHES)?,
            "s" => self.schedule = value.parse().map_err(|e| format!("{e}"))?,
            "slow" => self.slowness = one_of(value, &SLOWNESS)?,
            "runs" => self.ways = ways(value)?,
            _ => return Err("unknown".into()),
        }
        Ok(())
    }
}

fn number(text: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    let value = text.parse().ok().filter(|n| range.contains(n));
    value.ok_or_else(|| format!("must be a whole number from {} to {}", range.start(), range.end()))
}

fn one_of(text: &str, values: &[u64]) -> Result<u64, String> {
    let list = || values.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let value = text.parse().ok().filter(|n| values.contains(n));
    value.ok_or_else(|| format!("must be one of {}", list()))
}

fn share(text: &str, least: f32, most: f32) -> Result<f32, String> {
    let value = text.parse::<f32>().ok().filter(|n| (least..=most).contains(n));
    value.ok_or_else(|| format!("must be a number from {least} to {most}"))
}

fn ways(text: &str) -> Result<Vec<Reduction>, String> {
    let way = |text: &str| {
        let way: Reduction = text.parse().map_err(|e| format!("{e}"))?;
        way.fault().map_or(Ok(way), |what| Err(what.to_owned()))
    };
    let ways: Vec<Reduction> = text.split(',').map(way).collect::<Result<_, _>>()?;
    if ways.len() > RUNS_MAX {
        return Err(format!("at most {RUNS_MAX} trainings stand side by side"));
    }
    Ok(ways)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screens::playground::model::presets;

    #[test]
    fn links_are_inverses_and_leave_out_what_is_usual() {
        assert_eq!(Choice::default().to_link(), "");
        for preset in &presets::ALL {
            let choice = preset.choice();
            let (read, problems) = Choice::of_link(&choice.to_link());
            assert_eq!((read, problems), (choice, vec![]), "{}", preset.choice().to_link());
        }
        let odd = Choice {
            set: Set::Moons,
            noise: 3,
            seed: 42,
            activation: Activation::Relu,
            rate: 0.025,
            momentum: 0.5,
            ways: vec!["int8:16+feedback".parse().unwrap()],
            ..Choice::default()
        };
        assert_eq!(Choice::of_link(&odd.to_link()), (odd, vec![]));
    }

    #[test]
    fn what_is_valid_is_used_and_the_rest_is_listed() {
        let text = "data=stars;ranks=3;seed=5;runs=fp7;s=nope;rate=nan;colour;momentum=1;layers=0";
        let (choice, problems) = Choice::of_link(text);
        assert_eq!((choice.seed, problems.len()), (5, 8), "{problems:?}");
        assert_eq!(Choice { seed: Choice::default().seed, ..choice }, Choice::default());
        for refused in ["runs=power-sgd:2", "runs=fp32,fp32,fp32,fp32,fp32", "runs="] {
            assert_eq!(Choice::of_link(refused).1.len(), 1, "{refused}");
        }
    }
}
