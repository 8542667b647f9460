//! A transformer as items to place: embedding, blocks, head.

use super::layer::{Layer, head};
use super::memory::layer_stash;
use super::time::overlap;
use super::{Accelerator, Recompute, Training, Transformer};
use pipewright_core::cost::memory::States;
use pipewright_core::cost::{Edge, Item, Shard, Workload};
use pipewright_core::units::{Bytes, Nanos};

/// The items of a transformer for micro-batches of `samples` samples. Each is computed in the
/// `recompute` way on one device; its shards are the tensor-parallel `degrees` that divide the
/// heads (ascending), as they are and with full recompute.
///
/// Parameters are in half precision, 2 bytes each; what an item holds all the time follows from
/// `states`. The head shares the embedding's weights but is counted with its own, as stages hold
/// them. Micro-batches of more than one sample are not linear: build a workload for each size.
pub fn workload(
    model: &Transformer,
    on: &Accelerator,
    samples: u32,
    recompute: Recompute,
    degrees: &[u32],
    states: &States,
) -> Workload {
    let at = |tensor: u32, recompute| Training {
        tensor,
        recompute,
        sequence_parallel: tensor > 1,
        ..Training::alone(samples, samples)
    };
    let divides = |t: &&u32| **t > 1 && model.heads.is_multiple_of(**t);
    let mut ways: Vec<(u32, bool)> = vec![];
    for t in std::iter::once(&1).chain(degrees.iter().filter(divides)) {
        if *t > 1 {
            ways.push((*t, recompute == Recompute::Full));
        }
        if recompute != Recompute::Full {
            ways.push((*t, true));
        }
    }
    let item = |name: String, of: &dyn Fn(&Training) -> Shard| {
        let complete = |shard: Shard| Shard {
            state: states.bytes(shard.parameters.0 / 2, 1).total(),
            ..shard
        };
        let whole = complete(of(&at(1, recompute)));
        let shard = |(t, again): &(u32, bool)| {
            let way = if *again { Recompute::Full } else { recompute };
            Shard { recompute: *again, ..complete(of(&at(*t, way))) }
        };
        Item {
            name,
            forward: whole.forward,
            // The gradient of the inputs takes half of the backward pass: as many products.
            backward_input: Nanos(whole.backward.0 - whole.backward.0 / 2),
            backward_weight: Nanos(whole.backward.0 / 2),
            output: state_bytes(model, samples),
            stash: whole.stash,
            state: whole.state,
            parameters: whole.parameters,
            shards: ways.iter().map(shard).collect(),
            ..Item::default()
        }
    };
    let mut items = vec![item("embedding".into(), &|training| embedding(model, training, on))];
    let block = item(String::new(), &|training| block(model, training, on));
    items.extend((0..model.layers).map(|i| Item { name: format!("block.{i}"), ..block.clone() }));
    items.push(Item {
        output: Bytes(0),
        ..item("head".into(), &|training| logits(model, training, on))
    });
    let edge = |to| Edge { to, from: to - 1, bytes: state_bytes(model, samples) };
    Workload {
        name: format!("transformer-{}x{}", model.layers, model.hidden),
        samples: u64::from(samples),
        edges: (1..=model.layers + 1).map(edge).collect(),
        items,
        memory: Some(on.memory),
        link: Some(on.stage.into()),
        ..Workload::default()
    }
}

fn state_bytes(model: &Transformer, samples: u32) -> Bytes {
    Bytes(2 * u64::from(model.hidden) * u64::from(model.sequence)) * u64::from(samples)
}

fn block(model: &Transformer, training: &Training, on: &Accelerator) -> Shard {
    let layer = Layer::new(model, training, on);
    // A third of the launches are the forward pass's; full recompute launches those again.
    let launch = on.launch_layer / 3.0;
    let again = if training.recompute == Recompute::Full { 3.0 } else { 2.0 };
    let forward = overlap(layer.forward + layer.forward_communication, launch);
    let backward = overlap(layer.backward + layer.backward_communication, again * launch);
    Shard {
        degree: training.tensor,
        forward: Nanos::from_secs(forward),
        backward: Nanos::from_secs(backward),
        stash: Bytes(layer_stash(model, training) as u64),
        parameters: Bytes(2 * model.layer_parameters() / u64::from(training.tensor)),
        ..Shard::default()
    }
}

/// A look-up reads and writes the hidden state; its gradient adds to the table's rows.
fn embedding(model: &Transformer, training: &Training, on: &Accelerator) -> Shard {
    let state = state_bytes(model, training.micro_batch).0 as f64;
    Shard {
        degree: training.tensor,
        forward: Nanos::from_secs(on.move_bytes(2.0 * state)),
        backward: Nanos::from_secs(on.move_bytes(3.0 * state)),
        // Mask of the dropout, and the tokens themselves.
        stash: Bytes(state as u64 / 2),
        parameters: Bytes(2 * model.embedding_parameters() / u64::from(training.tensor)),
        ..Shard::default()
    }
}

fn logits(model: &Transformer, training: &Training, on: &Accelerator) -> Shard {
    let all = head(model, training, on);
    let tokens = u64::from(model.sequence) * u64::from(training.micro_batch);
    let tensor = u64::from(training.tensor);
    Shard {
        degree: training.tensor,
        forward: Nanos::from_secs(all / 3.0),
        backward: Nanos::from_secs(2.0 * all / 3.0),
        // Single-precision logits and the head's input (Korthikanti et al. 2022, section 4.3).
        stash: Bytes(4 * tokens * u64::from(model.vocabulary) / tensor)
            + state_bytes(model, training.micro_batch),
        parameters: Bytes(2 * model.embedding_parameters() / tensor),
        ..Shard::default()
    }
}
