//! Shards of networks by hand and of presets.

use super::*;
use crate::graph::presets::Preset;
use crate::graph::{Function, GraphBuilder};
use crate::graph::{Node, Op};

fn preset(name: &str) -> Graph {
    name.parse::<Preset>().unwrap().graph().unwrap()
}

fn named<'a>(graph: &'a Graph, name: &str) -> (NodeId, &'a Node) {
    let at = graph.nodes().iter().position(|node| node.name == name).unwrap();
    (NodeId(at as u32), &graph.nodes()[at])
}

#[test]
fn a_decoder_is_divided_as_megatron_does_it() {
    let whole =
        preset("transformer:layers=2,hidden=32,heads=8,kv=4,sequence=8,vocabulary=50,gated");
    let shard = whole.shard(4).unwrap();
    let kind = |name: &str| shard.parallel_linear(named(&shard, name).0);
    for name in ["attn.qkv", "mlp.gate", "mlp.up"] {
        assert_eq!(kind(&format!("h.1.{name}")), Some(ParallelLinear::Column), "{name}");
    }
    for name in ["attn.proj", "mlp.proj"] {
        assert_eq!(kind(&format!("h.0.{name}")), Some(ParallelLinear::Row), "{name}");
    }
    assert_eq!(kind("head"), Some(ParallelLinear::Column), "a part of the logits each");
    assert_eq!(kind("embedding"), Some(ParallelLinear::Vocabulary));
    let attention = Op::Attention { heads: 2, kv_heads: 1, causal: true };
    assert_eq!(named(&shard, "h.0.attn").1.op, attention);
    assert_eq!(shard.nodes().len(), whole.nodes().len());
    for (of_shard, of_whole) in shard.nodes().iter().zip(whole.nodes()) {
        assert_eq!(of_shard.name, of_whole.name);
        let same = of_shard.output == of_whole.output;
        assert_eq!(
            same,
            !shard.tensor_parallel().unwrap().divided[named(&whole, &of_whole.name).0.index()]
        );
    }
}

#[test]
fn shards_of_a_parameter_are_all_of_it_once() {
    let whole = preset("transformer:layers=1,hidden=32,heads=8,kv=2,sequence=8,vocabulary=50");
    let shard = whole.shard(2).unwrap();
    let mut divided = 0;
    for id in (0..whole.params().len() as u32).map(ParamId) {
        let Some(shards) = shard.shards(id) else {
            assert_eq!(shard.param(id), whole.param(id));
            continue;
        };
        divided += 1;
        assert_eq!(shards.shape, whole.param(id).shape);
        let mut seen = vec![0; whole.param(id).elements() as usize];
        for rank in 0..2 {
            let mut count = 0;
            for at in shards.pieces(rank).flatten() {
                (seen[at], count) = (seen[at] + 1, count + 1);
            }
            assert_eq!(count, shard.param(id).elements(), "{}", whole.param(id).name);
        }
        assert!(seen.iter().all(|times| *times == 1), "{}", whole.param(id).name);
    }
    assert_eq!(divided, 1 + 2 + 1 + 2 + 1 + 1, "positions and biases of rows are whole");
    // Eight heads of four, then two of keys, then two of values: the second rank has half of each.
    let qkv = named(&whole, "h.0.attn.qkv").1.params[1];
    let pieces: Vec<Range<usize>> = shard.shards(qkv).unwrap().pieces(1).collect();
    assert_eq!(pieces, [16..32, 36..40, 44..48]);
}

