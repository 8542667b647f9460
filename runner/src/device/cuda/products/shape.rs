//! Products as cuBLASLt has them: matrices stand in columns, the first operand on the left.

use crate::device::cuda::kernels::{Product, ProductStep};

/// A matrix as it lies in memory: `columns` of `rows` elements, `leading` elements from one to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Operand {
    /// Elements that are neighbours.
    pub rows: u64,
    /// How often.
    pub columns: u64,
    /// Elements from a column to the next.
    pub leading: u64,
    /// Whether the product takes it transposed.
    pub transposed: bool,
    /// Elements from a matrix of the batch to the next.
    pub stride: u64,
}

/// A product: `result = op(first) op(second)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// The left operand.
    pub first: Operand,
    /// The right operand.
    pub second: Operand,
    /// What comes out.
    pub result: Operand,
    /// Whether the left operand is the product's `b`: `C^T = B^T A^T`.
    pub swapped: bool,
    /// Matrices of one call.
    pub batch: u32,
    /// Calls, over the outer axis of the batch where the two are not one.
    pub repeats: u32,
}

/// A matrix of `sizes` by its strides, read as `rows x columns` with neighbours along rows.
fn operand(sizes: [u32; 2], strides: [u64; 2], stride: u64) -> Option<Operand> {
    let [rows, columns] = sizes.map(u64::from);
    let along = |rows, columns, leading: u64, transposed| Operand {
        rows,
        columns,
        leading: leading.max(rows),
        transposed,
        stride,
    };
    // Strides of axes of one element mean nothing.
    if (strides[0] == 1 || rows == 1) && (columns == 1 || strides[1] >= rows) {
        return Some(along(rows, columns, if columns == 1 { rows } else { strides[1] }, false));
    }
    if (strides[1] == 1 || columns == 1) && (rows == 1 || strides[0] >= columns) {
        return Some(along(columns, rows, if rows == 1 { columns } else { strides[0] }, true));
    }
    None
}

impl Shape {
    /// That of a product; `None` where a matrix lies in a way that the library does not know.
    pub fn of(product: &ProductStep) -> Option<Self> {
        let Product { m, n, k, batch: [outer, inner], .. } = product.args;
        let Product { a_strides, b_strides, c_strides, .. } = product.args;
        let batches = [product.args.a_batch, product.args.b_batch, product.args.c_batch];
        // Both axes of the batch are one where the outer goes on where the inner ends.
        let is_one = batches.iter().all(|[o, i]| *o == *i * u64::from(inner));
        let (batch, repeats, axis) = match (outer, inner) {
            (_, 1) => (outer, 1, 0),
            (1, _) => (inner, 1, 1),
            _ if is_one => (outer.checked_mul(inner)?, 1, 1),
            _ => (inner, outer, 1),
        };
        let [a_stride, b_stride, c_stride] = batches.map(|strides| strides[axis]);
        let a = operand([m, k], a_strides, a_stride)?;
        let b = operand([k, n], b_strides, b_stride)?;
        let c = operand([m, n], c_strides, c_stride)?;
        // A bias lies along the result's columns, which have to be what the library has in its columns:
        // a result of one column or one row may be taken either way.
        let wide = product.bias.0 != 0 && (m == 1 || n == 1) && (c_strides[1] == 1 || n == 1);
        let c = match wide && !c.transposed {
            true => Operand {
                rows: n.into(),
                columns: m.into(),
                leading: c_strides[0].max(n.into()),
                transposed: true,
                stride: c_stride,
            },
            false => c,
        };
        if product.bias.0 != 0 && !c.transposed {
            return None;
        }
        let flipped = |operand: Operand| Operand { transposed: !operand.transposed, ..operand };
        let result = Operand { transposed: false, ..c };
        Some(match c.transposed {
            true => Self {
                first: flipped(b),
                second: flipped(a),
                result,
                swapped: true,
                batch,
                repeats,
            },
            false => Self { first: a, second: b, result, swapped: false, batch, repeats },
        })
    }

