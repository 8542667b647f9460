//! Shapes, parts, means along axes.

use super::{Emit, Why};
use crate::graph::Op;
use crate::ids::NodeId;
use crate::onnx::ir::{Node, batch_axis};
use crate::onnx::node::ValueId;
use crate::onnx::tensor::{Elem, Tensor};

/// Copies of a value that `Expand` may make.
const COPIES_MAX: u64 = 64;

/// Elements of the matrix that looks rows up.
const LOOKUP_MAX: usize = 1 << 24;

impl Emit<'_> {
    pub(super) fn layout(&mut self, node: &Node) -> Result<NodeId, Why> {
        let x = node.inputs.first().copied().flatten().ok_or("an input is left out")?;
        match node.op.as_str() {
            "Reshape" => self.reshape(x, node.outputs[0]),
            "Transpose" => self.transpose(node, x),
            "Slice" => self.slice(node, x),
            "Gather" => self.gather(node, x),
            "Concat" => self.concat(node),
            "Expand" | "Tile" => self.expand(x, node.outputs[0]),
            "Pad" => Err("padding apart from a convolution".into()),
            _ => self.reduce(node, x),
        }
    }

    fn reshape(&mut self, x: ValueId, output: ValueId) -> Result<NodeId, Why> {
        let (from, to) = (self.ir.shape(x), self.ir.shape(output));
        let (from, to) =
            (from.ok_or("its shape is not known")?, to.ok_or("its shape is not known")?);
        let before = |shape: &[i64]| {
            let batch = batch_axis(shape)?;
            Ok::<_, Why>(batch.map(|(at, _)| shape[..at].iter().product::<i64>()))
        };
        if before(from)? != before(to)? {
            return Err("it moves the batch inside of other axes".into());
        }
        let shape = self.sample(output)?;
        let x = self.input(Some(x))?;
        if self.shape_of(x) == shape {
            return Ok(x);
        }
        let op = if shape.len() == 1 { Op::Flatten } else { Op::Reshape { shape } };
        self.put(op, &[x], &[])
    }

    fn transpose(&mut self, node: &Node, value: ValueId) -> Result<NodeId, Why> {
        let perm = self.call(node).perm().ok_or("its axes are not known")?;
        let shape = self.ir.shape(value).ok_or("its shape is not known")?;
        let gone = batch_axis(shape)?.filter(|(_, times)| *times == 1).map(|(at, _)| at);
        let kept = perm.iter().filter(|at| Some(**at) != gone);
        let axes: Vec<u64> =
            kept.map(|at| *at as u64 - u64::from(gone.is_some_and(|gone| gone < *at))).collect();
        let x = self.input(Some(value))?;
        if axes.iter().copied().eq(0..axes.len() as u64) {
            return Ok(x);
        }
        self.put(Op::Permute { axes }, &[x], &[])
    }

    fn slice(&mut self, node: &Node, value: ValueId) -> Result<NodeId, Why> {
        let ranges = self.call(node).ranges().ok_or("its bounds are not known")?;
        let shape = self.ir.shape(value).ok_or("its shape is not known")?.to_vec();
        let mut x = self.input(Some(value))?;
        for (at, (start, end, step)) in ranges.into_iter().enumerate() {
            if (start, end, step) != (0, shape[at], 1) {
                let axis = self.axis(value, at)?;
                x = self.part(x, axis, [start, end, step])?;
            }
        }
        Ok(x)
    }

    fn part(&mut self, x: NodeId, axis: u64, range: [i64; 3]) -> Result<NodeId, Why> {
        let [start, end, step] = range.map(i64::unsigned_abs);
        self.put(Op::Slice { axis, start, end, step }, &[x], &[])
    }

    pub(super) fn split(&mut self, node: &Node) -> Result<(), Why> {
        let value = node.inputs.first().copied().flatten().ok_or("an input is left out")?;
        let parts = self.call(node).parts(node.outputs.len());
        let (at, sizes) = parts.ok_or("the sizes of its parts are not known")?;
        let axis = self.axis(value, at)?;
        let x = self.input(Some(value))?;
        let mut start = 0;
        for (output, size) in node.outputs.iter().zip(sizes) {
            if self.ir.uses[*output] > 0 {
                let part = self.part(x, axis, [start, start + size, 1])?;
                self.at.insert(*output, part);
            }
            start += size;
        }
        Ok(())
    }

    fn gather(&mut self, node: &Node, table: ValueId) -> Result<NodeId, Why> {
        let given = node.attributes.int("axis").unwrap_or(0);
        let shape = self.ir.shape(table).ok_or("its shape is not known")?.to_vec();
        let at = crate::onnx::node::axis(given, shape.len()).ok_or("it has no such axis")?;
        let indexes = node.inputs.get(1).copied().flatten().ok_or("an input is left out")?;
        let Some(known) = self.ir.values[indexes].constant.clone() else {
            let tokens = self.input(Some(indexes))?;
            if self.is_float(tokens) || at != 0 || self.ir.is_live(table) {
                return Err("at indexes that are computed".into());
            }
            return self.embedding(table, tokens);
        };
        let row = known.of_sample().ok_or("at too many indexes")?;
        let size = shape[at] as f64;
        let row: Vec<f64> = row.into_iter().map(|i| if i < 0.0 { i + size } else { i }).collect();
        let first = *row.first().ok_or("at no index")?;
        let equal = row.iter().all(|i| *i == first);
        let straight = row.iter().enumerate().all(|(n, i)| *i == first + n as f64);
        if !straight && !equal && at == 0 && shape.len() == 2 {
            return self.lookup(table, &row, node.outputs[0]);
        }
        if !straight && !equal || first < 0.0 || first >= size {
            return Err("at indexes that are no range".into());
        }
        let axis = self.axis(table, at)?;
        let mut x = self.input(Some(table))?;
        let count = if straight { row.len() as i64 } else { 1 };
        let range = [first as i64, first as i64 + count, 1];
        if range != [0, shape[at], 1] {
            x = self.part(x, axis, range)?;
        }
        let mut shape = self.shape_of(x);
        match known.shape.len() {
            0 => drop(shape.remove(axis as usize)),
            _ => return self.gathered(x, node.outputs[0], equal && row.len() > 1),
        }
        self.put(Op::Reshape { shape }, &[x], &[])
    }

    /// Rows of a table at known indexes in any order, such as relative positions: a product with a
    /// matrix of ones and zeros.
    fn lookup(&mut self, table: ValueId, rows: &[f64], output: ValueId) -> Result<NodeId, Why> {
        let [entries, _] = *self.ir.shape(table).ok_or("its shape is not known")? else {
            return Err("a table of vectors has two axes".into());
        };
        let size = usize::try_from(entries).map_err(|_| "a size is negative")?;
        let elements = rows.len().checked_mul(size).filter(|n| *n <= LOOKUP_MAX);
        let mut picks = vec![0.0; elements.ok_or("at too many indexes")?];
        for (row, pick) in rows.iter().zip(picks.chunks_exact_mut(size)) {
            *pick.get_mut(*row as usize).ok_or("at an index that the table has not")? = 1.0;
        }
        let shape = vec![rows.len() as i64, entries];
        let constant = Tensor::new(Elem::Float, shape, picks).ok_or("at too many indexes")?;
        let name = format!("{}_lookup", self.ir.values[output].name);
        let picks = self.ir.add_constant(name, constant);
        let (picks, table) = (self.input(Some(picks))?, self.input(Some(table))?);
        let found = self.put(Op::MatMul { transpose_b: false }, &[picks, table], &[])?;
        let shape = self.sample(output)?;
        match self.shape_of(found) == shape {
            true => Ok(found),
            false => self.put(Op::Reshape { shape }, &[found], &[]),
        }
    }

    /// Rows at indexes of several axes: `[batch, length]` of a table gives `[length, features]`.
    fn gathered(&mut self, x: NodeId, output: ValueId, equal: bool) -> Result<NodeId, Why> {
        let mut shape = self.sample(output)?;
        if equal {
            // One row for all positions, which readers stretch.
            let rows = shape.len().checked_sub(2).ok_or("it has too few axes")?;
            shape[..=rows].fill(1);
        }
        if self.shape_of(x) == shape {
            return Ok(x);
        }
        self.put(Op::Reshape { shape }, &[x], &[])
    }

    fn concat(&mut self, node: &Node) -> Result<NodeId, Why> {
        let output = node.outputs[0];
        let like = self.ir.shape(output).ok_or("its shape is not known")?.to_vec();
        let given = node.attributes.int("axis").ok_or("it has no axis")?;
        let at = crate::onnx::node::axis(given, like.len()).ok_or("it has no such axis")?;
        let axis = self.axis(output, at)?;
        let mut inputs = vec![];
        for value in node.inputs.iter().flatten() {
            inputs.push(self.input_like(*value, &like)?);
        }
        match inputs[..] {
            [one] => Ok(one),
            _ => self.put(Op::Concat { axis }, &inputs, &[]),
        }
    }

    /// The shape of a weight that is repeated only for each sample of the file's fixed batch.
    fn one_sample(&self, value: ValueId, like: &[i64]) -> Option<Vec<u64>> {
        let (first, rest) = like.split_first()?;
        let own = self.ir.shape(value).filter(|_| self.ir.is_given(value))?;
        let missing = like.len().checked_sub(own.len())?;
        let size = |i: usize| i.checked_sub(missing).map_or(1, |i| own[i]);
        let repeated = self.ir.fixed.filter(|n| *n > 1) == Some(*first) && size(0) == 1;
        let same = rest.iter().enumerate().all(|(i, n)| size(i + 1) == *n);
        let sizes = std::iter::once(1).chain(rest.iter().map(|n| n.unsigned_abs()));
        (repeated && same).then(|| sizes.collect())
    }

    /// Copies side by side; along the batch nothing is to do.
    fn expand(&mut self, value: ValueId, output: ValueId) -> Result<NodeId, Why> {
        let like = self.ir.shape(output).ok_or("its shape is not known")?.to_vec();
        if let Some(shape) = self.one_sample(value, &like) {
            let x = self.input(Some(value))?;
            return match self.shape_of(x) == shape {
                true => Ok(x),
                false => self.put(Op::Reshape { shape }, &[x], &[]),
            };
        }
        let wanted = self.sample(output)?;
        let mut x = self.input_like(value, &like)?;
        let mut shape = self.shape_of(x);
        if shape.len() < wanted.len() {
            shape.splice(0..0, std::iter::repeat_n(1, wanted.len() - shape.len()));
            x = self.put(Op::Reshape { shape: shape.clone() }, &[x], &[])?;
        }
        for axis in 0..wanted.len() {
            let copies = wanted[axis] / shape[axis].max(1);
            if copies == 1 {
                continue;
            }
            if copies > COPIES_MAX || copies * shape[axis] != wanted[axis] {
                return Err(format!("{} elements made {}", shape[axis], wanted[axis]));
            }
            let copies = vec![x; copies as usize];
            x = self.put(Op::Concat { axis: axis as u64 }, &copies, &[])?;
        }
        Ok(x)
    }

    fn reduce(&mut self, node: &Node, value: ValueId) -> Result<NodeId, Why> {
        let along = self.call(node).along().ok_or("its axes are not known")?;
        let keep = node.attributes.int("keepdims").unwrap_or(1) != 0;
        let shape = self.ir.shape(value).ok_or("its shape is not known")?;
        let elements: i64 = along.iter().map(|at| shape[*at]).product();
        let image = shape.len() == 4 && along == [2, 3];
        let mut axes = vec![];
        for at in along {
            axes.push(self.axis(value, at)?);
        }
        let x = self.input(Some(value))?;
        if axes.is_empty() {
            return Ok(x);
        }
        let op = if image && keep { Op::GlobalAvgPool } else { Op::ReduceMean { axes, keep } };
        let mean = self.put(op, &[x], &[])?;
        match node.op.as_str() {
            "ReduceMean" => Ok(mean),
            _ => self.put(Op::Affine { scale: elements as f32, shift: 0.0 }, &[mean], &[]),
        }
    }
}