#[test]
fn what_does_not_divide_is_refused_in_a_sentence() {
    let refused = |graph: &Graph, degree| graph.shard(degree).unwrap_err().to_string();
    let grouped = preset("transformer:layers=1,hidden=32,heads=8,kv=2,sequence=8,vocabulary=50");
    assert_eq!(
        refused(&grouped, 4),
        "node `h.0.attn`: 2 heads of keys and values do not divide among 4 tensor-parallel ranks"
    );
    let mut g = GraphBuilder::new("norms");
    g.layer("all");
    let x = g.input(vec![6]);
    let x = g.linear("a", x, 6);
    let x = g.add("norm", Op::LayerNorm { eps: 1e-5 }, &[x]);
    let x = g.linear("b", x, 4);
    g.loss(x, 4);
    let refused = refused(&g.finish().unwrap(), 2);
    assert!(refused.starts_with("`norms` has no two linear layers"), "{refused}");
}

#[test]
fn heads_that_are_permuted_out_of_their_features_are_divided() {
    let mut g = GraphBuilder::new("encoder");
    g.layer("all");
    let x = g.input(vec![5, 12]);
    let heads = |g: &mut GraphBuilder, name: &str, count: u64| {
        let y = g.linear(name, x, 3 * count);
        let shape = vec![5, count, 3];
        let y = g.add(format!("{name}.split"), Op::Reshape { shape }, &[y]);
        g.add(format!("{name}.heads"), Op::Permute { axes: vec![1, 0, 2] }, &[y])
    };
    let q = heads(&mut g, "q", 4);
    // As exporters write keys and values that several queries share.
    let [k, v] = ["k", "v"].map(|name| {
        let y = heads(&mut g, name, 2);
        let shape = vec![2, 1, 5, 3];
        let y = g.add(format!("{name}.apart"), Op::Reshape { shape }, &[y]);
        let y = g.add(format!("{name}.twice"), Op::Concat { axis: 1 }, &[y, y]);
        g.add(format!("{name}.shared"), Op::Reshape { shape: vec![4, 5, 3] }, &[y])
    });
    let op = Op::ScaledDotProduct { scale: 0.5, causal: false };
    let y = g.add("attention", op, &[q, k, v]);
    let y = g.add("back", Op::Permute { axes: vec![1, 0, 2] }, &[y]);
    let y = g.add("join", Op::Reshape { shape: vec![5, 12] }, &[y]);
    let y = g.linear("out", y, 12);
    let y = g.add("add", Op::Add, &[x, y]);
    let y = g.add("first", Op::FirstPosition, &[y]);
    let y = g.activation("tanh", Function::Tanh, y);
    let y = g.linear("head", y, 3);
    g.loss(y, 3);
    let whole = g.finish().unwrap();
    let refused = whole.shard(4).unwrap_err().to_string();
    assert_eq!(refused, "node `k.split`: 2 heads do not divide among 4 tensor-parallel ranks");
    let shard = whole.shard(2).unwrap();
    assert_eq!(named(&shard, "k.twice").1.output.shape, [1, 2, 5, 3]);
    assert_eq!(named(&shard, "attention").1.output.shape, [2, 5, 3]);
    assert_eq!(named(&shard, "join").1.output.shape, [5, 6]);
    assert_eq!(shard.parallel_linear(named(&shard, "v").0), Some(ParallelLinear::Column));
    assert_eq!(shard.parallel_linear(named(&shard, "out").0), Some(ParallelLinear::Row));
    assert_eq!(shard.parallel_linear(named(&shard, "head").0), None);
}

