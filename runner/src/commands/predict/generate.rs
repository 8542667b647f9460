//! Text that goes on: token after token, each from a pass over the whole window.

use crate::args::PredictArgs;
use crate::commands::infer::{Network, Process, Work, agreement, on_ranks, plan};
use crate::data::{Split, Window, draw};
use crate::execute::{Output, Rank};
use crate::failure::{Code, Failure};
use crate::train::TrainError;
use crate::transport::{ReduceOp, Transport};
use pipewright_core::cost::Halves;
use pipewright_core::graph::{Graph, InputSpec, SampleSpec, TargetSpec};
use pipewright_core::predict::evaluation_of;
use serde_json::json;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Runs the command.
pub(super) fn generate(args: &PredictArgs) -> Result<(), Failure> {
    let text = args.prompt.as_deref().unwrap_or_default();
    let prepare = |process: Option<Process>| {
        let mut plan = plan(&args.network, process)?;
        let graph = plan.model.graph().map_err(|e| Failure::new(Code::Plan, e.to_string()))?;
        let sample = graph.sample().expect("plans train on samples");
        let decoder = decoder(&graph, &sample)?;
        let prompt = prompt(text, decoder.vocabulary)?;
        // One sample is all that there is: of each micro-batch one, and of micro-batches the first.
        plan.mini_batch = u64::from(plan.micro_batches) * u64::from(plan.data_parallel.replicas);
        let window = Window::new(decoder.length);
        let split = Split::window(window.clone(), &sample);
        let mut network = Network::new(&args.network, plan, split, process)?;
        network.instructions = evaluation_of(&network.plan, Halves::Unpacked, 1)?;
        let pick = Pick {
            temperature: args.temperature,
            top_k: args.top_k.map_or(usize::MAX, |k| k as usize),
            seed: args.seed,
        };
        Ok((network, Generate { decoder, window, prompt, tokens: args.tokens, pick }))
    };
    on_ranks(prepare, |_, made| match made {
        Made::Tokens(tokens) => {
            let text = tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            match args.network.json {
                true => say!("{}", json!({ "tokens": tokens })),
                false => say!("{text}"),
            }
            Ok(())
        }
        Made::LooksAhead => Err(Failure::usage(
            "--prompt: what the network says of a token depends on those after it, so it cannot go on \
             with a text; decoders attend to earlier tokens alone",
        )),
    })
}

/// Sizes of a network that says the next token at each position.
#[derive(Clone, Copy)]
struct Decoder {
    /// Tokens of the window.
    length: usize,
    /// Tokens lie below.
    vocabulary: u32,
    /// Numbers that it gives at each position.
    classes: usize,
}

/// The decoder that a network is.
fn decoder(graph: &Graph, sample: &SampleSpec) -> Result<Decoder, Failure> {
    match (&sample.input, &sample.target) {
        (InputSpec::Tokens { length, vocabulary }, TargetSpec::Classes { count, classes })
            if count == length
                && super::outputs::Outputs::of(graph).shape == [*length, *classes] =>
        {
            let (length, classes) = (*length as usize, *classes as usize);
            Ok(Decoder { length, vocabulary: *vocabulary as u32, classes })
        }
        _ => Err(Failure::usage(format!(
            "--prompt is for networks that say the next token at each position; {} takes {sample}",
            graph.name()
        ))),
    }
}

/// The tokens of a prompt.
fn prompt(text: &str, vocabulary: u32) -> Result<Vec<u32>, Failure> {
    let refused = |why: String| Failure::usage(format!("--prompt {text}: {why}"));
    let file = |path: &str| std::fs::read(path).map_err(|e| Failure::file(Path::new(path), &e));
    let whole = |bytes: &[u8], width: usize| match bytes.len().is_multiple_of(width) {
        true => Ok(()),
        false => Err(refused(format!("{} bytes are no tokens of {width} bytes", bytes.len()))),
    };
    let tokens: Vec<u32> = if let Some(path) = text.strip_prefix("tokens16:") {
        let bytes = file(path)?;
        whole(&bytes, 2)?;
        bytes.as_chunks().0.iter().map(|b| u32::from(u16::from_le_bytes(*b))).collect()
    } else if let Some(path) = text.strip_prefix("tokens32:") {
        let bytes = file(path)?;
        whole(&bytes, 4)?;
        bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
    } else {
        let number = |part: &str| {
            let wrong = || "give token numbers such as 1,2,3, or tokens16:FILE, tokens32:FILE";
            part.trim().parse().map_err(|_| refused(wrong().into()))
        };
        text.split(',').map(number).collect::<Result<_, _>>()?
    };
    if tokens.is_empty() {
        return Err(refused("it has no tokens".into()));
    }
    match tokens.iter().find(|token| **token >= vocabulary) {
        None => Ok(tokens),
        Some(token) => {
            Err(refused(format!("token {token} is not below {vocabulary}, the model's vocabulary")))
        }
    }
}

/// How a token is chosen.
#[derive(Clone, Copy)]
struct Pick {
    /// 0: the likeliest, the first of equals.
    temperature: f64,
    top_k: usize,
    seed: u64,
}