    /// Whether the library may have it of factors in eight bits, with a result of so many bytes an element:
    /// both lie along the axis that is summed, and all columns are whole accesses of 16 bytes.
    pub fn is_for_eight(&self, result_bytes: u64) -> bool {
        let Self { first, second, result, batch, repeats, .. } = self;
        let whole = |operand: &Operand| (operand.rows | operand.leading).is_multiple_of(16);
        let lie_along = first.transposed && !second.transposed && whole(first) && whole(second);
        lie_along
            && *batch == 1
            && *repeats == 1
            && (result.leading * result_bytes).is_multiple_of(16)
    }

    /// Elements to skip in `a`, `b` and `c` for a call.
    pub fn offsets(&self, product: &Product, repeat: u64) -> [u64; 3] {
        [product.a_batch, product.b_batch, product.c_batch].map(|[outer, _]| outer * repeat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cuda::kernels::{Buffers, DevicePtr, Step, Storage, steps};
    use pipewright_core::graph::autodiff::ComputationKind;
    use pipewright_core::graph::{Op, TensorSpec};
    use pipewright_core::plan::Precision;
    use pipewright_kernels::{Call, Draw, Phase, Shard, Turn};
    use proptest::prelude::*;

    /// All three products of a linear layer, whatever its sizes: the library sums along both factors' rows.
    #[test]
    fn factors_in_eight_bits_lie_along_their_sums() {
        use ComputationKind::{Forward, InputGradient, WeightGradient};
        for (rows, inputs, outputs) in [(48, 32, 80), (5, 24, 40), (7, 9, 12), (16, 16, 21)] {
            let op = Op::Linear { out_features: outputs, bias: true };
            let (x, y) = (TensorSpec::f32(vec![inputs]), TensorSpec::f32(vec![outputs]));
            for (kind, sizes) in [
                (Forward, [rows, outputs, inputs]),
                (InputGradient, [rows, inputs, outputs]),
                (WeightGradient, [outputs, inputs, rows]),
            ] {
                let product = product_of(&op, kind, (&x, &y), rows);
                let shape = Shape::of(&product).expect("the library knows it");
                let [m, n, k] = sizes;
                let depth = k.next_multiple_of(16);
                let of = |operand: &Operand| (operand.rows, operand.columns, operand.leading);
                assert!(shape.swapped && shape.first.transposed && !shape.second.transposed);
                assert_eq!(of(&shape.first), (depth, n, depth), "{kind:?}");
                assert_eq!(of(&shape.second), (depth, m, depth), "{kind:?}");
                assert_eq!(of(&shape.result), (n, m, n), "{kind:?}");
                assert_eq!(product.to_f32, kind == WeightGradient);
                let bytes = if product.to_f32 { 4 } else { 2 };
                assert_eq!(shape.is_for_eight(bytes), (n * bytes).is_multiple_of(16), "{kind:?}");
            }
        }
    }

    fn product_of(
        op: &Op,
        kind: ComputationKind,
        (x, y): (&TensorSpec, &TensorSpec),
        samples: u64,
    ) -> ProductStep {
        let call = Call {
            op,
            kind,
            inputs: &[x],
            output: y,
            samples,
            phase: Phase::Train,
            loss_scale: 1.0,
            wanted: 1,
            threads: 1,
            draw: Draw::default(),
            turn: Turn::default(),
            shard: Shard::default(),
            precision: Precision::Fp8,
        };
        let [of_read, of_write] = [[DevicePtr(1 << 20); 2], [DevicePtr(2 << 20); 2]];
        let buffers = Buffers {
            reads: &of_read,
            writes: &of_write,
            params: &of_read,
            gradients: &of_write,
            ..Buffers::default()
        };
        let plan = steps(&call, &buffers, Storage::from(call.precision));
        let product = plan.steps.iter().find_map(|step| match step {
            Step::Product(product) => Some(*product),
            _ => None,
        });
        product.expect("a product")
    }

    /// What the library would do with memory.
    fn by_columns(shape: &Shape, product: &Product, a: &[i64], b: &[i64], c: &mut [i64]) {
        let (first, second) = if shape.swapped { (b, a) } else { (a, b) };
        let at = |operand: &Operand, row: u64, column: u64| match operand.transposed {
            false => row + column * operand.leading,
            true => column + row * operand.leading,
        };
        let depth = if shape.first.transposed { shape.first.rows } else { shape.first.columns };
        for repeat in 0..u64::from(shape.repeats) {
            let [mut of_a, mut of_b, of_c] = shape.offsets(product, repeat);
            if shape.swapped {
                (of_a, of_b) = (of_b, of_a);
            }
            for batch in 0..u64::from(shape.batch) {
                for (row, column) in (0..shape.result.rows)
                    .flat_map(|row| (0..shape.result.columns).map(move |column| (row, column)))
                {
                    let term = |t: u64| {
                        let left = of_a + batch * shape.first.stride + at(&shape.first, row, t);
                        let right =
                            of_b + batch * shape.second.stride + at(&shape.second, t, column);
                        first[left as usize] * second[right as usize]
                    };
                    let place = of_c + batch * shape.result.stride + at(&shape.result, row, column);
                    c[place as usize] = (0..depth).map(term).sum();
                }
            }
        }
    }

    /// The definition.
    fn by_strides(p: &Product, a: &[i64], b: &[i64], c: &mut [i64]) {
        let at = |batch: [u64; 2], strides: [u64; 2], places: [u32; 4]| {
            let [o, i, row, column] = places.map(u64::from);
            (o * batch[0] + i * batch[1] + row * strides[0] + column * strides[1]) as usize
        };
        for (o, i) in (0..p.batch[0]).flat_map(|o| (0..p.batch[1]).map(move |i| (o, i))) {
            for (row, column) in (0..p.m).flat_map(|r| (0..p.n).map(move |c| (r, c))) {
                let term = |t: u32| {
                    a[at(p.a_batch, p.a_strides, [o, i, row, t])]
                        * b[at(p.b_batch, p.b_strides, [o, i, t, column])]
                };
                c[at(p.c_batch, p.c_strides, [o, i, row, column])] = (0..p.k).map(term).sum();
            }
        }
    }

    /// Strides of a matrix in a batch, of some order of its axes and some room between rows.
    fn lie(
        sizes: [u32; 2],
        batch: [u32; 2],
        across: bool,
        room: u64,
        mixed: bool,
    ) -> ([u64; 2], [u64; 2]) {
        let [rows, columns] = sizes.map(u64::from);
        let strides = if across { [1, rows + room] } else { [columns + room, 1] };
        let matrix = if across { columns * strides[1] } else { rows * strides[0] };
        let [outer, inner] = batch.map(u64::from);
        (strides, if mixed { [matrix, matrix * outer] } else { [matrix * inner, matrix] })
    }

    proptest! {
        #[test]
        fn the_library_is_told_the_same_product(
            (m, n, k) in (1u32..5, 1u32..5, 1u32..5), batch in [1u32..4, 1..4],
            across: [bool; 3], room in [0u64..3, 0..3, 0..3], mixed: [bool; 3], bias: bool,
        ) {
            let [(a_strides, a_batch), (b_strides, b_batch), (c_strides, c_batch)] = [
                lie([m, k], batch, across[0], room[0], mixed[0]),
                lie([k, n], batch, across[1], room[1], mixed[1]),
                lie([m, n], batch, across[2], room[2], mixed[2]),
            ];
            let args = Product {
                a: DevicePtr(1), b: DevicePtr(1), c: DevicePtr(1), m, n, k, batch, accumulate: 0,
                a_strides, b_strides, c_strides, a_batch, b_batch, c_batch,
            };
            let bias = DevicePtr(u64::from(bias));
            let product = ProductStep { args, to_f32: false, bias, tf32: false, fp8: None };
            let Some(shape) = Shape::of(&product) else {
                prop_assert!(bias.0 != 0 && across[2], "only biases along the other axis");
                return Ok(());
            };
            prop_assert!(bias.0 == 0 || shape.swapped && shape.result.rows == u64::from(n));
            let a: Vec<i64> = (0..2000).map(|i| i * 7 % 31 - 15).collect();
            let b: Vec<i64> = (0..2000).map(|i| i * 11 % 29 - 14).collect();
            let (mut found, mut expected) = (vec![99; 2000], vec![99; 2000]);
            by_columns(&shape, &args, &a, &b, &mut found);
            by_strides(&args, &a, &b, &mut expected);
            prop_assert_eq!(found, expected);
        }
    }
}