#[test]
fn experts_are_divided_and_their_shares_are_not() {
    let whole = preset(
        "transformer:layers=1,hidden=32,heads=8,sequence=8,vocabulary=50,gated,experts=4,top_k=2,capacity=1",
    );
    let shard = whole.shard(2).unwrap();
    let kind = |name: &str| shard.parallel_linear(named(&shard, &format!("h.0.moe.{name}")).0);
    for name in ["router", "shares", "experts.silu"] {
        assert_eq!(kind(name), None, "{name}");
    }
    for (names, expected) in [
        (&["dispatch"][..], ParallelLinear::Column),
        (&["experts.gate", "experts.up", "experts.proj"], ParallelLinear::Expert),
        (&["combine"], ParallelLinear::Row),
    ] {
        names.iter().for_each(|name| assert_eq!(kind(name), Some(expected), "{name}"));
    }
    let shape = |graph: &Graph, name: &str| named(graph, name).1.output.shape.clone();
    assert_eq!(shape(&whole, "h.0.moe.dispatch"), [4, 4, 32]);
    assert_eq!(shape(&shard, "h.0.moe.dispatch"), [2, 4, 32]);
    assert_eq!(shape(&shard, "h.0.moe.shares"), [8, 4]);
    let up = named(&whole, "h.0.moe.experts.up").1.params[0];
    let shards = shard.shards(up).unwrap();
    let words = whole.param(up).elements() as usize;
    let mut pieces = shards.pieces(1);
    assert_eq!((pieces.next(), pieces.next()), (Some(words / 2..words), None));
    // Slices of the sequence lie between, not among the experts.
    let sliced = whole.divided(2, true).unwrap();
    let is_sliced = |name: &str| sliced.is_sliced(named(&sliced, name).0);
    assert!(is_sliced("h.0.ln_2") && is_sliced("h.0.moe.combine") && is_sliced("h.0.add_2"));
    assert!(!is_sliced("h.0.moe.router") && !is_sliced("h.0.moe.experts.silu"));
}

/// The parts of a table that does not divide, by rank.
fn parts_of(whole: &Graph, degree: u32, name: &str) -> Vec<u64> {
    let shard = whole.shard(degree).unwrap();
    let id = whole.params().iter().position(|param| param.name == name).unwrap();
    let shards = shard.shards(ParamId(id as u32)).unwrap();
    let count = |rank| shards.pieces(rank).map(|piece| piece.len() as u64).sum();
    (0..degree).map(count).collect()
}

#[test]
fn a_vocabulary_that_does_not_divide_has_shorter_parts_at_its_end() {
    let whole = preset("transformer:layers=1,hidden=32,heads=8,sequence=8,vocabulary=50,tied");
    for name in ["embedding.weight", "head.weight"] {
        assert_eq!(parts_of(&whole, 4, name), [13 * 32, 13 * 32, 13 * 32, 11 * 32]);
    }
    let few = preset("transformer:layers=1,hidden=32,heads=8,sequence=8,vocabulary=5");
    assert_eq!(parts_of(&few, 4, "head.weight"), [64, 64, 32, 0]);
    let shard = whole.shard(4).unwrap();
    assert_eq!(named(&shard, "head").1.output.shape, [8, 13]);
    assert_eq!(shard.vocabulary(named(&shard, "embedding").0), Some(50));
    assert_eq!(shard.vocabulary(shard.loss().unwrap()), Some(50));
}

/// A head whose logits something else reads too, and a table that such a head is tied to.
#[test]
fn logits_that_others_read_are_whole() {
    let network = |tied: bool| {
        let mut g = GraphBuilder::new("scaled");
        g.layer("all");
        let x = g.add("tokens", Op::Tokens { length: 3, vocabulary: 8 }, &[]);
        let table = Op::Embedding { entries: 8, features: 4, positions: 0, kinds: 0 };
        let table = g.add("table", table, &[x]);
        let x = g.linear("a", table, 8);
        let x = g.relu("relu", x);
        let x = g.linear("b", x, 4);
        let head = match tied {
            true => Op::TiedLinear { weight: g.weight(table), out_features: 8 },
            false => Op::Linear { out_features: 8, bias: true },
        };
        let x = g.add("head", head, &[x]);
        let x = g.add("cap", Op::Affine { scale: 0.5, shift: 0.0 }, &[x]);
        g.losses(x, 3, 8);
        g.finish().unwrap().shard(2).unwrap()
    };
    let kinds =
        |graph: &Graph| ["table", "head"].map(|name| graph.parallel_linear(named(graph, name).0));
    assert_eq!(kinds(&network(true)), [None, None]);
    assert_eq!(kinds(&network(false)), [Some(ParallelLinear::Vocabulary), None]);
}