impl Pick {
    /// Token number `at` of a text, by the logits of all tokens.
    fn token(&self, logits: &[f32], at: u64) -> u32 {
        let mut order: Vec<usize> = (0..logits.len()).collect();
        // Stable: the first of equals stays first.
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
        if self.temperature == 0.0 {
            return order[0] as u32;
        }
        order.truncate(self.top_k);
        let largest = f64::from(logits[order[0]]);
        let weight =
            |token: &usize| ((f64::from(logits[*token]) - largest) / self.temperature).exp();
        let mut rest = draw(self.seed, at) * order.iter().map(weight).sum::<f64>();
        let found = order.iter().find(|token| {
            rest -= weight(token);
            rest < 0.0
        });
        // Sums of floats may come out a little short.
        *found.unwrap_or(&order[0]) as u32
    }
}

struct Generate {
    decoder: Decoder,
    window: Window,
    prompt: Vec<u32>,
    tokens: u64,
    pick: Pick,
}

/// What came of it.
enum Made {
    /// The new tokens.
    Tokens(Vec<u32>),
    /// Nothing: the network is no decoder.
    LooksAhead,
}

impl Work for Generate {
    type Made = Made;

    fn on<T: Transport>(
        &self,
        network: &Network,
        rank: &mut Rank<T>,
    ) -> Result<Option<Made>, TrainError> {
        rank.keep_outputs();
        // The next window depends on this one.
        rank.set_read_ahead(false);
        let mut text = self.prompt.clone();
        for at in 0..self.tokens {
            let row = self.logits(network, rank, &text, 0)?;
            let other = match at == 0 && text.len() < self.decoder.length {
                true => self.logits(network, rank, &text, self.decoder.vocabulary - 1)?,
                false => row.clone(),
            };
            let known = row.len().min(self.decoder.vocabulary as usize);
            let token = (known > 0).then(|| self.pick.token(&row[..known], at));
            let differs = row.iter().zip(&other).any(|(a, b)| a.to_bits() != b.to_bits());
            // Only ranks with the loss know the token.
            let stop = network.stop.load(Ordering::Relaxed);
            let flag = |on| f64::from(u8::from(on));
            let mut news = [token.map_or(-1.0, f64::from), flag(differs), flag(stop)];
            rank.transport.all_reduce(&mut news, ReduceOp::Max).map_err(agreement)?;
            match news {
                [_, _, stop] if stop > 0.0 => return Ok(None),
                [_, differs, _] if differs > 0.0 => return Ok(Some(Made::LooksAhead)),
                [token, ..] => text.push(token as u32),
            }
        }
        Ok(Some(Made::Tokens(text.split_off(self.prompt.len()))))
    }
}

impl Generate {
    /// What the network says after `text`, of which the end is looked at that fits the window; `rest`
    /// stands behind it. Nothing on ranks without the loss. All ranks together.
    fn logits<T: Transport>(
        &self,
        network: &Network,
        rank: &mut Rank<T>,
        text: &[u32],
        rest: u32,
    ) -> Result<Vec<f32>, TrainError> {
        let Decoder { length, classes, .. } = self.decoder;
        let shown = &text[text.len().saturating_sub(length)..];
        // Ranks that are threads share the window: none changes it before all have read it.
        rank.transport.barrier().map_err(agreement)?;
        self.window.show(shown, rest);
        rank.transport.barrier().map_err(agreement)?;
        rank.evaluate(network.instructions_of(rank), 0)?;
        let outputs = rank.take_outputs();
        let row =
            |output: &Output| output.values[(shown.len() - 1) * classes..][..classes].to_vec();
        let first = outputs.iter().find(|output| output.first_sample == 0);
        Ok(first.map(row).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_numbers_below_the_vocabulary() {
        assert_eq!(prompt("1, 2,3", 4).unwrap(), [1, 2, 3]);
        let error = |text: &str| prompt(text, 4).unwrap_err().message;
        assert_eq!(error("1,4"), "--prompt 1,4: token 4 is not below 4, the model's vocabulary");
        assert!(error("a b").contains("give token numbers such as 1,2,3"));
        assert!(error("").contains("give token numbers"));
        assert!(error("tokens16:/nowhere").starts_with("/nowhere: "));
    }

    #[test]
    fn the_likeliest_token_and_draws_among_the_likeliest() {
        let logits = [1.0, 3.0, 3.0, -2.0];
        let greedy = Pick { temperature: 0.0, top_k: usize::MAX, seed: 1 };
        assert_eq!(greedy.token(&logits, 0), 1);
        let drawn = |top_k, temperature| {
            let pick = Pick { temperature, top_k, seed: 7 };
            let mut counts = [0; 4];
            (0..2000).for_each(|at| counts[pick.token(&logits, at) as usize] += 1);
            counts
        };
        assert_eq!(drawn(1, 2.0), [0, 2000, 0, 0]);
        let [rare, a, b, never] = drawn(3, 1.0);
        // Probabilities of 0.063, 0.468 and 0.468.
        assert!((80..180).contains(&rare) && (850..1050).contains(&a), "{rare} {a} {b}");
        assert_eq!(never, 0);
        assert_eq!(drawn(3, 1.0), [rare, a, b, never]);
    }
}
