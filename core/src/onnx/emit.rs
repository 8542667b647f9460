//! The file's operations become ours, on one sample.
//!
//! The batch is outside of every value: an axis that is the batch goes, one in which heads are
//! joined with the batch keeps the heads. What has no counterpart becomes opaque.

mod elementwise;
mod image;
mod layout;
mod loss;
mod opaque;
mod operand;
mod sequence;

use super::ir::{Ir, batch_axis};
use super::node::ValueId;
use super::shapes::Call;
use super::tensor::{BATCH, Elem};
use super::weights::Weight;
use super::{Imported, Loss, OnnxError, Unsupported, layers, names};
use crate::graph::{DType, Graph, GraphParts, Init, Node, Op, Param, TensorSpec};
use crate::ids::{NodeId, ParamId};
use std::collections::BTreeMap;

/// A sentence on what is not supported.
type Why = String;

/// Where a new parameter's values come from.
enum Given {
    /// A weight or a constant; `true` when its two axes are exchanged.
    Value(ValueId, bool),
    /// The same number everywhere: the file has no such parameter, so it is not trained.
    Fill(f32),
}

struct Emit<'a> {
    ir: Ir<'a>,
    parts: GraphParts,
    /// The node of each value.
    at: BTreeMap<ValueId, NodeId>,
    weights: Vec<Weight>,
    /// Path of the module of each node of `parts`.
    scopes: Vec<String>,
    /// Names that are taken, and how often each was asked for.
    names: BTreeMap<String, u32>,
    /// Tables of embeddings, by initialiser.
    tables: BTreeMap<usize, ParamId>,
    unsupported: Vec<Unsupported>,
    /// Operations that are opaque because one before them is.
    behind: usize,
    /// Path of the module whose node is being emitted.
    scope: String,
}

/// Nodes between two rests.
const PIECE: usize = 10_000;

/// Makes the graph.
pub(super) async fn emit(
    ir: Ir<'_>,
    name: String,
    loss: Loss,
    rest: impl AsyncFn(),
) -> Result<Imported, OnnxError> {
    // Names of parameters that the file has not got any more belong to nothing else.
    let names = ir.origins.lost.iter().map(|name| (name.clone(), 1)).collect();
    let parts = GraphParts { name, nodes: vec![], params: vec![], layers: vec![] };
    let mut emit = Emit {
        ir,
        parts,
        at: BTreeMap::new(),
        weights: vec![],
        scopes: vec![],
        names,
        tables: BTreeMap::new(),
        unsupported: vec![],
        behind: 0,
        scope: String::new(),
    };
    emit.source()?;
    for i in 0..emit.ir.nodes.len() {
        if emit.ir.matters(i) {
            emit.node(i)?;
        }
        if i % PIECE == PIECE - 1 {
            rest().await;
        }
    }
    emit.scope = String::new();
    emit.loss(loss)?;
    let Emit { mut ir, mut parts, weights, scopes, unsupported, behind, .. } = emit;
    if behind > 0 {
        let what = match behind {
            1 => "1 operation behind one that is not supported is".into(),
            _ => format!("{behind} operations behind those that are not supported are"),
        };
        ir.warnings.push(format!("{what} opaque as well, because shapes are not known"));
    }
    rest().await;
    parts.layers = layers::layers(&parts, &scopes);
    Ok(Imported { graph: Graph::new(parts)?, weights, unsupported, warnings: ir.warnings })
}

