//! Linear layers, norms over the last axis, attention.

use super::{Emit, Given, Why};
use crate::graph::Op;
use crate::ids::NodeId;
use crate::onnx::ir::Node;
use crate::onnx::node::ValueId;
use crate::onnx::weights;

impl Emit<'_> {
    pub(super) fn sequence(&mut self, node: &Node) -> Result<NodeId, Why> {
        let eps = |absent: f32| node.attributes.float("epsilon").unwrap_or(absent);
        let value = |at: usize| node.inputs.get(at).copied().flatten();
        match node.op.as_str() {
            "Linear" => self.linear(node),
            "MatMul" => {
                let (a, b) = (self.input(value(0))?, self.input(value(1))?);
                self.put(Op::MatMul { transpose_b: false }, &[a, b], &[])
            }
            "ScaledDotProduct" => self.attention(node),
            "Attention" if node.attributes.int("heads").is_some() => {
                let x = self.input(value(0))?;
                let heads = node.attributes.int("heads").unwrap_or(1).unsigned_abs();
                let causal = node.attributes.int("causal").unwrap_or(0) != 0;
                self.put(Op::Attention { heads, kv_heads: heads, causal }, &[x], &[])
            }
            "Attention" => Err("only attention that is written out is known".into()),
            "Rope" => {
                let x = self.input(value(0))?;
                self.put(
                    Op::Rope { base: node.attributes.float("base").unwrap_or(1e4), scaling: None },
                    &[x],
                    &[],
                )
            }
            "TokenPosition" => {
                let (x, tokens) = (self.input(value(0))?, self.input(value(1))?);
                let token = node.attributes.int("token").map(u32::try_from).transpose();
                let token = token.map_err(|_| "its token is negative")?;
                self.put(Op::TokenPosition { token }, &[x, tokens], &[])
            }
            "SwiGlu" => {
                let (gate, up) = (self.input(value(0))?, self.input(value(1))?);
                self.put(Op::SwiGlu, &[gate, up], &[])
            }
            "RMSNormalization" => {
                self.last_axis(node)?;
                let x = self.input(value(0))?;
                let scale = value(1).map_or(Given::Fill(1.0), |v| Given::Value(v, false));
                self.put(Op::RmsNorm { eps: eps(1e-5) }, &[x], &[scale])
            }
            _ => {
                self.last_axis(node)?;
                let x = self.input(value(0))?;
                let scale = value(1).map_or(Given::Fill(1.0), |v| Given::Value(v, false));
                let shift = value(2).map_or(Given::Fill(0.0), |v| Given::Value(v, false));
                self.put(Op::LayerNorm { eps: eps(1e-5) }, &[x], &[scale, shift])
            }
        }
    }

    /// Refuses norms over several axes.
    fn last_axis(&self, node: &Node) -> Result<(), Why> {
        let x = node.inputs.first().copied().flatten().ok_or("an input is left out")?;
        let rank = self.ir.shape(x).ok_or("its shape is not known")?.len() as i64;
        match node.attributes.int("axis").unwrap_or(-1) {
            -1 => Ok(()),
            axis if axis == rank - 1 => Ok(()),
            axis => Err(format!("from axis {axis} on; only the last axis is known")),
        }
    }

    fn linear(&mut self, node: &Node) -> Result<NodeId, Why> {
        let (x, w) = (self.input(node.input(0))?, node.input(1).ok_or("has no weight")?);
        let turned = node.attributes.int("transB").unwrap_or(0) == 0;
        let shape = self.ir.shape(w).filter(|s| s.len() == 2).ok_or("its weight is no matrix")?;
        let outputs = shape[usize::from(turned)];
        let out_features = u64::try_from(outputs).map_err(|_| "a size is negative")?;
        if self.ir.shape(node.input(0).unwrap_or(w)).and_then(|s| s.last())
            != Some(&shape[usize::from(!turned)])
        {
            return Err(format!("a weight of {shape:?} does not fit"));
        }
        let bias = node.input(2);
        if bias.is_none()
            && let Some(weight) = self.tied(w, turned)
        {
            return self.put(
                Op::TiedLinear { weight, out_features },
                &[x],
                &[Given::Value(w, turned)],
            );
        }
        let mut given = vec![Given::Value(w, turned)];
        given.extend(bias.map(|b| Given::Value(b, false)));
        self.put(Op::Linear { out_features, bias: bias.is_some() }, &[x], &given)
    }

    /// The table of vectors that a weight is: the same initialiser, or a turned copy of it, which
    /// exporters write instead.
    fn tied(&mut self, w: ValueId, turned: bool) -> Option<crate::ids::ParamId> {
        let param = self.ir.values[w].param.clone()?;
        let mut axes = param.axes;
        if turned {
            axes.reverse();
        }
        let straight = axes.iter().copied().eq(0..axes.len());
        if straight && let Some(table) = self.tables.get(&param.initializer) {
            return Some(*table);
        }
        let sizes: Vec<i64> = axes.iter().map(|axis| param.shape[*axis]).collect();
        let initializers = self.ir.initializers;
        let copy = &initializers[param.initializer];
        for (&initializer, &id) in &self.tables {
            let table = &initializers[initializer];
            if table.dims != sizes {
                continue;
            }
            match self.ir.origins.same(&table.name, &copy.name) {
                Some(true) => return Some(id),
                Some(false) => continue,
                None => {}
            }
            let fetched = |tensor| weights::fetched(tensor, self.ir.beside);
            let both = fetched(table).zip(fetched(copy));
            match both.and_then(|(a, b)| weights::same_numbers(&a, &b, !straight)) {
                Some(true) => return Some(id),
                Some(false) => {}
                None => {
                    let (table, copy) = (&table.name, &self.ir.values[w].name);
                    self.ir.warnings.push(format!(
                        "`{copy}` has the sizes of `{table}`; without their values both are taken \
                         as weights of their own, not as tied"
                    ));
                }
            }
        }
        None
    }

    /// A vector per token.
    pub(super) fn embedding(&mut self, table: ValueId, tokens: NodeId) -> Result<NodeId, Why> {
        let [entries, features] = *self.ir.shape(table).ok_or("its shape is not known")? else {
            return Err("a table of vectors has two axes".into());
        };
        let (entries, features) = (entries.unsigned_abs(), features.unsigned_abs());
        let op = Op::Embedding { entries, features, positions: 0, kinds: 0 };
        let node = self.put(op, &[tokens], &[Given::Value(table, false)])?;
        if let Some(param) = &self.ir.values[table].param {
            let id = self.parts.nodes[node.index()].params[0];
            self.tables.entry(param.initializer).or_insert(id);
        }
        Ok(node)
    }

    fn attention(&mut self, node: &Node) -> Result<NodeId, Why> {
        let value = |at: usize| node.inputs.get(at).copied().flatten();
        let (q, mut k, v) = (self.input(value(0))?, self.input(value(1))?, self.input(value(2))?);
        if node.attributes.int("turn_keys").unwrap_or(0) != 0 {
            let rank = self.shape_of(k).len();
            let mut axes: Vec<u64> = (0..rank as u64).collect();
            axes.swap(rank - 2, rank - 1);
            k = self.put(Op::Permute { axes }, &[k], &[])?;
        }
        let scale = node.attributes.float("scale").unwrap_or(1.0);
        let causal = node.attributes.int("causal").unwrap_or(0) != 0;
        self.put(Op::ScaledDotProduct { scale, causal }, &[q, k, v], &[])
    }
}