impl Emit<'_> {
    /// The sample.
    fn source(&mut self) -> Result<(), OnnxError> {
        let used = |id: &&ValueId| self.ir.uses[**id] > 0 && !self.is_label(**id);
        let inputs: Vec<ValueId> = self.ir.inputs.iter().filter(used).copied().collect();
        let [input] = inputs[..] else {
            let names: Vec<&str> =
                inputs.iter().map(|i| self.ir.values[*i].name.as_str()).collect();
            return Err(OnnxError::Inputs { names: names.join(", ") });
        };
        let value = &self.ir.values[input];
        let refuse = |why: String| OnnxError::Input { name: value.name.clone(), why };
        let shape = self.sample(input).map_err(refuse)?;
        let op = match (value.elem, &shape[..]) {
            (Elem::Float, _) => Op::Input { shape },
            (_, [length]) => {
                let vocabulary = self.vocabulary(input).ok_or_else(|| {
                    refuse("is whole numbers that no table of vectors is looked up with".into())
                })?;
                Op::Tokens { length: *length, vocabulary }
            }
            _ => return Err(refuse(format!("is whole numbers of shape {shape:?}, not [length]"))),
        };
        let name = self.unique(&value.name.clone());
        let node = self
            .add(name, op, &[], &[])
            .map_err(|why| OnnxError::Input { name: self.ir.values[input].name.clone(), why })?;
        self.at.insert(input, node);
        Ok(())
    }

    /// Rows of the first table that is looked up with the input.
    fn vocabulary(&self, input: ValueId) -> Option<u64> {
        let table = self.ir.nodes.iter().find(|node| {
            node.op == "Gather" && node.inputs.get(1).copied().flatten() == Some(input)
        })?;
        let rows = *self.ir.shape(table.input(0)?)?.first()?;
        u64::try_from(rows).ok().filter(|rows| *rows > 0)
    }

    /// One node of the file.
    fn node(&mut self, i: usize) -> Result<(), OnnxError> {
        let node = &self.ir.nodes[i];
        // What is known and is no weight's needs no node: readers take the values.
        if node.outputs.iter().all(|o| self.at.contains_key(o)) {
            return Ok(());
        }
        self.scope.clone_from(&node.scope);
        let before = (self.parts.nodes.len(), self.parts.params.len());
        let Err(why) = self.convert(i) else { return Ok(()) };
        // Half-done work goes.
        self.parts.nodes.truncate(before.0);
        self.scopes.truncate(before.0);
        self.parts.params.truncate(before.1);
        self.weights.truncate(before.1);
        self.at.retain(|_, node| node.index() < before.0);
        self.tables.retain(|_, param| param.index() < before.1);
        self.scope.clone_from(&self.ir.nodes[i].scope);
        self.opaque(i, why)
    }

    /// The operation, or why there is none.
    fn convert(&mut self, i: usize) -> Result<(), Why> {
        let node = self.ir.nodes[i].clone();
        if node.outputs.iter().skip(1).any(|o| self.ir.uses[*o] > 0) && node.op != "Split" {
            return Err("more than its first output is read".into());
        }
        let output = *node.outputs.first().ok_or("has no output")?;
        if node.inputs.iter().flatten().any(|id| self.ir.shape(*id).is_none()) {
            return Err("what it reads has no known shape".into());
        }
        let done = match node.op.as_str() {
            "Linear" | "MatMul" | "LayerNormalization" | "RMSNormalization"
            | "ScaledDotProduct" | "Attention" | "Rope" | "SwiGlu" | "TokenPosition" => {
                self.sequence(&node)?
            }
            "Conv"
            | "ConvTranspose"
            | "MaxPool"
            | "AveragePool"
            | "GlobalAveragePool"
            | "BatchNormalization"
            | "InstanceNormalization"
            | "GroupNormalization"
            | "LRN"
            | "Resize"
            | "Upsample" => self.image(&node)?,
            "Reshape" | "Transpose" | "Slice" | "Gather" | "Concat" | "Expand" | "Tile"
            | "ReduceMean" | "ReduceSum" | "Pad" => self.layout(&node)?,
            "Split" => return self.split(&node),
            "SoftmaxCrossEntropyLoss" | "NegativeLogLikelihoodLoss" => self.own_loss(&node)?,
            _ => self.elementwise(&node)?,
        };
        // What was emitted must be what the file's shapes say.
        let spec = &self.parts.nodes[done.index()].output.shape;
        if let Ok(expected) = self.sample(output)
            && *spec != expected
            && self.has_batch(output)
            && !(node.op == "Gather" && stretches(spec, &expected))
        {
            return Err(format!("gives {spec:?} where the file has {expected:?}"));
        }
        self.at.insert(output, done);
        Ok(())
    }

    /// Shape of one sample of a value; of a weight or a constant, its shape.
    fn sample(&self, value: ValueId) -> Result<Vec<u64>, Why> {
        let shape = self.ir.shape(value).ok_or("its shape is not known")?;
        let mut shape = shape.to_vec();
        if let Some((axis, times)) = batch_axis(&shape)? {
            if times == 1 {
                shape.remove(axis);
            } else {
                shape[axis] = times;
            }
        }
        shape.iter().map(|n| u64::try_from(*n).map_err(|_| "a size is negative".into())).collect()
    }

    /// The axis of a sample that is axis `axis` of a value; none when that is the batch.
    fn axis(&self, value: ValueId, axis: usize) -> Result<u64, Why> {
        let shape = self.ir.shape(value).ok_or("its shape is not known")?;
        match batch_axis(shape)? {
            Some((at, 1)) if at == axis => Err("it works along the batch".into()),
            Some((at, _)) if at == axis => Err("it works along heads joined with the batch".into()),
            Some((at, 1)) if at < axis => Ok(axis as u64 - 1),
            _ => Ok(axis as u64),
        }
    }

    fn call<'b>(&'b self, node: &'b super::ir::Node) -> Call<'b> {
        Call { ir: &self.ir, op: &node.op, attributes: &node.attributes, inputs: &node.inputs }
    }

    /// The shape of a node of the graph.
    fn shape_of(&self, node: NodeId) -> Vec<u64> {
        self.parts.nodes[node.index()].output.shape.clone()
    }

    /// Adds a node of the scope's name.
    fn put(&mut self, op: Op, inputs: &[NodeId], given: &[Given]) -> Result<NodeId, Why> {
        let module = given.iter().find_map(|g| match g {
            Given::Value(value, _) => self.module_of(*value),
            Given::Fill(_) => None,
        });
        if let Some(module) = &module {
            self.scope.clone_from(module);
        }
        let base = match (given.is_empty(), self.scope.is_empty()) {
            (false, false) => self.scope.clone(),
            (true, false) => format!("{}.{}", self.scope, op.name()),
            (_, true) => op.name().to_string(),
        };
        let name = self.unique(&base);
        self.add(name, op, inputs, given)
    }

    /// The module that a weight's name tells: `encoder.0.fc` of `encoder.0.fc.weight`.
    fn module_of(&self, value: ValueId) -> Option<String> {
        let value = &self.ir.values[value];
        value.param.as_ref().filter(|_| !names::is_made_up(&value.name))?;
        value.name.rsplit_once('.').map(|(module, _)| module.to_string())
    }

    /// Adds a node with its parameters.
    fn add(
        &mut self,
        name: String,
        op: Op,
        inputs: &[NodeId],
        given: &[Given],
    ) -> Result<NodeId, Why> {
        let specs: Vec<&TensorSpec> =
            inputs.iter().map(|i| &self.parts.nodes[i.index()].output).collect();
        let output = op.infer(&specs)?;
        let wanted = op.params(&specs);
        let opaque = matches!(op, Op::Opaque { .. });
        if wanted.len() != given.len() && !opaque {
            return Err(format!("has {} weights, needs {}", given.len(), wanted.len()));
        }
        let mut params = vec![];
        for (at, spec) in wanted.into_iter().enumerate() {
            let (weight, own, trained) = match given.get(at) {
                Some(Given::Value(value, turned)) => self.weight(*value, *turned, &spec.shape)?,
                Some(Given::Fill(number)) => (Weight::fill(*number), None, false),
                None => (Weight::none(), None, true),
            };
            let own = own.filter(|own| !self.names.contains_key(own));
            let param_name = self.unique(&own.unwrap_or_else(|| format!("{name}.{}", spec.suffix)));
            params.push(ParamId(self.parts.params.len() as u32));
            let init = match weight.source {
                super::Source::Fill(0.0) => Init::Zeros,
                super::Source::Fill(_) => Init::Ones,
                _ => spec.init,
            };
            let trainable = spec.trainable && trained;
            self.parts.params.push(Param { name: param_name, shape: spec.shape, init, trainable });
            self.weights.push(weight);
        }
        let inputs = inputs.to_vec();
        self.parts.nodes.push(Node { name, op, inputs, output, params });
        self.scopes.push(self.scope.clone());
        Ok(NodeId(self.parts.nodes.len() as u32 - 1))
    }

    /// A name that nothing has yet.
    fn unique(&mut self, name: &str) -> String {
        let name = if name.is_empty() { "node" } else { name };
        let mut found = name.to_string();
        while self.names.contains_key(&found) {
            let count = self.names.entry(name.to_string()).or_insert(1);
            *count += 1;
            found = format!("{name}_{count}");
        }
        self.names.insert(found.clone(), 1);
        found
    }

    /// Whether the node's value are numbers.
    fn is_float(&self, node: NodeId) -> bool {
        self.parts.nodes[node.index()].output.dtype == DType::F32
    }

    /// Whether the value is the labels of the file's own loss.
    fn is_label(&self, value: ValueId) -> bool {
        let reads = |node: &super::ir::Node| node.inputs.contains(&Some(value));
        let mut readers = self.ir.nodes.iter().filter(|n| reads(n)).peekable();
        readers.peek().is_some()
            && readers.all(|n| n.op.ends_with("Loss") && n.inputs.get(1) == Some(&Some(value)))
    }

    /// The batch's share of a shape with the batch: for messages and checks.
    fn has_batch(&self, value: ValueId) -> bool {
        self.ir.shape(value).is_some_and(|s| s.iter().any(|n| n % BATCH == 0 && *n != 0))
    }
}

/// Whether readers can stretch `own` to `wanted`: rows that are equal for all positions are one row.
fn stretches(own: &[u64], wanted: &[u64]) -> bool {
    own.len() == wanted.len() && own.iter().zip(wanted).all(|(a, b)| a == b || *a == 1)
}
